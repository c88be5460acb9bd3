"""The timetable: fires the recurring schedules whose slots have come (Protocol, section 5).

Theory of operation
    Every worker may fire every schedule of its queues, and none is the leader. A claim's reply says that a slot has
    come; then this worker reads the schedules that are due, finds out which of their slots make a job and which slot is
    next, by the server's clock, and fires them: a compare-and-set on the slot, so that of all workers that try one
    makes the job. Should that one die before, the next claim of any worker says again that the slot has come. A worker
    whose slots are all taken claims nothing, so there is a round every few seconds besides.

    Tests move schedules (`moved_ms`): the rule is then asked in the moved time, in which its jobs have their slots, and
    what the server is told of, next slot and due, is in its own.

    What cannot be fired stays due, and every claim would say so. So a queue that refuses is left alone for a while, and
    one that has nothing to fire but what cannot be read is looked at once a second at most.

If you change this
    A schedule may be anything: of a newer version, torn, changed by hand. None may keep the others back, end the worker,
    or be tried without a pause.
"""

from __future__ import annotations

import math
import random
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, final

import anyio
import attrs

from echomq._items import MINTS, taken
from echomq._logs import Told, get_logger
from echomq.errors import EchoMQError, InvalidJobError, JobNotFoundError, JobStateError, QueueFullError, ServerError
from echomq.protocol.ids import mint
from echomq.protocol.refusals import COLLISION, STALE
from echomq.protocol.times import from_unix_ms
from echomq.recurrence import Recurrence, UnreadableSpecError
from echomq.transitions import Call, Firing, read_schedules, schedule_fire
from echomq.transitions.schedules import ENDED
from echomq.worker.pauses import backoff
from echomq.worker.signals import Signal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from echomq.transitions import SchedulePage, ScheduleState, Transition
    from echomq.worker.calls import QueueCalls

EVERY: float = 5.0
"""Seconds between two rounds that nobody asked for, shortened by up to a half so that workers do not go in step."""
PAGE: Final = 100
"""Schedules read and fired at once."""
PAGES: Final = 20
"""Pages of one round at most; what is left is told by the next claim."""
STALES: Final = 10
"""Times a schedule is fired with a fresh look at it, when it was defined anew meanwhile, or the slot after it was over
before the server heard of it: with programs that define it a hundred times a second, several times in a row."""
BACKOFF_FIRST: float = 0.1
BACKOFF_CAP: float = 5.0
"""Seconds for which a queue is left alone that refuses: doubling from the first to the cap, with jitter."""
QUIET_FIRST: float = 0.05
QUIET_CAP: float = 1.0
"""The same of a queue where nothing that is due can be fired. One where nothing is due, whatever claims say (others were
there first, or a definition has lost its row), is left alone for the first of the two only."""

_Answer = Literal["over", "left", "refused"]
"""What became of a schedule that was due. `over`: it waits no more, by us or by somebody else. `left`: it waits, and the
others have nothing to do with that. `refused`: the queue takes none."""
_OF_ONE: Final = (ServerError, InvalidJobError)
"""Errors, exactly of these types, that the schedule itself may be to blame for."""

_log = get_logger("echomq.worker")


@final
@attrs.define(eq=False)
class _Line:
    """One queue's rounds."""

    calls: QueueCalls
    called: bool = False
    """Whether a claim said that a slot has come, since the last round."""
    until: float = 0.0
    """Until when it is left alone, on anyio's clock."""
    failures: int = 0
    """How many rounds in a row the queue has refused to fire something."""
    idle: int = 0
    """How many rounds in a row nothing was fired of what is due."""
    empty: int = 0
    """How many rounds in a row nothing was due although a claim had said so."""
    told: Told = attrs.field(factory=Told)
    unreadable: dict[str, str] = attrs.field(factory=dict)
    """The definitions that cannot be read, by schedule: each is told of once."""

    def wanted_at(self) -> float:
        """Answer when it is to be looked at, on anyio's clock."""
        return self.until if self.called else math.inf


@final
class Timetable:
    """Fires the schedules of some queues."""

    def __init__(self, queues: Iterable[QueueCalls]) -> None:
        self._lines = {calls: _Line(calls) for calls in queues}
        self._signal = Signal()
        self._random = random.Random()

    def slot_came(self, calls: QueueCalls) -> None:
        """Look at a queue's schedules: a claim said that a slot has come."""
        self._lines[calls].called = True
        self._signal.send()

    async def run(self) -> None:
        """Fire what is due, when called and every few seconds. Runs until cancelled."""
        while True:
            now = anyio.current_time()
            usual = now + EVERY * self._random.uniform(0.5, 1.0)
            while (now := anyio.current_time()) < usual:
                soonest = min(line.wanted_at() for line in self._lines.values())
                if soonest > now:
                    with anyio.move_on_after(min(usual, soonest) - now):
                        await self._signal.wait()
                    continue
                for line in self._lines.values():
                    if line.wanted_at() <= anyio.current_time():
                        await self._round(line)
            for line in self._lines.values():
                if line.until <= anyio.current_time():
                    await self._round(line)

    async def _round(self, line: _Line) -> None:
        """Fire what is due in one queue, and decide for how long it is left alone."""
        called, line.called = line.called, False
        fired, found, refused = 0, 0, False
        try:
            offset = 0
            for _ in range(PAGES):
                page = await self._read(
                    line, read_schedules(line.calls.keys, self._call(line), offset=offset, count=PAGE, due=True)
                )
                done, refused = await self._fire_page(line, page)
                fired, found = fired + done, found + len(page.schedules)
                # What could not be fired still stands before the others.
                offset += len(page.schedules) - done
                if refused or len(page.schedules) < PAGE:
                    break
            line.told.over()
        except EchoMQError as error:
            refused = True
            if line.told.is_new(str(error)):
                _log.warning("schedules_not_read", queue=line.calls.queue, error=str(error))
        line.failures = line.failures + 1 if refused else 0
        line.idle = line.idle + 1 if found and not fired else 0
        line.empty = line.empty + 1 if called and not found else 0
        pause = 0.0
        if refused:
            pause = backoff(line.failures, BACKOFF_FIRST, BACKOFF_CAP, self._random)
        elif line.idle > 0:
            pause = backoff(line.idle, QUIET_FIRST, QUIET_CAP, self._random)
        elif line.empty > 1:
            pause = backoff(1, QUIET_FIRST, QUIET_CAP, self._random)
        line.until = anyio.current_time() + pause

    async def _fire_page(self, line: _Line, page: SchedulePage) -> tuple[int, bool]:
        """Fire the schedules of a page, side by side. Answers how many no longer wait, and whether one was refused."""
        answers: list[_Answer] = []

        async def one(state: ScheduleState) -> None:
            answers.append(await self._fire_one(line, state, page.now_ms))

        async with anyio.create_task_group() as tasks:
            for state in page.schedules:
                tasks.start_soon(one, state)
        return answers.count("over"), "refused" in answers

    async def _fire_one(self, line: _Line, state: ScheduleState, now_ms: int) -> _Answer:
        """Fire one schedule; whatever becomes of it is no error here."""
        slot_ms, ahead_ms = state.slot_ms, 0
        try:
            for _ in range(STALES):
                began = anyio.current_time()
                firings, next_ms, passed = self._plan(state, now_ms, ahead_ms)
                if await self._fire(line, state, firings, next_ms):
                    if passed:
                        since = from_unix_ms(state.slot_ms).isoformat()
                        _log.warning(
                            "slots_missed", schedule=state.name, queue=line.calls.queue, since=since, jobs=len(firings)
                        )
                    line.unreadable.pop(state.name, None)
                    line.told.over(state.name)
                    return "over"
                # Somebody else was there first; or we were slow, and the slot after it is over as well.
                again = await self._read(line, read_schedules(line.calls.keys, self._call(line), names=[state.name]))
                if not again.schedules or again.schedules[0].slot_ms != slot_ms or again.schedules[0].paused_ms:
                    return "over"
                state, now_ms = again.schedules[0], again.now_ms
                ahead_ms = 2 * round((anyio.current_time() - began) * 1000)
            raise ServerError(STALE, "each slot found was over before the server got it")
        except UnreadableSpecError as error:
            if line.unreadable.get(state.name) != state.digest:
                line.unreadable[state.name] = state.digest
                _log.error("schedule_unreadable", schedule=state.name, queue=line.calls.queue, error=str(error))
            return "left"
        except EchoMQError as error:
            if line.told.is_new(str(error), state.name):
                _log.warning("schedule_not_fired", schedule=state.name, queue=line.calls.queue, error=str(error))
            return "left" if type(error) in _OF_ONE else "refused"

    def _plan(self, state: ScheduleState, now_ms: int, ahead_ms: int) -> tuple[list[Firing], int, bool]:
        """Answer the jobs to make, the next slot, and whether slots were passed over that make none.

        Raises:
            UnreadableSpecError: The schedule is not one that this version can fire.
        """
        if not state.digest or not ENDED < state.slot_ms <= now_ms:
            raise UnreadableSpecError(f"it is torn: it is due, and stands at slot {state.slot_ms}")
        recurrence, moved_ms = Recurrence.parse(state.spec), state.moved_ms
        try:
            due = recurrence.due(state.slot_ms + moved_ms, now_ms + moved_ms, made=state.count, ahead_ms=ahead_ms)
        except Exception as error:  # whatever it is: it concerns no other schedule
            raise UnreadableSpecError(f"its slots cannot be found: {error!r}") from error
        # Where a slot may make no job, it is not known yet whether these are the last: the next slot says it.
        made = state.count + len(due.slots) if state.overlap == "allow" else state.count
        next_ms = ENDED if due.next_ms is None or recurrence.is_over(made) else due.next_ms - moved_ms
        jitter_ms = recurrence.jitter_ms
        return (
            [
                Firing(id=mint(), slot_ms=slot, due_ms=slot - moved_ms + round(self._random.uniform(0, jitter_ms)))
                for slot in due.slots
            ],
            next_ms,
            due.passed,
        )

    async def _fire(self, line: _Line, state: ScheduleState, firings: list[Firing], next_ms: int) -> bool:
        """Fire the slot at which the schedule stands; False: it stands there no more, or the next slot is over too."""
        for _ in range(MINTS):
            fire = partial(
                schedule_fire, line.calls.keys, name=state.name, digest=state.digest, slot_ms=state.slot_ms,
                next_ms=next_ms, firings=firings,
            )  # fmt: skip
            try:
                await line.calls.wire.remembered(line.calls.keys, fire, verb="schedule_fire", route="bulk")
            except JobNotFoundError:
                return False
            except JobStateError as error:
                if not error.actual.startswith(COLLISION):
                    raise
                firings = [attrs.evolve(each, id=mint()) for each in firings]
            except QueueFullError as error:
                # Of more jobs than it may ever hold, the latest. Else it is waited for until they fit.
                most = int(error.detail) if error.detail.isdigit() else 0
                if not 0 < most < len(firings):
                    raise
                firings = firings[-most:]
            except ServerError as error:
                if error.code != STALE:
                    raise
                return False
            else:
                return True
        raise taken(firings[0].id)

    async def _read(self, line: _Line, call: Transition[SchedulePage]) -> SchedulePage:
        return await line.calls.wire.run(call, route="bulk")

    def _call(self, line: _Line) -> Call:
        return Call(line.calls.wire.tag)
