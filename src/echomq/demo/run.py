"""The demonstration itself: a flow of files and directories, two workers, one of which is killed, and a check of it all."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, Protocol, final

import anyio
import anyio.to_thread
import attrs

from echomq.demo import jobs
from echomq.demo.jobs import Digest, Sum, checksum, sum_directory, sum_tree
from echomq.demo.listing import Listing, show
from echomq.demo.workers import Worker, open_worker
from echomq.embedded import open_server_async
from echomq.errors import EchoMQError
from echomq.flow_tree import FlowTree, TreeLimits
from echomq.flows import Flow, child, flow
from echomq.protocol.kin import MAX_CHILD_NAME
from echomq.queue import Queue
from echomq.results import JobHandle

KILL_AT: Final = 0.4
"""The part of the jobs that has ended when one worker is killed."""
_POLL: Final = 0.02
_SUMMED: Final = 30.0
"""Seconds that the sums may take when the last file is done."""
_FROZEN: Final = 0.05
"""Seconds that a frozen worker's last words may take to the server: a loopback takes well under a millisecond."""


@final
class DemoError(EchoMQError):
    """The demonstration itself came to grief: a worker that ended although nobody killed it."""


class Display(Protocol):
    """What shows how far it is."""

    def say(self, text: str) -> None:
        """Show a line."""

    def begin(self, what: str, total: int) -> None:
        """Begin a phase."""

    def advance(self) -> None:
        """One more is done."""


@final
@attrs.define
class Tally:
    """What came of it."""

    digests: dict[bytes, Digest] = attrs.field(factory=dict)
    """What the jobs found, by path."""
    failures: dict[bytes, str] = attrs.field(factory=dict)
    """Why there is no digest, by path."""
    mismatches: dict[bytes, str] = attrs.field(factory=dict)
    """What is wrong with a digest, by path."""
    killed: Worker | None = None
    """The worker that was killed; None when everything was done too soon."""
    held: frozenset[str] = frozenset()
    """The checksums that it held at that moment."""
    recovered: frozenset[str] = frozenset()
    """Those that needed more than one attempt, and have a result."""
    stalled: int = 0
    """Expired leases that the queue counted."""
    shares: dict[int, int] = attrs.field(factory=dict)
    """How many results came from each worker, by process id."""
    seconds: float = 0.0
    """From the first enqueue to the last result."""
    total: Sum | None = None
    """What the job at the top made of all directories; None when it came to nothing."""
    tree: FlowTree | None = None
    """The flow as it was then, cut to some of its jobs."""


async def run(listing: Listing, display: Display) -> Tally:
    """Make jobs of the files, have them worked off, kill a worker meanwhile, check every digest.

    Raises:
        DemoError: A worker ended that should not have.
        EchoMQError: The server cannot be started, or reached.

    Cancellation: at any moment; no process is left behind.
    """
    tally = Tally()
    if listing.files:
        async with open_server_async() as server, open_worker(server.url) as victim, open_worker(server.url) as other:
            jobs.app.url = server.url
            display.say(f"a private server on port {server.port}, and two workers: {victim.pid} and {other.pid}")
            async with jobs.app, _guard(victim, other):
                await victim.until_ready()
                await other.until_ready()
                await _work(listing, victim, tally, display)
        await _check(tally, display)
    return tally


@asynccontextmanager
async def _guard(*workers: Worker) -> AsyncIterator[None]:
    """Cancel the block and raise when a worker ends that nobody killed."""
    failure = ""

    async def watch(worker: Worker) -> None:
        nonlocal failure
        text = await worker.until_ended()
        if not worker.killed:
            failure = text
            tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        for worker in workers:
            tasks.start_soon(watch, worker)
        yield
        tasks.cancel_scope.cancel()
    if failure:
        raise DemoError(failure)


async def _work(listing: Listing, victim: Worker, tally: Tally, display: Display) -> None:
    app = jobs.app
    display.begin("jobs", len(listing.files))
    started = time.monotonic()
    flow_handle = await app.flows.add(_flow(listing))
    handles: list[JobHandle[Digest]] = [
        file.job for each in flow_handle.children.values() for file in each.children.values()
    ]
    paths = dict(zip((handle.id for handle in handles), _in_order(listing), strict=True))
    queue = app.queue(checksum.queue)
    recovered: set[str] = set()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_kill_in_the_middle, queue, victim, len(handles), tally, display)
        async for handle, outcome in app.results(handles):
            display.advance()
            if isinstance(outcome, EchoMQError):
                tally.failures[paths[handle.id]] = str(outcome)
                continue
            tally.digests[paths[handle.id]] = outcome
            tally.shares[outcome.worker] = tally.shares.get(outcome.worker, 0) + 1
            if outcome.attempt > 1:
                recovered.add(handle.id)
        try:
            tally.total = await flow_handle.result(timeout=_SUMMED)
        except (EchoMQError, TimeoutError) as error:
            display.say(f"the sum of the tree: {error}")
        tasks.cancel_scope.cancel()
    tally.seconds = time.monotonic() - started
    tally.tree = await app.flows.tree(flow_handle, limits=TreeLimits(depth=2, breadth=4))
    tally.recovered = frozenset(recovered)
    tally.stalled = (await queue.counts()).totals.get("stalled", 0)


def by_directory(listing: Listing) -> dict[str, list[bytes]]:
    """Answer the files of each directory, by a name that a child may have: its path from the root, where that is text."""
    found: dict[bytes, list[bytes]] = {}
    for path in listing.files:
        found.setdefault(os.path.dirname(path), []).append(path)  # noqa: PTH120 - in bytes
    named: dict[str, list[bytes]] = {}
    for number, (directory, files) in enumerate(found.items()):
        name = show(os.path.relpath(directory, listing.root))
        fits = name.isprintable() and len(os.fsencode(name)) <= MAX_CHILD_NAME
        named[name if fits and name not in named else f"./{number}"] = files  # as no path from the root begins
    return named


def _in_order(listing: Listing) -> list[bytes]:
    return [path for files in by_directory(listing).values() for path in files]


def _flow(listing: Listing) -> Flow:
    """Make a job of each file, one of each directory that waits for its files, and one that waits for all directories."""
    return flow(
        sum_tree.call(),
        {
            name: flow(sum_directory.call(), [child(checksum.call(path), on_failure="ignore") for path in files])
            for name, files in by_directory(listing).items()
        },
    )


async def _kill_in_the_middle(queue: Queue, victim: Worker, total: int, tally: Tally, display: Display) -> None:
    """Kill a worker once enough jobs have ended, and not before it holds some: it is frozen while that is looked at."""
    while True:
        now = await queue.counts()
        if now.done + now.dead >= KILL_AT * total:
            break
        await anyio.sleep(_POLL)
    while True:
        victim.freeze()
        await anyio.sleep(_FROZEN)
        held = await _held_by(queue, victim)
        if held:
            victim.kill()
            tally.killed, tally.held = victim, held
            display.say(f"worker {victim.pid} killed (SIGKILL); it held {len(held)} files, whose leases now run out")
            return
        victim.thaw()
        await anyio.sleep(_POLL)


async def _held_by(queue: Queue, worker: Worker) -> frozenset[str]:
    """Answer the checksums that a worker holds: those under claims of whoever noted that process id in a job."""
    active = [record for record, _ in (await queue.browse("active", count=256)).jobs if record.task == checksum.name]
    note = {"done": 0, "total": None, "message": f"in worker {worker.pid}"}
    clients = {r.holder.partition(".")[0] for r in active if r.progress == note}
    return frozenset(r.id for r in active if r.holder.partition(".")[0] in clients)


async def _check(tally: Tally, display: Display) -> None:
    """Compute every digest once more, here and without a queue."""
    display.begin("check", len(tally.digests))
    for path, digest in tally.digests.items():
        try:
            found = await anyio.to_thread.run_sync(_sha256, path)
        except OSError as error:
            tally.mismatches[path] = f"cannot be read any more: {error.strerror}"
        else:
            if found != (digest.sha256, digest.size):
                tally.mismatches[path] = (
                    f"{digest.sha256} ({digest.size} bytes) by the job, {found[0]} ({found[1]} bytes) here"
                )
        display.advance()


def _sha256(path: bytes) -> tuple[str, int]:
    digest, size = hashlib.sha256(), 0
    with open(path, "rb") as file:  # noqa: PTH123 - pathlib knows no names in bytes
        while chunk := file.read(1 << 20):
            digest.update(chunk)
            size += len(chunk)
    return digest.hexdigest(), size
