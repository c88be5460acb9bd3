"""What a job costs the server with ever more jobs in the queue.

Theory of operation
    Each backlog has a private server of its own, all at the same time: a small queue on a server that also holds
    millions of rows would be measured with their cache misses. The backlogs are made once; then each in turn is
    measured, for some rounds, in an order that changes: all sizes see the same machine in the same minutes.

    A measurement enqueues a few hundred jobs and drains as many, again and again, so that the backlog keeps its size.
    Calls are made by the bare link of the ceiling, one after the other: the server's CPU is measured, not the client.

    Any server is slower with a million keys than with a thousand that fit its processor's caches. So the same row and
    the same place in the same queue are also written, and read and removed, by plain commands without any script: what
    grows there as well is the server's own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, final

import attrs

from benchmarks.ceiling_side import LEASE_MS, TAG, Link, Template, connect
from benchmarks.workload import KEYS
from echomq.transitions import Call, claim
from echomq.transitions.scripts import load

PER_CALL = 100
CHUNK = 500
"""Jobs enqueued before as many are drained: the most that a backlog grows while it is measured."""
BYTES_A_JOB = 400
"""Memory that a queued job of 64 bytes needs at most, about."""
AHEAD_MS = 365 * 24 * 3600 * 1000
"""How far ahead scheduled jobs are due."""

_ITEM = [text.split()[0] for text in load("enqueue").header.item]
_DUE = _ITEM.index("due")
_FIELDS = _ITEM.index("fields") + 1
PHASES = {
    "enqueue": "enqueue",
    "drain": "claim and complete",
    "plain_put": "plain ZADD and HSET",
    "plain_take": "plain HGETALL, DEL and ZREM",
}
PLAIN = {"enqueue": "plain_put", "drain": "plain_take"}
"""What of a phase is the server's own."""


@attrs.frozen
class Backlog:
    """What lies in a queue while others are enqueued and drained."""

    pending: int
    schedule: int = 0

    @property
    def title(self) -> str:
        return f"{self.pending:,} queued" + (f", {self.schedule:,} scheduled" if self.schedule else "")


def backlogs(smallest: int, largest: int) -> list[Backlog]:
    """Choose them: each ten times the last, up to the largest; and the smallest with the largest in the schedule."""
    sizes = [smallest]
    while sizes[-1] * 10 < largest:
        sizes.append(sizes[-1] * 10)
    if largest > smallest:
        sizes.append(largest)
    return [*map(Backlog, sizes), Backlog(smallest, largest)]


def memory_needed(chosen: list[Backlog]) -> int:
    """Answer about how many bytes the servers will take."""
    return sum(each.pending + each.schedule for each in chosen) * BYTES_A_JOB


def memory_free() -> int | None:
    """Answer how many bytes may still be taken here, None if nobody tells: Linux only, containers included."""
    found: list[int] = []
    meminfo, group = Path("/proc/meminfo"), Path("/sys/fs/cgroup")
    if meminfo.exists():
        fields = dict(line.split(":", 1) for line in meminfo.read_text().splitlines() if ":" in line)
        found.append(int(fields["MemAvailable"].split()[0]) * 1024)
    limit, used = group / "memory.max", group / "memory.current"
    if limit.exists() and used.exists() and (text := limit.read_text().strip()) != "max":
        found.append(int(text) - int(used.read_text()))
    return min(found, default=None)


@final
class Queue:
    """A queue on a server of its own, driven by bare calls."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._template = Template()
        self._claim_tail = claim(KEYS, Call(TAG), count=1, lease_ms=LEASE_MS).argv[3:]
        self._number = 0

    def _command(self, verb: str, *arguments: Any) -> tuple[Any, ...]:
        self._number += 1
        return ("EVALSHA", load(verb).sha, 2, KEYS.meta, KEYS.void, TAG, self._number, *arguments)

    def _enqueue(self, count: int, at_ms: int = 0) -> tuple[Any, ...]:
        items: list[Any] = []
        for number in range(count):
            item = self._template.make(number)
            if at_ms:
                item[_DUE] = at_ms + number
            items += item
        return self._command("enqueue", *items)

    async def fill(self, backlog: Backlog, advance: Callable[[int], object]) -> None:
        """Enqueue what it is to hold, the next call made while the server does the last one."""
        due = int(time.time() * 1000) + AHEAD_MS
        waiting = 0
        for total, first_due in ((backlog.pending, 0), (backlog.schedule, due)):
            for first in range(0, total, PER_CALL):
                count = min(PER_CALL, total - first)
                await self._link.send(self._enqueue(count, first_due + first if first_due else 0))
                advance(count)
                if waiting:
                    await self._link.reply()
                waiting = 1
        if waiting:
            await self._link.reply()
        await self.check(backlog)

    async def check(self, backlog: Backlog) -> None:
        """See that it holds what it should."""
        names = (KEYS.pending, KEYS.active, KEYS.schedule)
        found = [await self._link.call("ZCARD", name) for name in names]
        if found != [backlog.pending, 0, backlog.schedule]:
            raise RuntimeError(f"pending, active and schedule hold {found}, not {backlog}")

    async def _cpu(self) -> float:
        text: bytes = await self._link.call("INFO", "cpu")
        fields = dict(line.split(b":", 1) for line in text.splitlines() if b":" in line)
        return float(fields[b"used_cpu_user"]) + float(fields[b"used_cpu_sys"])

    async def _drain(self, jobs: int) -> None:
        while jobs:
            command = self._command("claim", min(jobs, PER_CALL), *self._claim_tail)
            claimed = (await self._link.call(*command))[3:]
            nonce = f"{TAG}.{self._number}"
            items: list[Any] = []
            for id, token, _row in claimed:
                items += (id, token, nonce, b"", b"")
            await self._link.call(*self._command("complete", *items))
            jobs -= len(claimed)

    async def _together(self, commands: list[tuple[Any, ...]]) -> None:
        await self._link.send(*commands)
        for _ in commands:
            await self._link.reply()

    async def _plain_put(self, jobs: int) -> None:
        now = int(time.time() * 1000)
        for first in range(0, jobs, PER_CALL):
            commands: list[tuple[Any, ...]] = []
            for number in range(first, min(first + PER_CALL, jobs)):
                id, *item = self._template.make(number)
                row = ("state", "pending", "since", now, "by", TAG, *item[_FIELDS - 1 :])
                commands += [("ZADD", KEYS.pending, 0, id), ("HSET", KEYS.job(id), *row)]
            await self._together(commands)

    async def _plain_take(self, jobs: int) -> None:
        for first in range(0, jobs, PER_CALL):
            ids = await self._link.call("ZRANGE", KEYS.pending, 0, min(PER_CALL, jobs - first) - 1)
            keys = [(id, KEYS.job(id.decode())) for id in ids]
            await self._together(
                [
                    command
                    for id, key in keys
                    for command in (("HGETALL", key), ("DEL", key), ("ZREM", KEYS.pending, id))
                ]
            )

    async def _put(self, jobs: int) -> None:
        for first in range(0, jobs, PER_CALL):
            await self._link.call(*self._enqueue(min(PER_CALL, jobs - first)))

    async def measure(self, jobs: int) -> dict[str, float]:
        """Enqueue and drain so many; answer the server's CPU for one of them, us."""
        spent = dict.fromkeys(PHASES, 0.0)
        work = zip(PHASES, (self._put, self._drain, self._plain_put, self._plain_take), strict=True)
        phases = list(work)
        for first in range(0, jobs, CHUNK):
            for name, phase in phases:
                began = await self._cpu()
                await phase(min(CHUNK, jobs - first))
                spent[name] += await self._cpu() - began
        return {name: seconds / jobs * 1e6 for name, seconds in spent.items()}


def orders(chosen: list[Backlog], rounds: int) -> Iterator[list[Backlog]]:
    """Answer the order of each round: another one begins each time, and every other goes down."""
    for number in range(rounds):
        at = number % len(chosen)
        order = chosen[at:] + chosen[:at]
        yield order if number % 2 == 0 else order[::-1]


async def measure(
    urls: dict[Backlog, str], jobs: int, rounds: int, advance: Callable[[int], object]
) -> list[dict[str, dict[str, float]]]:
    """Fill the servers' queues, then measure each in every round."""
    queues: dict[Backlog, Queue] = {}
    for backlog, url in urls.items():
        queues[backlog] = Queue(await connect(url))
        await queues[backlog].fill(backlog, advance)
        await queues[backlog].measure(PER_CALL)  # warm
    found = []
    for order in orders(list(urls), rounds):
        this = {}
        for backlog in order:
            this[backlog.title] = await queues[backlog].measure(jobs)
            await queues[backlog].check(backlog)
            advance(jobs)
        found.append(this)
    return found
