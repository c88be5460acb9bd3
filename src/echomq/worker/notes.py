"""What a handler notes while it runs: fenced, bounded, and progress at a rate that others can follow.

Theory of operation
    A checkpoint and a log's line are sent and answered one by one. Progress is not: a loop may report each of a million
    rows. At most one note of a job leaves in `EVERY`, the latest; what comes in between waits for one timer of the
    worker's clock, and a newer note takes its place. One that says all is done leaves at once, and so does, when the
    handler ends, one that waits.

If you change this
    Values are looked at before anything is kept or sent: no value of one job's may hurt another's, or the process. What
    a timer calls must not wait and must not raise.
"""

from __future__ import annotations

import math
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

import anyio
import anyio.from_thread
import anyio.lowlevel
import orjson

from echomq._logs import get_logger
from echomq.errors import EncodeError, LeaseLostError
from echomq.protocol._convert import shown
from echomq.protocol.failures import name_of
from echomq.protocol.refusals import STATE, Verdict
from echomq.transitions import Checkpoint, LogLine, Progress
from echomq.worker.family import AskedFamily, Family
from echomq.worker.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from echomq.errors import EchoMQError
    from echomq.protocol.codec import Codec
    from echomq.worker.lease import Lease
    from echomq.worker.timers import Timers

T = TypeVar("T")

EVERY: float = 0.5
"""Seconds from one progress note of a job to the next: people and dashboards read no faster."""
MAX_NOTE: Final = 1 << 20
"""Bytes of a checkpoint, as for payloads: each claim of the job reads it."""
MAX_LINE: Final = 64 << 10
"""Bytes of a log's line, and of the whole log."""
MAX_MESSAGE: Final = 1024
"""Bytes of a progress note's message, as for reasons: each claim of the job reads it."""
MAX_AMOUNT: Final = 2**53
"""Beyond it JSON's numbers lose digits in other languages."""
MAX_STEP: Final = 10**14 - 1
"""The largest step: scripts write integers above 10^14 without their last digits (Protocol, section 4, rule 3)."""

_log = get_logger("echomq.worker")


def check_step(step: Any) -> int:
    """Answer the step if it may be one: packing a huge one would end the process.

    Raises:
        TypeError: Not an int itself: a bool, or a number of another class.
        ValueError: Below 0, or above 99,999,999,999,999: beyond it a script loses digits.
    """
    if type(step) is not int:
        msg = f"a step is an int, not {shown(step)} of type {name_of(type(step))}"
        raise TypeError(msg)
    if not 0 <= step <= MAX_STEP:
        msg = f"a step lies in 0..{MAX_STEP}, not {shown(step)}"
        raise ValueError(msg)
    return step


def cut_text(what: str, text: Any, limit: int) -> bytes:
    """Encode text; of one that is longer than its limit, the beginning, and how much was cut.

    Raises:
        TypeError: Not text.
    """
    if not isinstance(text, str):
        msg = f"{what} is text, not {shown(text)}"
        raise TypeError(msg)
    data = str.encode(text, "utf-8", "replace")
    if len(data) <= limit:
        return data
    room = limit - len(f" ... {len(data)} bytes cut")
    head = data[:room].decode("utf-8", "ignore").encode()
    return head + f" ... {len(data) - len(head)} bytes cut".encode()


def cut_line(line: Any) -> bytes:
    """Encode a log's line. See `cut_text`."""
    return cut_text("a log's line", line, MAX_LINE)


def _amount(what: str, value: Any) -> float:
    if type(value) is not int and type(value) is not float:
        msg = f"{what} is an int or a float, not {shown(value)} of type {name_of(type(value))}"
        raise TypeError(msg)
    if not 0 <= value <= MAX_AMOUNT:  # neither is what is no number
        msg = f"{what} lies in 0..2^53, not {shown(value)}"
        raise ValueError(msg)
    return value


def spell_progress(done: Any, total: Any = None, message: Any = None) -> bytes:
    """Write a progress note as JSON.

    Raises:
        TypeError: An amount is not an int or a float itself, or the message is not text.
        ValueError: An amount is negative, above 2^53 or not finite.
    """
    note = {
        "done": _amount("done", done),
        "total": None if total is None else _amount("total", total),
        "message": None if message is None else cut_text("a message", message, MAX_MESSAGE).decode(),
    }
    return orjson.dumps(note)


@final
class LeaseNotes:
    """What a job's methods do: fenced notes, sent under the lease."""

    __slots__ = ("_clock", "_codec", "_family", "_lease", "_next_at", "_step", "_timers", "_waiting")

    def __init__(self, lease: Lease, codec: Codec, timers: Timers) -> None:
        """Make the notes of one lease.

        Args:
            lease: The lease.
            codec: Encodes checkpoints.
            timers: The worker's clock.
        """
        self._lease = lease
        self._codec = codec
        self._timers = timers
        self._family: Family | None = None
        # A thread cannot read the event loop's clock; both run alike.
        self._clock = anyio.current_time() - time.monotonic()
        self._step: int | None = None
        """The latest step that was kept in this attempt."""
        self._next_at = -math.inf
        """From when on a progress note may leave."""
        self._waiting: bytes | None = None
        """The note that waits for it."""

    @property
    def reason(self) -> str | None:
        """Why the handler is being stopped."""
        reason = self._lease.cause(time.monotonic() + self._clock)
        return None if reason is None else reason.value

    @property
    def family(self) -> Family:
        """The job's children and follow-ups."""
        if self._family is None:
            self._family = Family(self._lease, self._codec)
        return self._family

    @property
    def stage(self) -> Family:
        """What keeps follow-ups."""
        return self.family

    @property
    def staged(self) -> Family | None:
        """The same, if it keeps any."""
        return self._family if self._family is not None and self._family.follow else None

    async def _send(self, group: Any, item: Any) -> None:
        self._require(item, await group(item))

    def _require(self, item: Any, verdict: Verdict, expected: str = "") -> None:
        error = self._heed(item, verdict, expected)
        if error is not None:
            raise error

    def _heed(self, item: Any, verdict: Verdict, expected: str = "") -> EchoMQError | None:
        error = verdict.error(id=item.id, token=item.token, queue=self._lease.calls.queue, expected=expected)
        if isinstance(error, LeaseLostError):
            # The same word as a renewal's. The handler need not wait for that to hear it.
            self._lease.stop(Reason.LEASE_LOST, verdict.code)
        return error

    def _encode(self, what: str, value: Any) -> bytes:
        data = self._codec.encode(value)
        if type(data) is not bytes:
            msg = f"the codec made {name_of(type(data))} of it, not bytes"
            raise EncodeError(msg, what)
        if len(data) > MAX_NOTE:
            msg = f"it has {len(data)} bytes, the limit is {MAX_NOTE}"
            raise EncodeError(msg, what)
        return data

    # --- progress ----------------------------------------------------------------------------------------------------

    async def progress(self, done: Any, total: Any, message: Any) -> None:
        """Send a progress note if its time has come; otherwise keep it until then, in the place of one that waits."""
        data = spell_progress(done, total, message)
        now = anyio.current_time()
        if now < self._next_at and (total is None or done != total):
            if self._lease.reason is Reason.LEASE_LOST:
                raise LeaseLostError(self._lease.reason_detail, self._lease.claimed.id, self._lease.claimed.token)
            if self._waiting is None:
                self._timers.at(self._next_at, self._look)
            self._waiting = data
            await anyio.lowlevel.checkpoint()
            return
        self._waiting = None
        self._next_at = now + EVERY
        await self._send(self._lease.calls.progress, self._item(data))

    def flush(self) -> None:
        """Send the note that waits: the handler has ended."""
        data, self._waiting = self._waiting, None
        if data is not None and self._lease.reason is not Reason.LEASE_LOST:
            item = self._item(data)
            self._lease.calls.progress.submit(item, partial(self._answered, item), give_up_after=EVERY)

    def _item(self, data: bytes) -> Progress:
        c = self._lease.claimed
        return Progress(c.id, c.token, c.nonce, data)

    def _look(self) -> None:
        """Send the note that has waited, if it is not too early for it: one that said all is done came in between."""
        if self._waiting is None or not self._lease.running:
            return
        now = anyio.current_time()
        if now < self._next_at:
            self._timers.at(self._next_at, self._look)
            return
        self._next_at = now + EVERY
        self.flush()

    def _answered(self, item: Progress, verdict: Verdict | EchoMQError) -> None:
        """Hear of a note that nobody waits for. An error is the next note's to meet; a lost lease is a lost lease."""
        if not isinstance(verdict, Verdict):
            _log.debug("progress_not_sent", job=item.id, queue=self._lease.calls.queue, error=str(verdict))
        else:
            self._heed(item, verdict)

    # --- what is sent one by one -------------------------------------------------------------------------------------

    async def checkpoint(self, state: Any, step: int | None) -> None:
        """Send a checkpoint."""
        c, call = self._lease.claimed, self._lease.calls.checkpoint
        at = self._current_step() if step is None else check_step(step)
        data = self._encode("checkpoint", state)
        verdict = await call(item := Checkpoint(c.id, c.token, c.nonce, at, data))
        kept = _kept_step(verdict)
        if step is None and kept is not None:
            # Only this attempt can have moved it: meanwhile, or by a call whose answer was lost.
            at = kept
            verdict = await call(item := Checkpoint(c.id, c.token, c.nonce, at, data))
        self._require(item, verdict, f"a checkpoint that does not go back to step {at}")
        self._step = at if self._step is None else max(self._step, at)

    def _current_step(self) -> int:
        return self._step if self._step is not None else self._lease.claimed.record.step or 0

    async def log(self, line: str) -> None:
        """Send a log line."""
        c = self._lease.claimed
        data = cut_line(line)
        await self._send(self._lease.calls.log, LogLine(c.id, c.token, c.nonce, data))

    def load_checkpoint(self) -> Any:
        """Decode the state that the last attempt kept."""
        data = self._lease.claimed.record.checkpoint
        return None if data is None else self._codec.decode(data, Any)


def _kept_step(verdict: Verdict) -> int | None:
    """Read from a refusal, for a step that goes back, at which step the checkpoint is; None when it is another answer."""
    word, _, number = verdict.detail.partition(" ")
    return int(number) if verdict.code == STATE and word == "step" and number.isdecimal() else None


async def shielded(note: Callable[..., Awaitable[T]], *values: Any) -> T:
    """Do something on behalf of a thread: its call runs in the scope of whoever waits for it, which may be cancelled."""
    with anyio.CancelScope(shield=True):
        answer = await note(*values)
    return answer  # noqa: RET504 - not within the block, which looks as if it might swallow an error


@final
class ThreadNotes:
    """The notes of a lease as a thread may call them: it blocks while the event loop does the work."""

    __slots__ = ("_notes",)

    def __init__(self, notes: LeaseNotes) -> None:
        self._notes = notes

    @property
    def reason(self) -> str | None:
        """Why the handler is being stopped."""
        return self._notes.reason

    def load_checkpoint(self) -> Any:
        """Decode the state that the last attempt kept."""
        return self._notes.load_checkpoint()

    def progress(self, done: Any, total: Any, message: Any) -> None:
        """Send a progress note, now or soon."""
        anyio.from_thread.run(shielded, self._notes.progress, done, total, message)

    def checkpoint(self, state: Any, step: int | None) -> None:
        """Send a checkpoint."""
        anyio.from_thread.run(shielded, self._notes.checkpoint, state, step)

    def log(self, line: str) -> None:
        """Send a log line."""
        anyio.from_thread.run(shielded, self._notes.log, line)

    @property
    def family(self) -> AskedFamily:
        """The job's children."""
        family = self._notes.family

        def ask(name: str, *values: Any) -> Any:
            return anyio.from_thread.run(shielded, getattr(family, name), *values)

        return AskedFamily(ask, family.stage)

    @property
    def stage(self) -> Family:
        """What keeps follow-ups: in memory, so that nothing is to be waited for."""
        return self._notes.family
