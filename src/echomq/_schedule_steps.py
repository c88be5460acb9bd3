"""What is done with a schedule in more than one call: decided here, without I/O, for both clients and the worker.

A *course* yields transitions, is sent their values, is thrown the errors they met, and returns what came of it.
`follow` runs one with an asynchronous client, `follow_sync` with a blocking one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from echomq._definitions import Definition, slot_after
from echomq._items import MINTS
from echomq.errors import (
    EchoMQError,
    InvalidJobError,
    JobNotFoundError,
    JobStateError,
    ScheduleNotFoundError,
    ServerError,
)
from echomq.protocol.ids import mint
from echomq.protocol.refusals import COLLISION, GONE, OK, STALE, Verdict
from echomq.recurrence import Recurrence, UnreadableSpecError
from echomq.transitions import Call, Transition, read_job, read_schedules
from echomq.transitions.schedule_fire import Firing, schedule_fire
from echomq.transitions.schedule_pause import schedule_pause

if TYPE_CHECKING:
    from echomq.protocol.keys import QueueKeys
    from echomq.transitions.schedules import ScheduleState

T = TypeVar("T")
Course = Generator[Transition[Any], Any, T]
DefineOutcome = Literal["created", "changed", "same"]
"""What a definition did; `same`: nothing, it stood there so already."""

TRIES: Final = 8
"""Times a slot is looked for, when the one found was over before the server got it, or another definition came between."""


async def follow(course: Course[T], run: Callable[[Transition[Any]], Awaitable[Any]]) -> T:
    """Run a course to its end, and answer what came of it; what it raises is raised."""
    try:
        transition = next(course)
        while True:
            try:
                value = await run(transition)
            except EchoMQError as error:
                transition = course.throw(error)
            else:
                transition = course.send(value)
    except StopIteration as over:
        result: T = over.value
        return result
    finally:
        course.close()


def follow_sync(course: Course[T], run: Callable[[Transition[Any]], Any]) -> T:
    """Run a course to its end, and answer what came of it; what it raises is raised."""
    try:
        transition = next(course)
        while True:
            try:
                value = run(transition)
            except EchoMQError as error:
                transition = course.throw(error)
            else:
                transition = course.send(value)
    except StopIteration as over:
        result: T = over.value
        return result
    finally:
        course.close()


def put_course(keys: QueueKeys, call: Call, definition: Definition, *, origin: str) -> Course[DefineOutcome]:
    """Define a schedule. What stands there already is only read: eight workers that start change nothing."""
    page = yield read_schedules(keys, call, names=[definition.name])
    made = 0
    for stands in page.schedules:
        if stands.digest == definition.digest:
            return "same"
        made = stands.count
    now_ms = page.now_ms
    for _ in range(TRIES):
        reply = yield definition.put(keys, call, origin=origin, now_ms=now_ms, made=made)
        if reply.outcome != "stale":
            outcome: DefineOutcome = reply.outcome
            return outcome
        now_ms = reply.now_ms
    raise ServerError(
        STALE, f"schedule {definition.name!r}: {TRIES} slots in a row were over before the server got them"
    )


def pause_course(keys: QueueKeys, call: Call, name: str) -> Course[bool]:
    """Let a schedule rest. Answers whether this did it."""
    verdict = yield schedule_pause(keys, call, name=name, paused=True)
    return _changed(verdict, name, keys)


def resume_course(keys: QueueKeys, call: Call, name: str) -> Course[bool]:
    """Let a schedule go on at its next slot. Answers whether this did it."""
    for _ in range(TRIES):
        state, now_ms = yield from _read(keys, call, name)
        try:
            slot_ms = slot_after(Recurrence.parse(state.spec), now_ms, state.count)
        except UnreadableSpecError as error:
            raise InvalidJobError(
                f"schedule {name!r} is defined in a way that this version cannot read: {error}"
            ) from None
        verdict = yield schedule_pause(keys, call, name=name, paused=False, digest=state.digest, slot_ms=slot_ms)
        if verdict.code != STALE:
            return _changed(verdict, name, keys)
    raise ServerError(STALE, f"schedule {name!r} changed {TRIES} times meanwhile")


def run_now_course(keys: QueueKeys, call: Call, name: str) -> Course[str]:
    """Make a job of a schedule now. Answers its id."""
    state, now_ms = yield from _read(keys, call, name)
    for _ in range(MINTS):
        id = mint()
        firing = Firing(id=id, slot_ms=now_ms, due_ms=0)
        try:
            verdicts = yield schedule_fire(
                keys, call, name=name, digest=state.digest, slot_ms=0, next_ms=0, firings=[firing]
            )
        except JobNotFoundError:
            raise ScheduleNotFoundError(name, keys.queue) from None
        except JobStateError as error:
            if not error.actual.startswith(COLLISION):
                raise
            # Another producer's; or our own, when the call was sent again after its reply was lost.
            job = yield read_job(keys, call, id)
            if job is not None and job.record.schedule == name and job.record.by == call.client:
                return id
            continue
        if not verdicts[0].ok:
            raise verdicts[0].error(id=id, queue=keys.queue) or ServerError(str(verdicts[0]))
        return id
    raise InvalidJobError(f"schedule {name!r}: {MINTS} ids in a row were taken")


def _read(keys: QueueKeys, call: Call, name: str) -> Generator[Transition[Any], Any, tuple[ScheduleState, int]]:
    page = yield read_schedules(keys, call, names=[name])
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
