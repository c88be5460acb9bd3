"""What a follower of one job reads from its row, decided without I/O, for both clients.

Theory of operation
    The row says everything, a message on its channel only when to look: channels lose messages. So a follower looks when
    one comes, after each reconnect, and once in a while; not more often than every tenth of a second, however many come.
    A job that keeps no result does not tell its end, so it is looked at more often.

    Each line of a log has a number: `log_lines` of the row counts all that were ever appended, and the list keeps the last
    of them. So a follower knows which of the lines it reads are new, and how many it has missed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, Self, TypeVar, final

import attrs

from echomq.errors import DecodeError
from echomq.protocol.states import State

if TYPE_CHECKING:
    from echomq.transitions import JobInFull

T = TypeVar("T")

PROGRESS: Final = b"progress"
LOG: Final = b"log"
NOTES: Final = frozenset({PROGRESS, LOG})
"""Messages on a row's channel that tell of a note, and not of the job's end."""
REREAD_AFTER: Final = 5.0
"""Seconds after which a row is read although no message came."""
REREAD_UNTOLD: Final = 1.0
"""The same, of a job that keeps no result and so does not tell its end."""
NOT_OFTENER: Final = 0.1
"""Seconds between two looks at least."""
_OVER: Final = frozenset({State.DEAD, State.DONE})


@final
@attrs.frozen(kw_only=True)
class Progress:
    """How far a job is, as its handler noted it by `job.progress(...)`."""

    done: float
    """How much is done."""
    total: float | None = None
    """Of how much; None: nobody knows."""
    message: str | None = None
    """What it is at, for people."""

    @classmethod
    def of(cls, note: Any) -> Self:
        """Read a note as it stands in a row, decoded.

        Raises:
            DecodeError: It is not `{"done": number, "total": number or null, "message": text or null}`.
        """
        if isinstance(note, dict):
            done, total, message = note.get("done"), note.get("total"), note.get("message")
            if _number(done) and (total is None or _number(total)) and (message is None or isinstance(message, str)):
                return cls(done=done, total=total, message=message)  # type: ignore[arg-type]  # a number
        raise DecodeError(f"expected a note of progress, got {note!r:.80}", "progress")


@final
class MissedLines(str):
    """A marker among the lines of a log that is followed: so many lines are gone, for it keeps the last ones only.

    It is text that says so, for those who print; programs tell it by its class.
    """

    __slots__ = ("missed",)

    missed: int
    """How many."""

    def __new__(cls, missed: int) -> Self:
        """Make the marker."""
        gone = f"[{missed} line{'' if missed == 1 else 's'} of the log gone before they were read]"
        self = super().__new__(cls, gone)
        self.missed = missed
        return self

    def __reduce__(self) -> tuple[type[Self], tuple[int]]:
        """Pickle by the number."""
        return type(self), (self.missed,)


class Reader(Protocol[T]):
    """What is followed: it takes the row again and again, and answers what is new in it."""

    with_log: bool
    """Whether it reads the log, too."""
    deaf: frozenset[bytes]
    """Messages that tell it nothing."""

    def new(self, job: JobInFull) -> list[T]:
        """Answer what is new."""


@final
class ProgressReader:
    """The latest note of progress, whenever it is another one."""

    with_log = False
    deaf = NOTES - {PROGRESS}

    def __init__(self) -> None:
        self._seen: bytes | None = None

    def new(self, job: JobInFull) -> list[Progress]:
        """Answer the note if it is new.

        Raises:
            DecodeError: It is none.
        """
        note = job.record.row.get(b"progress")
        if note is None or note == self._seen:
            return []
        self._seen = note
        return [Progress.of(job.record.progress)]


@final
class LogReader:
    """Each line of a log, once."""

    with_log = True
    deaf = NOTES - {LOG}

    def __init__(self) -> None:
        self._seen = 0

    def new(self, job: JobInFull) -> list[str]:
        """Answer the lines that are new, behind a marker of those that are gone."""
        log = job.log
        total = max(job.record.log_lines, len(log))
        # A number that went back (an old snapshot was restored, say) makes nothing come twice.
        fresh = total - min(self._seen, total)
        self._seen = total
        kept = list(log[len(log) - fresh :]) if fresh < len(log) else list(log)
        return [MissedLines(fresh - len(log)), *kept] if fresh > len(log) else kept


@final
class Look(Generic[T]):
    """What one look at the row came to."""

    __slots__ = ("again", "new", "over")

    def __init__(self, reader: Reader[T], job: JobInFull | None) -> None:
        self.new = [] if job is None else reader.new(job)
        """What is new."""
        self.over = job is None or job.record.state in _OVER
        """Whether nothing more will come."""
        self.again = REREAD_AFTER if job is not None and job.record.result_ttl_ms is not None else REREAD_UNTOLD
        """Seconds until the next look, if no message comes."""


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
