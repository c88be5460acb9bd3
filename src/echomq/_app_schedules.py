"""The schedules that a program declares, and how they get to the server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, final

import anyio
import attrs

from echomq._definitions import Definition, define
from echomq._logs import Told, get_logger
from echomq._schedule_steps import put_walk
from echomq._walks import drive
from echomq.schedules import was_removed
from echomq.tasks import JobCall
from echomq.transitions import Call, schedule_remove

if TYPE_CHECKING:
    from echomq.app import App
    from echomq.queue import Queue
    from echomq.recurrence import Recurrence
    from echomq.transitions.schedules import Overlap

FIRST_PAUSE: float = 0.5
LONGEST_PAUSE: float = 30.0
"""Seconds until schedules that could not be defined are tried again: doubling from the first to the longest."""
PASSES: Final = 10
"""Times a queue is looked through for schedules to remove: one that moved meanwhile may have been missed."""
_ORIGIN: Final = re.compile(r"[A-Za-z0-9._:-]{0,128}")
_log = get_logger("echomq.client")


def check_origin(origin: str) -> str:
    """Answer the name if an app may sign its schedules with it; "" is none.

    Raises:
        ValueError: More than 128, or others than `A-Z a-z 0-9 . _ : -`.
    """
    return "" if origin == "" else _check_text(origin)


def _check_text(origin: Any) -> str:
    if not isinstance(origin, str) or _ORIGIN.fullmatch(origin) is None:
        raise ValueError(f"an app's origin is up to 128 of A-Z a-z 0-9 . _ : -, not {origin!r}")
    return origin


@final
@attrs.frozen(kw_only=True)
class Synced:
    """What `app.schedules.sync` did, by the schedules' names."""

    created: tuple[str, ...]
    """Those that were not there."""
    changed: tuple[str, ...]
    """Those that were defined otherwise."""
    same: tuple[str, ...]
    """Those that stood there so already."""
    removed: tuple[str, ...]
    """Those of this app's origin that it no longer declares; none unless `prune` was asked for."""


@final
@attrs.frozen
class _Declared:
    name: str
    call: JobCall[Any]
    recurrence: Recurrence
    overlap: Overlap

    def define(self) -> Definition:
        return define(self.name, self.call, self.recurrence, overlap=self.overlap)


@final
class AppSchedules:
    """The schedules of an app: those declared by `app.schedule`, by name."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._declared: dict[str, _Declared] = {}

    def __len__(self) -> int:
        """Answer how many are declared."""
        return len(self._declared)

    def __iter__(self) -> Iterator[str]:
        """Go through the names of those that are declared."""
        return iter(self._declared)

    def declare(self, name: str, call: Any, recurrence: Recurrence, *, overlap: Overlap) -> None:
        """Note one. See `App.schedule`."""
        if not isinstance(call, JobCall):
            raise TypeError(
                f"schedule {name!r}: what it enqueues is a call of a task, such as report.call(), not {call!r}"
            )
        declared = _Declared(name, call, recurrence, overlap)
        declared.define()
        if name in self._declared:
            raise ValueError(f"the schedule {name!r} is declared twice: each needs a name of its own")
        self._declared[name] = declared

    async def sync(self, *, prune: bool = False) -> Synced:
        """Define on the server what is declared here. What stands there so already is left alone.

        Args:
            prune: Remove the schedules of this app's `origin` that it no longer declares, from all queues that its tasks
                and schedules use. Those that others defined, by hand or in other programs, stay.

        Raises:
            ValueError: `prune`, and the app has no origin: nobody could tell its schedules from others.
            EchoMQError: As `Schedules.put`. Those before it are defined.
            RuntimeError: The app is not open.

        Cancellation: a checkpoint; some may be defined or removed.
        Delivery: may be repeated, by any number of processes.
        """
        if prune and not self._app.origin:
            raise ValueError('name the app, as in App(origin="billing"): pruning removes what has its origin')
        outcomes: dict[str, list[str]] = {"created": [], "changed": [], "same": []}
        for declared in self._declared.values():
            outcomes[await self._put(declared)].append(declared.name)
        removed: list[str] = []
        if prune:
            used = [*self._app.queues, *(each.call.queue for each in self._declared.values())]
            for name in dict.fromkeys(used):
                removed += await self._prune(self._app.queue(name))
        return Synced(**{word: tuple(names) for word, names in outcomes.items()}, removed=tuple(removed))

    async def keep_trying(self) -> None:
        """Define on the server what is declared here, however long it is away: for a worker that starts.

        Each by itself, so that one that is refused keeps no other back.
        """
        left, told, pause = list(self._declared.values()), Told(), FIRST_PAUSE
        while left:
            failed: list[_Declared] = []
            for declared in left:
                try:
                    await self._put(declared)
                except Exception as error:  # noqa: BLE001 - middleware is the user's; the worker has other work
                    failed.append(declared)
                    if told.is_new(str(error), declared.name):
                        _log.warning(
                            "schedule_not_defined", schedule=declared.name, queue=declared.call.queue, error=str(error)
                        )
            left = failed
            if left:
                await anyio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)

    async def _put(self, declared: _Declared) -> str:
        queue = self._app.queue(declared.call.queue)
        outcome = await drive(queue, put_walk(queue.keys, declared.define(), origin=self._app.origin))
        if outcome != "same":
            _log.info("schedule_defined", schedule=declared.name, queue=queue.name, outcome=outcome)
        return outcome

    async def _prune(self, queue: Queue) -> list[str]:
        mine = {each.name for each in self._declared.values() if each.call.queue == queue.name}
        removed: list[str] = []
        for _ in range(PASSES):
            found = [each.name async for each in queue.schedules if each.origin == self._app.origin]
            gone = [name for name in found if name not in mine]
            if not gone:
                break
            for name in gone:
                verdict = await queue.wire.run(schedule_remove(queue.keys, Call(queue.wire.tag), name=name))
                if was_removed(verdict, queue.name):
                    removed.append(name)
                    _log.info("schedule_removed", schedule=name, queue=queue.name)
        return removed
