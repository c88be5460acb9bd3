"""Jobs as values: what an enqueue writes, and what a row says (Protocol, sections 1 and 2).

Theory of operation
    A row is a hash whose absent fields mean the default. `NewJob` spells the fields that a producer sets; the scripts
    add the rest. `JobRecord` keeps a row as it came and reads a field when it is asked for: a worker reads thousands
    of rows a second and few of their fields, and one row with a torn number must not spoil a claim's other jobs.

    The server keeps a hash compact only while each value is at most 64 bytes (`hash-max-listpack-value`), so payloads
    of up to 256 bytes are written in pieces of 64: a queued job with a small argument then takes 336 instead of 517
    bytes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, final

import attrs
import orjson

from echomq.errors import DecodeError, InvalidJobError, JobNotFoundError
from echomq.protocol.failures import ErrorRecord
from echomq.protocol.ids import check_id, mint
from echomq.protocol.keys import check_dedup_key, check_task_name
from echomq.protocol.states import State
from echomq.protocol.times import MAX_AT_MS, MAX_DURATION_MS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    FieldValue = bytes | str | int

MAX_PAYLOAD: Final = 1 << 20
"""Bytes of a payload, unless configured otherwise: a script's time grows with the bytes it moves."""
MAX_PRIORITY: Final = 2047
"""Priorities lie in -2047..2047; higher is served first."""
MAX_COUNT: Final = 1_000_000
"""The most attempts or stalls a job may be given."""
MAX_HEADERS: Final = 16 << 10
"""Bytes of the headers as JSON."""

PIECE: Final = 64
"""Bytes of a payload's piece: the server's default `hash-max-listpack-value`."""
PIECES: Final = 4
"""Payloads of up to so many pieces are cut; a larger one spoils compactness anyway and stays whole."""

_PIECE_NAMES: Final = ("payload", *(f"payload.{n}" for n in range(1, PIECES)))
_PIECE_KEYS: Final = tuple(name.encode() for name in _PIECE_NAMES)
_NUMBER: Final = re.compile(rb"-?[0-9]{1,16}")


def payload_fields(payload: bytes) -> tuple[str | bytes, ...]:
    """Cut a payload into row fields: alternating names and values.

    Args:
        payload: Any bytes; empty ones make one empty field.
    """
    size = len(payload)
    if size <= PIECE or size > PIECE * PIECES:
        return ("payload", payload)
    fields: list[str | bytes] = []
    for index in range(0, size, PIECE):
        fields += (_PIECE_NAMES[index // PIECE], payload[index : index + PIECE])
    return tuple(fields)


def join_payload(row: Mapping[bytes, bytes]) -> bytes:
    """Join the pieces that `payload_fields` cut; a row without a payload has an empty one.

    Raises:
        DecodeError: A piece is missing before another.
    """
    first = row.get(b"payload", b"")
    if len(first) != PIECE or b"payload.1" not in row:
        return first
    pieces = [first]
    for name in _PIECE_KEYS[1:]:
        piece = row.get(name)
        if piece is None:
            break
        if len(pieces[-1]) != PIECE:
            raise DecodeError(f"a piece of the payload is short before {name.decode()}", "payload")
        pieces.append(piece)
    return b"".join(pieces)


@final
@attrs.frozen(kw_only=True)
class NewJob:
    """A job to be enqueued. Built a hundred thousand times a second by bulk producers, so it checks itself in one go.

    Raises:
        InvalidJobError: A value is out of range or too large; the message shows it.
        TypeError: A value is of another type.
    """

    id: str = attrs.field(factory=mint)
    """Minted by the library; do not make one by hand."""
    task: str = ""
    """Which handler, 1 to 128 of `A-Z a-z 0-9 . _ : -`; "" for a queue that has one handler."""
    payload: bytes = b""
    """The arguments, encoded; up to `payload_limit` bytes."""
    priority: int = 0
    """-2047 to 2047, higher is served first."""
    delay_ms: int | None = None
    """Not before this long after admission, by the server's clock, ms; 0 to a century. Not together with `at_ms`."""
    at_ms: int | None = None
    """Not before this moment, Unix ms; 0 to 99999999999999. Not together with `delay_ms`."""
    dedup: str | None = None
    """While a job with this key lives, another one is a duplicate; 1 to 256 bytes without control characters."""
    dedup_window_ms: int | None = None
    """The key outlives the job and ends so long after admission, ms; None: it is freed when the job ends."""
    max_attempts: int | None = None
    """How many failures bury the job, 1 to a million; None: the server's default."""
    max_stalls: int | None = None
    """How many expired leases it survives, 0 to a million; None: the server's default."""
    timeout_ms: int | None = None
    """How long one attempt may run, ms, from 1; None: as long as its lease is renewed."""
    result_ttl_ms: int | None = None
    """How long its row is kept after it has ended, ms, from 1; None: it is not kept."""
    headers: Mapping[str, str] | None = None
    """Text for middleware, such as a trace context; up to 16 KiB as JSON."""
    payload_limit: int = attrs.field(default=MAX_PAYLOAD, eq=False, repr=False)
    """Bytes the payload may have; not written anywhere."""

    def __attrs_post_init__(self) -> None:
        """Check every value, the common path first."""
        check_id(self.id)
        if self.task:
            _check_name(check_task_name, self.task)
        if type(self.payload) is not bytes:
            raise TypeError(f"payload: expected bytes, got {type(self.payload).__name__}")
        if len(self.payload) > self.payload_limit:
            raise InvalidJobError(f"payload: {len(self.payload)} bytes are more than the limit of {self.payload_limit}")
        if self.priority != 0 or type(self.priority) is not int:
            _check_int("priority", self.priority, -MAX_PRIORITY, MAX_PRIORITY)
        if self.delay_ms is not None:
            _check_int("delay_ms", self.delay_ms, 0, MAX_DURATION_MS)
        if self.at_ms is not None:
            _check_int("at_ms", self.at_ms, 0, MAX_AT_MS)
            if self.delay_ms is not None:
                raise InvalidJobError(
                    f"delay_ms and at_ms exclude each other, got {self.delay_ms!r} and {self.at_ms!r}"
                )
        self._check_rare()

    def _check_rare(self) -> None:
        if self.dedup is not None:
            _check_name(check_dedup_key, self.dedup)
        if self.dedup_window_ms is not None:
            _check_int("dedup_window_ms", self.dedup_window_ms, 1, MAX_DURATION_MS)
            if self.dedup is None:
                raise InvalidJobError(
                    f"dedup_window_ms is for a dedup key, and there is none (got {self.dedup_window_ms!r})"
                )
        if self.max_attempts is not None:
            _check_int("max_attempts", self.max_attempts, 1, MAX_COUNT)
        if self.max_stalls is not None:
            _check_int("max_stalls", self.max_stalls, 0, MAX_COUNT)
        if self.timeout_ms is not None:
            _check_int("timeout_ms", self.timeout_ms, 1, MAX_DURATION_MS)
        if self.result_ttl_ms is not None:
            _check_int("result_ttl_ms", self.result_ttl_ms, 1, MAX_DURATION_MS)
        if self.headers:
            _encode_headers(self.headers)

    def fields(self) -> tuple[FieldValue, ...]:
        """Spell the row's fields that are set, as alternating names and values; the script adds state, since and by.

        `delay_ms`, `at_ms` and `dedup_window_ms` are no row fields: they say where the row goes, not what it is.
        """
        fields: list[FieldValue] = list(payload_fields(self.payload))
        if self.task:
            fields += ("task", self.task)
        if self.priority:
            fields += ("priority", self.priority)
        if self.dedup is not None:
            fields += ("dedup", self.dedup)
        if self.max_attempts is not None:
            fields += ("max_attempts", self.max_attempts)
        if self.max_stalls is not None:
            fields += ("max_stalls", self.max_stalls)
        if self.timeout_ms is not None:
            fields += ("timeout_ms", self.timeout_ms)
        if self.result_ttl_ms is not None:
            fields += ("result_ttl_ms", self.result_ttl_ms)
        if self.headers:
            fields += ("headers", _encode_headers(self.headers))
        return tuple(fields)

    @property
    def size(self) -> int:
        """About how many bytes the job takes in a call, for cutting calls; never less than its payload."""
        size = len(self.payload) + 160
        if self.dedup is not None:
            size += len(self.dedup) * 4
        if self.headers:
            size += len(_encode_headers(self.headers))
        return size


def _check_int(name: str, value: int, low: int, high: int) -> None:
    if type(value) is not int:
        raise TypeError(f"{name}: expected an int, got {value!r}")
    if not low <= value <= high:
        raise InvalidJobError(f"{name}: {value!r} is not in {low}..{high}")


def _check_name(check: Any, value: str) -> None:
    try:
        check(value)
    except ValueError as error:
        raise InvalidJobError(str(error)) from None


def _encode_headers(headers: Mapping[str, str]) -> bytes:
    items: Mapping[Any, Any] = headers
    for name, value in items.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(f"headers: expected str to str, got {name!r}: {value!r}")
    try:
        data = orjson.dumps(dict(headers))
    except TypeError as error:  # lone surrogates
        raise InvalidJobError(f"headers: not text: {error}") from None
    if len(data) > MAX_HEADERS:
        raise InvalidJobError(f"headers: {len(data)} bytes are more than the limit of {MAX_HEADERS}")
    return data


_KNOWN: Final = frozenset(
    {
        *_PIECE_KEYS, b"state", b"since", b"by", b"task", b"priority", b"attempts", b"failures", b"stalls", b"holder",
        b"dedup", b"max_attempts", b"max_stalls", b"timeout_ms", b"result_ttl_ms", b"error", b"progress",
        b"checkpoint", b"step", b"cancel", b"cancel_token", b"kind", b"reason", b"result", b"headers",
    }
)  # fmt: skip


@final
@attrs.frozen
class JobRecord:
    """A row, read field by field as asked. Each property is named as its row field.

    Every property that reads a number or JSON raises DecodeError, naming the field, when the row is torn there.
    """

    id: str
    """The job's id."""
    row: dict[bytes, bytes] = attrs.field(repr=False)
    """The fields as they are on the server."""

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
    def result_ttl_ms(self) -> int | None:
        """How long the row is kept after the end, ms; None: not at all."""
        return self._limit(b"result_ttl_ms")

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
    def cancel_token(self) -> int | None:
        """The token of the claim that the request is meant for."""
        return self._limit(b"cancel_token")

    @property
    def kind(self) -> str:
        """How it ended: completed, cancelled, discarded or dead; "" before."""
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
