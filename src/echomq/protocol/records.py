"""Jobs as values: what a row says (Protocol, sections 1 and 2).

Theory of operation
    A row is a hash whose absent fields mean the default. `NewJob` spells the fields that a producer sets; the scripts
    add the rest. `JobRecord` keeps a row as it came and reads a field when it is asked for: a worker reads thousands
    of rows a second and few of their fields, and one row with a torn number must not spoil a claim's other jobs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, final

import attrs
import orjson

from echomq.errors import DecodeError, JobNotFoundError
from echomq.protocol.failures import ErrorRecord
from echomq.protocol.kin import ParentRef
from echomq.protocol.newjob import MAX_PAYLOAD, MAX_PRIORITY, NewJob
from echomq.protocol.payloads import PIECE_KEYS, join_payload, payload_fields
from echomq.protocol.states import State

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "MAX_PAYLOAD",
    "MAX_PRIORITY",
    "Claimed",
    "ErrorRecord",
    "JobRecord",
    "NewJob",
    "join_payload",
    "parse_row",
    "payload_fields",
]

_NUMBER: Final = re.compile(rb"-?[0-9]{1,16}")
_KNOWN: Final = frozenset(
    {
        *PIECE_KEYS, b"state", b"since", b"by", b"task", b"priority", b"attempts", b"failures", b"stalls", b"holder",
        b"dedup", b"dedup_window_ms", b"max_attempts", b"max_stalls", b"timeout_ms", b"result_ttl_ms", b"error", b"progress",
        b"checkpoint", b"step", b"cancel", b"kind", b"reason", b"result", b"headers", b"lane", b"log_bytes",
        b"unfit_since", b"expires_ms", b"deadline_ms", b"schedule", b"slot", b"log_lines",
        b"parent", b"children", b"depth", b"due_ms", b"hold", b"broken", b"early", b"seen", b"swept",
    }
)  # fmt: skip


@final
@attrs.frozen(repr=False)
class JobRecord:
    """A row, read field by field as asked. Each property is named as its row field.

    Every property that reads a number or JSON raises DecodeError, naming the field, when the row is torn there.
    """

    id: str
    """The job's id."""
    row: dict[bytes, bytes] = attrs.field()
    """The fields as they are on the server."""

    def __repr__(self) -> str:
        """Show what one asks for first; never raises."""
        facts = ((name, self._text(name.encode())) for name in ("state", "task", "attempts", "failures", "reason"))
        shown = ", ".join(f"{name}={text}" for name, text in facts if text)
        return f"JobRecord({self.id}{', ' if shown else ''}{shown})"

    def _number(self, name: bytes, default: int = 0) -> int:
        text = self.row.get(name)
        if text is None:
            return default
        if _NUMBER.fullmatch(text) is None:
            raise DecodeError(f"expected an integer in the row of {self.id}, got {text[:80]!r}", name.decode())
        return int(text)

    def _limit(self, name: bytes) -> int | None:
        return self._number(name) if name in self.row else None

    def _text(self, name: bytes) -> str:
        return self.row.get(name, b"").decode("utf-8", "replace")

    def _json(self, name: bytes) -> Any:
        data = self.row.get(name)
        if data is None:
            return None
        try:
            return orjson.loads(data)
        except orjson.JSONDecodeError as error:
            shown = f"{data[:80]!r} ({error})"
            raise DecodeError(f"expected JSON in the row of {self.id}, got {shown}", name.decode()) from None

    @property
    def state(self) -> State:
        """Where the job is."""
        text = self._text(b"state")
        try:
            return State(text)
        except ValueError:
            raise DecodeError(f"unknown state {text!r} in the row of {self.id}", "state") from None

    @property
    def since(self) -> int:
        """When it entered that state, Unix ms by the server's clock."""
        return self._number(b"since")

    @property
    def by(self) -> str:
        """The producer's tag."""
        return self._text(b"by")

    @property
    def task(self) -> str:
        """Which handler; "" for a queue that has one."""
        return self._text(b"task")

    @property
    def payload(self) -> bytes:
        """The arguments, encoded."""
        return join_payload(self.row)

    def with_payload(self, payload: bytes) -> JobRecord:
        """Answer the same row with another payload."""
        row = {name: value for name, value in self.row.items() if name not in PIECE_KEYS}
        return JobRecord(self.id, {**row, PIECE_KEYS[0]: payload})

    @property
    def priority(self) -> int:
        """-2047 to 2047."""
        return self._number(b"priority")

    @property
    def attempts(self) -> int:
        """How often it was claimed; the fencing token of the latest claim."""
        return self._number(b"attempts")

    @property
    def failures(self) -> int:
        """How much of the retry budget is spent."""
        return self._number(b"failures")

    @property
    def stalls(self) -> int:
        """How many leases expired."""
        return self._number(b"stalls")

    @property
    def holder(self) -> str:
        """The nonce of the claim that may still write; "" when none may."""
        return self._text(b"holder")

    @property
    def dedup(self) -> str | None:
        """The deduplication key."""
        return self._text(b"dedup") if b"dedup" in self.row else None

    @property
    def lane(self) -> str:
        """The lane it waits in; "" is the lane of the jobs without one."""
        return self._text(b"lane")

    @property
    def max_attempts(self) -> int | None:
        """How many failures bury it; None: the default."""
        return self._limit(b"max_attempts")

    @property
    def max_stalls(self) -> int | None:
        """How many expired leases it survives; None: the default."""
        return self._limit(b"max_stalls")

    @property
    def timeout_ms(self) -> int | None:
        """How long one attempt may run, ms; None: no limit."""
        return self._limit(b"timeout_ms")

    @property
    def expires_ms(self) -> int | None:
        """When it ends as expired if nobody has claimed it, Unix ms; None: never."""
        return self._limit(b"expires_ms")

    @property
    def deadline_ms(self) -> int | None:
        """When all its attempts must be over, Unix ms; None: never."""
        return self._limit(b"deadline_ms")

    @property
    def schedule(self) -> str:
        """The recurring schedule that made it; "" when none did."""
        return self._text(b"schedule")

    @property
    def slot_ms(self) -> int | None:
        """The moment of that schedule for which it was made, Unix ms; None when none made it."""
        return self._limit(b"slot")

    @property
    def result_ttl_ms(self) -> int | None:
        """How long the row is kept after the end, ms; None: not at all."""
        return self._limit(b"result_ttl_ms")

    @property
    def parent(self) -> ParentRef | None:
        """The job that waits for this one; None when none does."""
        data = self.row.get(b"parent")
        return None if data is None else ParentRef.parse(data)

    @property
    def has_children(self) -> bool:
        """Whether it was given children."""
        return b"children" in self.row

    @property
    def depth(self) -> int:
        """How many jobs are above it in its flow."""
        return self._number(b"depth")

    @property
    def broken(self) -> str:
        """Why it is buried when it next waits or completes: a child has failed; "" when none has."""
        return self._text(b"broken")

    @property
    def error(self) -> ErrorRecord | None:
        """The latest failure."""
        data = self.row.get(b"error")
        return None if data is None else ErrorRecord.from_bytes(data)

    @property
    def progress(self) -> Any:
        """What the handler last reported, decoded JSON; None when nothing."""
        return self._json(b"progress")

    @property
    def log_lines(self) -> int:
        """How many lines its log was given ever; it keeps the last of them."""
        return self._number(b"log_lines")

    @property
    def checkpoint(self) -> bytes | None:
        """What the handler last saved, as its codec encoded it."""
        return self.row.get(b"checkpoint")

    @property
    def step(self) -> int | None:
        """The step of that checkpoint."""
        return self._limit(b"step")

    @property
    def cancel(self) -> str | None:
        """The reason of a cancel request; None when there is none."""
        return self._text(b"cancel") if b"cancel" in self.row else None

    @property
    def kind(self) -> str:
        """How it ended: completed, cancelled, discarded, expired or dead; "" before."""
        return self._text(b"kind")

    @property
    def reason(self) -> str:
        """Why it ended so, for people."""
        return self._text(b"reason")

    @property
    def result(self) -> bytes | None:
        """What the handler returned, as its codec encoded it."""
        return self.row.get(b"result")

    @property
    def headers(self) -> dict[str, str]:
        """The headers it was enqueued with."""
        headers = self._json(b"headers")
        if headers is None:
            return {}
        if not isinstance(headers, dict) or not all(isinstance(value, str) for value in headers.values()):
            raise DecodeError(
                f"expected an object of text in the row of {self.id}, got {self.row[b'headers'][:80]!r}", "headers"
            )
        return headers

    @property
    def extra(self) -> dict[str, bytes]:
        """Fields that this version does not know; a newer minor version may add some."""
        return {name.decode("utf-8", "replace"): self.row[name] for name in self.row.keys() - _KNOWN}

    def check(self) -> None:
        """Read everything once.

        Raises:
            DecodeError: The row is torn; the first field found so is named.
        """
        for name in _READABLE:
            getattr(self, name)


_READABLE: Final = tuple(name for name, value in vars(JobRecord).items() if isinstance(value, property))


def parse_row(id: str, flat: Sequence[bytes] | Mapping[bytes, bytes]) -> JobRecord:
    """Read a row from HGETALL's answer, flat or as a mapping.

    Raises:
        JobNotFoundError: The answer is empty: there is no row.
    """
    if not flat:
        raise JobNotFoundError(id)
    if isinstance(flat, (list, tuple)):
        pairs = iter(flat)
        return JobRecord(id, dict(zip(pairs, pairs, strict=True)))
    return JobRecord(id, dict(flat))  # type: ignore[arg-type]  # a mapping


@final
@attrs.frozen
class Claimed:
    """A job under a claim: what its lease scope needs."""

    id: str
    """The job's id."""
    token: int
    """The fencing token: the row's `attempts` as of this claim."""
    nonce: str
    """What this claim drew, kept in the row as `holder`."""
    record: JobRecord
    """The row."""
