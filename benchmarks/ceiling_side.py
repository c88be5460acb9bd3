"""The ceiling: the same scripts, called by bare hiredis over a bare trio socket, with no features around them.

No typed arguments, no ids checked, no reconnects, no heartbeats, no cancellation; a bare task for each job, since a
handler must run in one. What echomq costs beyond this is what its promises cost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, final
from urllib.parse import urlsplit

import hiredis
import trio

from benchmarks.workload import AT_ONCE, KEYS, PACE, TASK, Clock, Span, payload, say
from echomq.protocol.ids import mint, new_tag
from echomq.protocol.newjob import NewJob
from echomq.protocol.payloads import payload_fields
from echomq.transitions import Call, claim, enqueue
from echomq.transitions.scripts import load

PER_CALL = 128
LEASE_MS = 30_000
TAG = new_tag()


@final
class Link:
    """A socket and a parser."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.reader = hiredis.Reader()

    async def send(self, *commands: tuple[Any, ...]) -> None:
        await self.stream.send_all(b"".join(map(hiredis.pack_command, commands)))

    async def reply(self) -> Any:
        while (reply := self.reader.gets()) is False:
            self.reader.feed(await self.stream.receive_some(65536))
        if isinstance(reply, hiredis.ReplyError):
            raise reply
        return reply

    async def call(self, *command: Any) -> Any:
        await self.send(command)
        return await self.reply()


async def connect(url: str) -> Link:
    parts = urlsplit(url)
    link = Link(await trio.open_tcp_stream(str(parts.hostname), int(parts.port or 0)))
    for verb in ("enqueue", "claim", "complete"):
        await link.call("SCRIPT", "LOAD", load(verb).source)
    return link


@final
class Verb:
    """Calls of one script with counted numbers."""

    def __init__(self, verb: str) -> None:
        self._head = ("EVALSHA", load(verb).sha, 2, KEYS.meta, KEYS.void, TAG)
        self.number = 0

    def call(self, *arguments: Any) -> tuple[Any, ...]:
        self.number += 1
        return (*self._head, self.number, *arguments)


@final
class Template:
    """Makes a job's arguments from those that echomq makes of one job, by putting id and payload in their places."""

    def __init__(self) -> None:
        model = NewJob(task=TASK, payload=payload(0))
        self._arguments = list(enqueue(KEYS, Call(TAG), [model]).argv[2:])
        self._id = self._arguments.index(model.id)
        self._pieces = [self._arguments.index(piece) for piece in payload_fields(model.payload)[1::2]]
        self._lane = [text.split()[0] for text in load("enqueue").header.item].index("lane")

    def make(self, number: int, lane: str = "") -> list[Any]:
        arguments = self._arguments.copy()
        arguments[self._id] = mint()
        arguments[self._lane] = lane
        for at, piece in zip(self._pieces, payload_fields(payload(number))[1::2], strict=True):
            arguments[at] = piece
        return arguments


async def enqueue_single(url: str, jobs: int) -> None:
    link, verb, template = await connect(url), Verb("enqueue"), Template()
    await link.call(*verb.call(*template.make(0)))
    span = Span(jobs)
    for number in range(jobs):
        await link.call(*verb.call(*template.make(number)))
    say(span.report())


async def enqueue_calls(url: str, jobs: int, per_call: int) -> None:
    """Enqueue so many a call, with one call on its way while the next is made."""
    link, verb, template = await connect(url), Verb("enqueue"), Template()
    await link.call(*verb.call(*template.make(0)))
    span = Span(jobs)
    waiting = 0
    for first in range(0, jobs, per_call):
        arguments: list[Any] = []
        for number in range(first, min(first + per_call, jobs)):
            arguments += template.make(number)
        await link.send(verb.call(*arguments))
        waiting += 1
        if waiting > 1:
            await link.reply()
            waiting -= 1
    for _ in range(waiting):
        await link.reply()
    say(span.report())


@contextmanager
def _claims(count: Callable[[], int]) -> Iterator[Callable[[], tuple[Any, ...]]]:
    verb = Verb("claim")
    tail = list(claim(KEYS, Call(TAG), count=1, lease_ms=LEASE_MS).argv[3:])
    yield lambda: verb.call(count(), *tail)


async def work(
    url: str, on_start: Callable[[list[bytes]], None], over: trio.Event, concurrency: int, *, tell: bool
) -> None:
    """Claim, run and complete until it is over: completions and the next claim leave together."""
    link, park, complete = await connect(url), await connect(url), Verb("complete")
    done: list[Any] = []
    running = 0
    wake = trio.Event()

    async def run(id: bytes, token: bytes, nonce: str, row: list[bytes]) -> None:
        nonlocal running
        on_start(row)
        running -= 1
        done.extend((id, token, nonce, b"", b""))
        wake.set()

    with _claims(lambda: concurrency - running) as claims:
        async with trio.open_nursery() as nursery:
            while not over.is_set() or running or done:
                commands = []
                if done:
                    commands.append(complete.call(*done[: 5 * PER_CALL]))
                    del done[: 5 * PER_CALL]
                commands.append(claims())
                await link.send(*commands)
                if len(commands) > 1:
                    await link.reply()
                jobs = (await link.reply())[3:]
                nonce = f"{TAG}.{commands[-1][6]}"
                for id, token, row in jobs:
                    running += 1
                    nursery.start_soon(run, id, token, nonce, row)
                if running or done:
                    if not done:
                        wake = trio.Event()
                        await wake.wait()
                elif not jobs and not over.is_set():
                    if tell:
                        tell = False
                        say("ready")
                    await park.call("BLPOP", KEYS.wake, 1)


async def drain(url: str, jobs: int, concurrency: int) -> None:
    clock, over = Clock(jobs), trio.Event()

    def start(_row: list[bytes]) -> None:
        if clock.tick():
            over.set()

    await work(url, start, over, concurrency, tell=False)
    say(clock.report())


async def latency_worker(url: str, jobs: int) -> None:
    starts: dict[bytes, int] = {}
    over = trio.Event()

    def start(row: list[bytes]) -> None:
        text = row[row.index(b"payload") + 1]
        starts[text[10:18]] = time.monotonic_ns()
        if len(starts) == jobs:
            over.set()

    await work(url, start, over, 100, tell=True)
    say([starts[b"%08d" % number] for number in range(jobs)])


async def latency_producer(url: str, jobs: int) -> None:
    link, verb, template = await connect(url), Verb("enqueue"), Template()
    starts: list[int] = []
    due = trio.current_time()
    for number in range(jobs):
        due += PACE
        await trio.sleep_until(due)
        starts.append(time.monotonic_ns())
        await link.call(*verb.call(*template.make(number)))
    say(starts)


ROLES: dict[str, Callable[..., Any]] = {
    "enqueue_single": enqueue_single,
    "enqueue_tasks": partial(enqueue_calls, per_call=AT_ONCE),
    "enqueue_bulk": partial(enqueue_calls, per_call=PER_CALL),
    "drain": drain,
    "latency_worker": latency_worker,
    "latency_producer": latency_producer,
}


def run(role: str, url: str, *sizes: int) -> None:
    trio.run(partial(ROLES[role], url, *sizes))
