"""What is done with a schedule in more than one call: walks (`echomq._walks`), for both clients."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, Literal

from echomq._definitions import Definition, slot_after
from echomq._items import MINTS
from echomq._walks import Ask, Once, Walk
from echomq.errors import (
    InvalidJobError,
    JobNotFoundError,
    JobStateError,
    ScheduleNotFoundError,
    ServerError,
)
from echomq.protocol.ids import mint
from echomq.protocol.refusals import COLLISION, GONE, OK, STALE, Verdict
from echomq.recurrence import Recurrence, UnreadableSpecError
from echomq.transitions import read_schedules
from echomq.transitions.schedule_fire import Firing, schedule_fire
from echomq.transitions.schedule_pause import schedule_pause

if TYPE_CHECKING:
    from echomq.protocol.keys import QueueKeys
    from echomq.transitions.schedules import ScheduleState

DefineOutcome = Literal["created", "changed", "same"]
"""What a definition did; `same`: nothing, it stood there so already."""

TRIES: Final = 8
"""Times a slot is looked for, when the one found was over before the server got it, or another definition came between."""


def put_walk(keys: QueueKeys, definition: Definition, *, origin: str) -> Walk[DefineOutcome]:
    """Define a schedule. What stands there already is only read: eight workers that start change nothing."""
    page = yield Ask(partial(read_schedules, keys, names=[definition.name]))
    made = 0
    for stands in page.schedules:
        if stands.digest == definition.digest and origin in {"", stands.origin}:
            return "same"
        made = stands.count
    now_ms, job = page.now_ms, definition.make()
    for _ in range(TRIES):
        reply = yield Ask(partial(definition.put, keys, job=job, origin=origin, now_ms=now_ms, made=made))
        if reply.outcome != "stale":
            outcome: DefineOutcome = reply.outcome
            return outcome
        now_ms = reply.now_ms
    raise ServerError(
        STALE, f"schedule {definition.name!r}: {TRIES} slots in a row were over before the server got them"
    )


def pause_walk(keys: QueueKeys, name: str) -> Walk[bool]:
    """Let a schedule rest. Answers whether this did it."""
    verdict = yield Ask(partial(schedule_pause, keys, name=name, paused=True))
    return _changed(verdict, name, keys)


def resume_walk(keys: QueueKeys, name: str) -> Walk[bool]:
    """Let a schedule go on at its next slot. Answers whether this did it."""
    for _ in range(TRIES):
        state, now_ms = yield from _read(keys, name)
        try:
            slot_ms = slot_after(Recurrence.parse(state.spec), now_ms, state.count, state.moved_ms)
        except UnreadableSpecError as error:
            raise InvalidJobError(
                f"schedule {name!r} is defined in a way that this version cannot read: {error}"
            ) from None
        again = partial(schedule_pause, keys, name=name, paused=False, digest=state.digest, slot_ms=slot_ms)
        verdict = yield Ask(again)
        if verdict.code != STALE:
            return _changed(verdict, name, keys)
    raise ServerError(STALE, f"schedule {name!r} changed {TRIES} times meanwhile")


def run_now_walk(keys: QueueKeys, name: str) -> Walk[str]:
    """Make a job of a schedule now. Answers its id."""
    state, now_ms = yield from _read(keys, name)
    for _ in range(MINTS):
        id = mint()
        firing = Firing(id=id, slot_ms=now_ms, due_ms=0)
        try:
            fire = partial(schedule_fire, keys, name=name, digest=state.digest, slot_ms=0, next_ms=0, firings=[firing])
            verdicts = yield Once("schedule_fire", fire)
        except JobNotFoundError:
            raise ScheduleNotFoundError(name, keys.queue) from None
        except JobStateError as error:
            if not error.actual.startswith(COLLISION):
                raise
            continue  # another producer's
        if not verdicts[0].ok:
            raise verdicts[0].error(id=id, queue=keys.queue) or ServerError(str(verdicts[0]))
        return id
    raise InvalidJobError(f"schedule {name!r}: {MINTS} ids in a row were taken")


def _read(keys: QueueKeys, name: str) -> Walk[tuple[ScheduleState, int]]:
    page = yield Ask(partial(read_schedules, keys, names=[name]))
    if not page.schedules:
        raise ScheduleNotFoundError(name, keys.queue)
    return page.schedules[0], page.now_ms


def _changed(verdict: Verdict, name: str, keys: QueueKeys) -> bool:
    if verdict.code == GONE:
        raise ScheduleNotFoundError(name, keys.queue)
    error = verdict.error(queue=keys.queue)
    if error is not None:
        raise error
    return verdict.code == OK
