"""Who works on a queue: what the workers say of themselves every ten seconds."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, final

import attrs
import orjson

from echomq._walks import Ask, Walk
from echomq.protocol.times import from_unix_ms
from echomq.transitions import WorkerPage, read_workers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from echomq.protocol.keys import QueueKeys

PAGE: Final = 64
"""Workers that are read at once: each may tell of 64 jobs."""
MOST_PAGES: Final = 1024
DIGITS: Final = 14
"""Of a moment, in Unix ms: a longer number is none that a worker says."""


@final
@attrs.frozen(kw_only=True)
class RunningJob:
    """A job that a worker runs."""

    id: str
    """Its id."""
    task: str
    """Which handler; "" for a queue that has one."""
    attempt: int
    """Which attempt it is."""
    since: dt.datetime
    """When the worker got it, by the server's clock."""


@final
@attrs.frozen(kw_only=True)
class WorkerInfo:
    """A worker that is alive, as it was when it was last heard of. Workers that share one client are seen as one."""

    name: str
    """Its name: the option `name`, host and process id unless told otherwise."""
    client: str
    """Its client's tag, which the server's CLIENT LIST shows, too."""
    host: str
    """Its machine."""
    pid: int
    """Its process."""
    since: dt.datetime
    """When it began to work, by the server's clock."""
    seen: dt.datetime
    """When it was last heard of: every 10 seconds; after 30 it is no longer listed."""
    concurrency: int
    """How many jobs it runs at most, of all its queues together."""
    running: int
    """How many jobs of this queue it runs."""
    jobs: tuple[RunningJob, ...]
    """Those of them that have run for longest, 64 at most."""

    @classmethod
    def of(cls, tag: str, said: Mapping[bytes, bytes]) -> Self:
        """Read what a worker said; what is not there, or is no number, is empty or 0."""
        beat = _number(said.get(b"beat"))
        return cls(
            name=_text(said.get(b"name")),
            client=tag,
            host=_text(said.get(b"host")),
            pid=_number(said.get(b"pid")),
            since=from_unix_ms(_number(said.get(b"since"))),
            seen=from_unix_ms(beat),
            concurrency=_number(said.get(b"concurrency")),
            running=_number(said.get(b"running")),
            jobs=tuple(
                RunningJob(id=id, task=task, attempt=attempt, since=from_unix_ms(max(0, beat - ms)))
                for id, task, attempt, ms in _jobs(said.get(b"jobs"))
            ),
        )


class KnownQueue(NamedTuple):
    """A queue that was used: `for name, used_at in await client.queues()`."""

    name: str
    """Its name."""
    used_at: dt.datetime
    """When a client or worker last said that it uses it (its first enqueue, and hourly), by the clock of its machine."""


def workers_walk(keys: QueueKeys) -> Walk[list[WorkerInfo]]:
    """Read all workers of a queue, by name."""
    found: dict[str, WorkerInfo] = {}
    for page in range(MOST_PAGES):
        read: WorkerPage = yield Ask(
            lambda call, page=page: read_workers(keys, call, offset=page * PAGE, count=PAGE)  # type: ignore[misc]
        )
        found |= {tag: WorkerInfo.of(tag, said) for tag, said in read.workers if tag not in found}
        if read.examined < PAGE:
            break
    return sorted(found.values(), key=lambda worker: (worker.name, worker.client))


def known_of(reply: Any) -> list[KnownQueue]:
    """Read the server's answer, in pairs or flat, those used last first."""
    pairs = reply if not reply or isinstance(reply[0], list) else zip(reply[::2], reply[1::2], strict=True)
    return [KnownQueue(_text(name), from_unix_ms(round(float(at)))) for name, at in pairs]


def _text(value: bytes | None) -> str:
    return (value or b"").decode("utf-8", "replace")


def _number(value: bytes | None) -> int:
    return int(value) if value is not None and value.isdigit() and len(value) <= DIGITS else 0


def _jobs(value: bytes | None) -> list[tuple[str, str, int, int]]:
    try:
        return [(str(id), str(task), int(attempt), int(ms)) for id, task, attempt, ms in orjson.loads(value or b"[]")]
    except (TypeError, ValueError):  # written by hand, or by what is newer
        return []
