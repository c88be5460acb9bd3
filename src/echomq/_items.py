"""What the asynchronous and the synchronous client check before a call, and read from a verdict, alike."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Literal

from echomq.errors import InvalidJobError, JobStateError
from echomq.limits import lane_name
from echomq.protocol._convert import shown
from echomq.protocol.ids import check_id
from echomq.protocol.keys import check_dedup_key
from echomq.protocol.newjob import MAX_PAYLOAD, MAX_PRIORITY
from echomq.protocol.refusals import DUPLICATE, REPLACED
from echomq.protocol.states import State
from echomq.protocol.times import to_ms, unix_ms
from echomq.transitions import NewPayload

if TYPE_CHECKING:
    import datetime as dt

    from echomq.errors import EchoMQError
    from echomq.protocol.refusals import Verdict
    from echomq.results import EnqueueOutcome

CancelOutcome = Literal["cancelled", "asked"]
"""`cancelled`: it was not running and has ended. `asked`: it runs, and its worker has been told."""
MINTS: Final = 5
"""Times a job is given an id when the ones before turned out to be taken; once is a rare accident."""
MAX_REASON: Final = 1024
"""Bytes of a cancel reason: it goes into the row, the event and every heartbeat's answer."""
MAX_PAGE: Final = 256
"""Jobs of one page at most."""
MAX_OFFSET: Final = 10**14 - 1
"""Jobs that a page may skip at most: a script reads no larger number."""
CANCEL_STATES: Final = "pending, schedule, waiting or active"
"""Where a job can be cancelled."""
_IN_LANES: Final = (State.PENDING, State.ACTIVE)
_BROWSABLE: Final = (State.PENDING, State.ACTIVE, State.SCHEDULE, State.WAITING, State.DEAD, State.DONE)


def taken(id: str) -> InvalidJobError:
    """Make the error for a job that found no id of its own."""
    return InvalidJobError(f"{id}: {MINTS} ids in a row were taken, by other producers; are ids made by hand?")


def check_ids(ids: Iterable[str]) -> list[str]:
    """Answer the ids, each checked.

    Raises:
        TypeError: One string instead of several, or one that is not text.
        ValueError: One is not an id.
    """
    if isinstance(ids, (str, bytes)):
        raise TypeError(f"several ids are wanted, such as [{ids!r}], not {ids!r}")
    return [check_id(id) for id in ids]


def check_progress(progress: object) -> None:
    """Check what is to be told how far a call is, before anything is sent.

    Raises:
        TypeError: It cannot be called.
    """
    if progress is not None and not callable(progress):
        raise TypeError(f"progress is a function that is told how many, not {shown(progress)}")


def check_reason(reason: str) -> str:
    """Answer the reason if it may be one.

    Raises:
        TypeError: Not text.
        ValueError: Longer than 1,024 bytes, or with lone surrogates.
    """
    if not isinstance(reason, str):
        raise TypeError(f"a reason is text, not {reason!r}")
    text = str.__str__(reason)  # of an enum, say, what would be sent
    if byte_size("a reason", text) > MAX_REASON:
        raise ValueError(f"a reason has up to {MAX_REASON} bytes, not {len(text)} characters: {text[:40]!r}...")
    return text


def byte_size(what: str, text: str) -> int:
    """Answer how many bytes text has as UTF-8.

    Raises:
        ValueError: It has lone surrogates, which are not text.
    """
    try:
        return len(str.encode(text))
    except UnicodeEncodeError:
        raise ValueError(f"{what} has lone surrogates, which are not text: {shown(text)}") from None


def check_page(state: str, offset: int, count: int, lane: str = "") -> str:
    """Check what a page is asked by, and answer the lane.

    Raises:
        ValueError: Not a state with jobs to browse, a number out of range, not a lane, or lanes have no such state.
    """
    check_state(state)
    lane = lane_name(lane)
    if lane and state not in _IN_LANES:
        raise ValueError(f"a lane has jobs that are {' or '.join(_IN_LANES)}; {state!r} is browsed for the whole queue")
    check_count(count)
    check_offset(offset)
    return lane


def check_state(state: str) -> State:
    """Answer the state of that name.

    Raises:
        ValueError: There is none.
    """
    if state not in _BROWSABLE:
        raise ValueError(f"a state is one of {', '.join(_BROWSABLE)}, not {shown(state)}")
    return State(state)


def check_offset(offset: int) -> None:
    """Check how many a page is to skip.

    Raises:
        ValueError: Out of range.
    """
    if type(offset) is not int or not 0 <= offset <= MAX_OFFSET:
        raise ValueError(f"an offset is an int in 0..{MAX_OFFSET}, not {shown(offset)}")


def check_count(count: int, of: str = "jobs") -> None:
    """Check how many a page is to have.

    Raises:
        ValueError: Not 1 to 256.
    """
    if type(count) is not int or not 1 <= count <= MAX_PAGE:
        raise ValueError(f"a page has 1 to {MAX_PAGE} {of}, not {shown(count)}")


def check_cursor(cursor: int) -> None:
    """Check where a page of lanes is to begin.

    Raises:
        ValueError: Not what a page before it said.
    """
    if type(cursor) is not int or not 0 <= cursor <= MAX_OFFSET:
        raise ValueError(f"a cursor is 0, or the last page's cursor, not {shown(cursor)}")


def holder_of(verdict: Verdict) -> tuple[str, EnqueueOutcome] | None:
    """Read a verdict of `enqueue`: which other job holds the dedup key, and what became of it; None when none does."""
    if verdict.code == DUPLICATE:
        return verdict.detail, "duplicate"
    if verdict.code == REPLACED:
        return verdict.detail, "replaced"
    return None


def new_due(delay: float | dt.timedelta | None, at: dt.datetime | None) -> str:
    """Spell the time that a job is given anew.

    Raises:
        TypeError: Neither a delay nor a moment is given, or both, or one of another type.
        ValueError: Out of range, or a moment without a time zone.
    """
    if (delay is None) == (at is None):
        raise TypeError("reschedule wants a delay or a moment (at=), one of them")
    name = "delay" if at is None else "at"
    try:
        return f"+{to_ms(delay)}" if delay is not None else str(unix_ms(at))  # type: ignore[arg-type]  # one is given
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}: {error}") from None


def dedup_key(key: str) -> str:
    """Answer the dedup key, checked.

    Raises:
        ValueError: Not 1 to 256 bytes of UTF-8 without control characters.
    """
    return str.__str__(check_dedup_key(key))


def dedup_shown(key: str) -> str:
    """Say which job is meant, in an error."""
    return f"the job with the dedup key {key!r}"


def new_payload(id: str, payload: bytes) -> NewPayload:
    """Make what replaces a job's payload.

    Raises:
        TypeError: The payload is not bytes.
        ValueError: Not an id.
        InvalidJobError: The payload is too large.
    """
    check_id(id)
    if type(payload) is not bytes:
        raise TypeError(f"a payload is bytes, not {shown(payload)}")
    if len(payload) > MAX_PAYLOAD:
        raise InvalidJobError(f"payload: {len(payload)} bytes are more than the limit of {MAX_PAYLOAD}")
    return NewPayload(id, payload)


def new_priority(priority: int) -> int:
    """Answer a priority, checked.

    Raises:
        TypeError: Not an int.
        ValueError: Not -2047 to 2047.
    """
    if type(priority) is not int:
        raise TypeError(f"a priority is an int, not {shown(priority)}")
    if not -MAX_PRIORITY <= priority <= MAX_PRIORITY:
        raise ValueError(f"a priority is {-MAX_PRIORITY} to {MAX_PRIORITY}, not {shown(priority)}")
    return priority


def waiting_error(verdict: Verdict, id: str, queue: str) -> EchoMQError | None:
    """Read a verdict of `update` or `reprioritise`."""
    return verdict.error(id=id, queue=queue, expected="pending, schedule, waiting or dead")


def reschedule_error(verdict: Verdict, id: str, queue: str) -> EchoMQError | None:
    """Read a verdict of `reschedule`."""
    return verdict.error(id=id, queue=queue, expected="pending or schedule")


def cancel_outcome(verdict: Verdict, id: str, queue: str) -> CancelOutcome:
    """Read a verdict of `cancel`.

    Raises:
        JobNotFoundError: There is no such job (any more).
        JobStateError: It has ended already.
        EchoMQError: Another refusal.
    """
    error = verdict.error(id=id, queue=queue, expected=CANCEL_STATES)
    if error is not None:
        raise error
    return "asked" if verdict.code == "asked" else "cancelled"


def reassign_error(verdict: Verdict, id: str, queue: str) -> EchoMQError | None:
    """Read a verdict of `reassign`."""
    return verdict.error(id=id, queue=queue, expected="pending, schedule or dead")


def remove_error(verdict: Verdict, id: str, queue: str) -> EchoMQError | None:
    """Read a verdict of `remove`."""
    return verdict.error(id=id, queue=queue, expected="any state but active (cancel it instead)")


def redrive_error(verdict: Verdict, id: str, queue: str) -> EchoMQError | None:
    """Read a verdict of `redrive`."""
    if verdict.code == DUPLICATE:
        return JobStateError("no other job with its dedup key", f"a duplicate of {verdict.detail} by now", id)
    return verdict.error(id=id, queue=queue, expected=State.DEAD)
