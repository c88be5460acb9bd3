"""A job to be enqueued, checked before any I/O (Protocol, sections 2 and 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, final

import attrs
import orjson

from echomq.errors import InvalidJobError
from echomq.protocol._convert import shown, sized
from echomq.protocol.ids import check_id, mint
from echomq.protocol.keys import check_dedup_key, check_lane_name, check_task_name
from echomq.protocol.payloads import payload_fields
from echomq.protocol.times import MAX_AT_MS, MAX_DURATION_MS, check_moment

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    FieldValue = bytes | str | int

DedupMode = Literal["reject", "replace", "debounce"]
DEDUP_MODES: Final = ("reject", "replace", "debounce")
"""What a job does that meets its dedup key held by one that waits: it is refused, it gives that one its content, or it
does so and starts that one's delay again."""
MAX_PAYLOAD: Final = 1 << 20
"""Bytes of a payload, unless configured otherwise: a script's time grows with the bytes it moves."""
MAX_PRIORITY: Final = 2047
"""Priorities lie in -2047..2047; higher is served first."""
MAX_COUNT: Final = 1_000_000
"""The most attempts or stalls a job may be given."""
MAX_HEADERS: Final = 16 << 10
"""Bytes of the headers as JSON."""


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
    payload: bytes = attrs.field(default=b"", repr=sized)
    """The arguments, encoded; up to `payload_limit` bytes."""
    priority: int = 0
    """-2047 to 2047, higher is served first."""
    delay_ms: int | None = None
    """Not before this long after admission, by the server's clock, ms; 0 to a century. Not together with `at_ms`."""
    at_ms: int | None = None
    """Not before this moment, Unix ms; 0 to 99999999999999. Not together with `delay_ms`."""
    expires: str | None = None
    """If no worker has claimed it by then it ends as expired: `+` and ms from admission, or Unix ms; None: never."""
    deadline: str | None = None
    """All its attempts must be over by then, else it is buried: `+` and ms from admission, or Unix ms; None: never."""
    dedup: str | None = None
    """While a job with this key lives, another one is a duplicate; 1 to 256 bytes without control characters."""
    dedup_window_ms: int | None = None
    """The key outlives the job and ends so long after admission, ms; None: it is freed when the job ends."""
    dedup_mode: DedupMode = "reject"
    """What becomes of this job while another one holds the key: `reject`, `replace` or `debounce`."""
    lane: str | None = None
    """The lane it waits in, 1 to 128 bytes without control characters and braces; None: the lane without a name."""
    max_attempts: int | None = None
    """How many failures bury the job, 1 to a million; None: what the worker's task says."""
    max_stalls: int | None = None
    """How many expired leases it survives, 0 to a million; None: 3, the scripts' default."""
    timeout_ms: int | None = None
    """How long one attempt may run, ms, from 1; None: what the worker's task says."""
    result_ttl_ms: int | None = None
    """How long its row is kept after it has ended, ms, from 1; None: it is not kept."""
    headers: Mapping[str, str] | None = None
    """Text for middleware, such as a trace context; up to 16 KiB as JSON."""
    depth: int = 0
    """How many jobs are above it in its flow."""
    payload_limit: int = attrs.field(default=MAX_PAYLOAD, eq=False, repr=False)
    """Bytes the payload may have; not written anywhere."""

    def __attrs_post_init__(self) -> None:
        """Check every value, the common path first."""
        _check_name(check_id, self.id)
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
        if self.expires is not None:
            _check_moment("expires", self.expires)
        if self.deadline is not None:
            _check_moment("deadline", self.deadline)
        if self.dedup is not None:
            _check_name(check_dedup_key, self.dedup)
        if self.dedup_window_ms is not None:
            _check_int("dedup_window_ms", self.dedup_window_ms, 1, MAX_DURATION_MS)
            if self.dedup is None:
                raise InvalidJobError(
                    f"dedup_window_ms is for a dedup key, and there is none (got {self.dedup_window_ms!r})"
                )
        if self.dedup_mode != "reject":
            self._check_mode()
        if self.lane is not None:
            _check_name(check_lane_name, self.lane)
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
        if self.depth:
            _check_int("depth", self.depth, 0, MAX_COUNT)

    def _check_mode(self) -> None:
        if self.dedup_mode not in DEDUP_MODES:
            raise InvalidJobError(f"dedup_mode is one of {', '.join(DEDUP_MODES)}, not {shown(self.dedup_mode)}")
        if self.dedup is None:
            raise InvalidJobError(f"dedup_mode is for a dedup key, and there is none (got {self.dedup_mode!r})")
        if self.dedup_window_ms is not None:
            raise InvalidJobError(
                f"dedup_mode {self.dedup_mode!r} and a dedup window exclude each other: the first job wins a window, "
                f"the last one {self.dedup_mode}s (got a window of {self.dedup_window_ms!r} ms)"
            )
        if self.dedup_mode == "debounce" and not self.delay_ms:
            raise InvalidJobError("dedup_mode 'debounce' needs a delay, which each further job starts again")

    def fields(self) -> tuple[FieldValue, ...]:
        """Spell the row's fields that are set, as alternating names and values; the script adds state, since, by, lane.

        `delay_ms`, `at_ms` and the rule of the dedup key are no row fields: they say where the row goes, not what it
        is. Nor are `expires` and `deadline`: the script writes the moments that they come to.
        """
        fields: list[FieldValue] = list(payload_fields(self.payload))
        if self.task:
            fields += ("task", self.task)
        if self.priority:
            fields += ("priority", self.priority)
        if self.dedup is not None:
            fields += ("dedup", self.dedup)
        if self.dedup_window_ms is not None:
            fields += ("dedup_window_ms", self.dedup_window_ms)
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
        if self.depth:
            fields += ("depth", self.depth)
        return tuple(fields)

    def arguments(self) -> tuple[FieldValue, ...]:
        """Spell its arguments in a call of `enqueue`: id, where it goes, then the number of row fields and these."""
        fields = self.fields()
        return (
            self.id,
            self.priority,
            f"+{self.delay_ms}" if self.delay_ms else self.at_ms or 0,
            f"{self.expires or 0} {self.deadline or 0}" if self.expires or self.deadline else "",
            self.dedup or "",
            self.dedup_window_ms or (0 if self.dedup_mode == "reject" else self.dedup_mode),
            self.lane or "",
            len(fields) // 2,
            *fields,
        )

    @property
    def size(self) -> int:
        """About how many bytes the job takes in a call, for cutting calls; never less than its payload."""
        size = len(self.payload) + 160
        if self.dedup is not None:
            size += len(self.dedup) * 4
        if self.lane is not None:
            size += len(self.lane) * 4
        if self.headers:
            size += len(_encode_headers(self.headers))
        return size


def _check_int(name: str, value: int, low: int, high: int) -> None:
    if type(value) is not int:
        raise TypeError(f"{name}: expected an int, got {shown(value)}")
    if not low <= value <= high:
        raise InvalidJobError(f"{name}: {shown(value)} is not in {low}..{high}")


def _check_moment(name: str, value: str) -> None:
    try:
        check_moment(value)
    except (TypeError, ValueError) as error:
        raise InvalidJobError(f"{name}: {error}") from None


def _check_name(check: Callable[[str], str], value: str) -> None:
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
