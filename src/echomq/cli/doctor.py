"""`echomq doctor`: looks at a server and its queues, changes nothing, and says what to do."""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import chain
from typing import Any, Final

import attrs
import click

from echomq.cli.asking import bar
from echomq.cli.findings import Finding, ServerFacts, of_server
from echomq.cli.frame import REFUSED, checked_all, connected
from echomq.cli.output import Output
from echomq.cli.queue_findings import Listing, QueueFacts, look_at, of_queue
from echomq.client import Client
from echomq.errors import PermissionDeniedError, ServerError
from echomq.protocol.keys import check_queue_name
from echomq.protocol.version import PROTOCOL

TRIPS: Final = 21
"""Round trips whose median is the latency."""
QUEUES: Final = 100
"""Queues that are looked at unless they are named."""
COLOURS: Final = {"ok": "green", "warning": "yellow", "problem": "red", "unknown": "cyan"}


@click.command("doctor")
@click.argument("queues", nargs=-1, metavar="[QUEUE]...", callback=checked_all(check_queue_name))
@connected
async def doctor(client: Client, out: Output, *, queues: tuple[str, ...]) -> None:
    """Check the server, and QUEUEs; without any, the 100 used last. Changes nothing; exits with 1 if there is a problem.

    Of a large queue a sample is looked at: `repair` looks at everything, and mends it.
    """
    found: list[Finding] = []

    def tell(finding: Finding) -> None:
        found.append(finding)
        where = f"{finding.check} of {finding.queue}" if finding.queue else finding.check
        level = click.style(f"{finding.level:<8}", fg=COLOURS[finding.level], bold=finding.level == "problem")
        out.say(f"{level} {where}: {finding.text}")
        if finding.advice:
            out.say(f"         to do: {finding.advice}")

    facts = await _server(client)
    for finding in of_server(facts):
        tell(finding)
    known = [] if queues else [each.name for each in await client.queues()]
    names = queues or sorted(known[:QUEUES])
    if len(known) > QUEUES:
        text = f"{len(known):,} are known: the {QUEUES} used last are looked at, {len(known) - QUEUES:,} are not"
        tell(Finding(check="queues", level="unknown", text=text, advice="name those you mean: echomq doctor QUEUE..."))
    looked: list[QueueFacts] = []
    try:
        with bar("queues looked at", len(names)) as progress:
            listing = await Listing.of(client, names)
            for name in names:
                looked.append(await look_at(client.queue(name), time.time() + facts.ahead, listing))
                await progress(len(looked))
    finally:  # not within: a bar takes the terminal
        for finding in chain.from_iterable(map(of_queue, looked)):
            tell(finding)
    problems = sum(finding.level == "problem" for finding in found)
    warnings = sum(finding.level == "warning" for finding in found)
    text = f"{problems} problems, {warnings} warnings, {len(found)} checks; echomq speaks protocol {PROTOCOL}"
    out.done(
        text, problems=problems, warnings=warnings, protocol=PROTOCOL, findings=[attrs.asdict(each) for each in found]
    )
    if problems:
        click.get_current_context().exit(REFUSED)


async def _server(client: Client) -> ServerFacts:
    """Gather the facts of the server."""
    trips: list[float] = []
    ahead = 0.0
    for _ in range(TRIPS):
        began, sent = time.time(), time.perf_counter()
        seconds, micros = await client.wire.command("TIME", repeat=True)
        trip = time.perf_counter() - sent
        if trip <= min(trips, default=trip):  # the shortest one says most exactly what the server's clock showed when
            ahead = int(seconds) + int(micros) / 1e6 - (began + trip / 2)
        trips.append(trip)
    info = await _asked(client, "INFO")
    config: dict[str, str] | None = {}
    for name in ("save", "appendfsync"):
        pair = await _asked(client, "CONFIG", "GET", name)
        config = None if pair is None or config is None else {**config, **_pairs(pair)}
    parsed = None if info is None else dict(_lines(info))
    return ServerFacts(info=parsed, config=config, trips=tuple(trips), ahead=ahead)


async def _asked(client: Client, *words: str) -> Any:
    """Ask the server; None: it does not answer that, or not to us."""
    try:
        return await client.wire.command(*words, repeat=True)
    except PermissionDeniedError:
        return None
    except ServerError as error:
        if error.code != "ERR":  # an unknown command: some providers have taken CONFIG away
            raise
        return None


def _pairs(answer: Mapping[bytes, bytes]) -> dict[str, str]:
    return {name.decode(): value.decode("utf-8", "replace") for name, value in answer.items()}


def _lines(info: bytes) -> Any:
    for line in bytes(info).decode("utf-8", "replace").splitlines():
        name, colon, value = line.partition(":")
        if colon:
            yield name, value
