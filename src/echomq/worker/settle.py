"""Turn how a handler ended into a verdict, and see it accepted (Runtime, sections 3 and 4).

Theory of operation
    The lease's task hands its outcome over and ends; the slot is free at once, so that the next claim and this verdict
    can share a flush. The verdict itself is kept here until the server has answered it. It is sent whatever the local
    clock says: the server's fence decides, and a late holder's completion is welcome as long as nobody else has
    claimed the job. While the server is away, or refuses every write, the verdict waits, up to `settle_within`.

If you change this
    A verdict sent twice is harmless: the second one meets the fence. One that is never sent costs a stall.
"""

from __future__ import annotations

import random
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, final

import anyio
import attrs

from echomq._logs import get_logger
from echomq.backoff import DEFAULT_BACKOFF
from echomq.errors import EchoMQError, EncodeError
from echomq.instruments import NO_INSTRUMENTS, JobSettled
from echomq.protocol.failures import ErrorRecord, name_of, text_of, unfold
from echomq.protocol.ids import parse
from echomq.protocol.refusals import KIND, STATE, Verdict
from echomq.protocol.times import to_ms, to_seconds
from echomq.transitions import Closing, Completion, Ending, Failure, Release, Snoozed, Suspension
from echomq.verdicts import Discard, RateLimited, Retry, Snooze
from echomq.worker.carried import is_by_name
from echomq.worker.reasons import Outcome, Poison, Raised, Reason, Returned, Stopped, Unfit
from echomq.worker.signals import Signal

if TYPE_CHECKING:
    from collections.abc import Callable

    from echomq.instruments import Instruments, JobOutcome
    from echomq.worker.execute import Handler
    from echomq.worker.lease import Lease
    from echomq.worker.options import WorkerOptions
    from echomq.worker.statistics import Counters
    from echomq.worker.timers import Timers

AGAIN: float = 1.0
"""Seconds until a verdict that the server could not take is sent again."""
ENDED: Final = frozenset({"completed", "dead", "cancelled", "discarded"})
"""The outcomes after which a job does not come again."""
LINGER: float = 2.0
"""Seconds for which a refused completion is kept, should the job come back to this worker."""
MAX_REASON: int = 1024
"""Bytes of a reason, as for the reason of a cancel request."""
UNFIT_FIRST: float = 1.0
UNFIT_CAP: float = 30.0
"""Seconds a job that does not fit is put off: doubling from the first to the cap, so a finished deploy is noticed soon."""

_log = get_logger("echomq.worker")


@final
class Settler:
    """Sends verdicts, and keeps those that have not been answered."""

    def __init__(
        self,
        options: WorkerOptions,
        timers: Timers,
        counters: Counters,
        *,
        on_settled: Callable[[], None],
        on_failure: Callable[[Lease, BaseException], None] | None = None,
        instruments: Instruments = NO_INSTRUMENTS,
    ) -> None:
        """Make it.

        Args:
            options: The worker's options.
            timers: The worker's clock.
            counters: What it counts.
            on_settled: Called when a verdict has been answered, or given up.
            on_failure: Told of each attempt that does not end well, and why, before its verdict is sent; must not raise.
            instruments: What measures the worker.
        """
        self._options = options
        self._timers = timers
        self._counters = counters
        self._random = random.Random()
        self._open: dict[Lease, float] = {}
        self._late: set[Lease] = set()
        self._changed = Signal()
        self._on_settled = on_settled
        self._on_failure = on_failure
        self._instruments = instruments

    @property
    def unsettled(self) -> int:
        """How many verdicts have not been answered."""
        return len(self._open)

    async def wait_below(self, limit: int) -> None:
        """Wait until fewer verdicts than `limit` are open. **Cancellation**: at any moment, without effect."""
        while len(self._open) >= limit:
            await self._changed.wait()

    def settle(self, lease: Lease, outcome: Outcome, handler: Handler | None) -> None:
        """Send the verdict of a handler that has ended. Does not block; the lease is not renewed from here on.

        Whatever happens while it is made, a verdict is sent: one that spends the job's budget. A job that was given
        back instead would come again, and again do what it did.

        Raises:
            KeyboardInterrupt: Ctrl-C met us at it; the verdict is on its way.
        """
        lease.running = False
        lease.handler = handler
        if self._instruments:
            lease.ended_at = time.monotonic()
        interrupted: BaseException | None = None
        if lease.notes is not None:
            lease.notes.flush()
        try:
            sent = self._verdict(lease, outcome, handler)
        except BaseException as error:  # noqa: BLE001 - a torn row, or a hook of the user's, which may raise anything
            if issubclass(type(error), KeyboardInterrupt):
                interrupted = error
            else:
                _log.exception("verdict_failed", **self._names(lease))
            sent = self._last_word(lease, error, handler)
        if sent is None:
            self._counters.lost += 1
            _log.warning("lease_lost", **self._names(lease), detail=lease.reason_detail)
            self._measure(lease, "lost")
            return
        self._keep(lease, *sent)
        if interrupted is not None:
            raise interrupted

    def _keep(self, lease: Lease, group: Any, item: Any) -> None:
        lease.completion = item if type(item) is Completion else None
        patience = self._options.settle_within
        self._open[lease] = time.monotonic() + patience
        group.submit(item, partial(self._answered, lease, group, item), give_up_after=patience)

    def take_over(self, lease: Lease) -> bool:
        """Deliver, under a new lease of the job, a completion that could not be delivered under the last one.

        After an outage this worker may itself claim what it has done already: its claim was before its verdict in the
        line. The rule is the late holder's: only if the row still named the last claim when this one took it, that is,
        nobody else had the job or changed it in between.
        """
        claimed = lease.claimed
        holder = claimed.record.holder
        for old in (*self._open, *self._late):
            was = old.claimed
            if was.id == claimed.id and was.nonce == holder and old.completion is not None and old.calls is lease.calls:
                lease.running = False
                item = attrs.evolve(old.completion, token=claimed.token, nonce=claimed.nonce)
                self._keep(lease, lease.calls.complete, item)
                return True
        return False

    def put_off(self, lease: Lease, seconds: float) -> None:
        """Give back a job that was claimed and may not begin here now, for so long, more or less."""
        c = lease.claimed
        lease.running = False
        delay = to_ms(seconds * self._random.uniform(0.8, 1.2))
        # It was not tried: that it did not fit elsewhere is as true as before.
        unfit = b"unfit_since" in c.record.row
        self._keep(lease, lease.calls.snooze, Snoozed(c.id, c.token, c.nonce, delay, unfit=unfit))

    def undelivered(self, leases: set[Lease]) -> set[Lease]:
        """Answer those whose verdict has not been answered."""
        return leases & self._open.keys()

    async def wait_change(self) -> None:
        """Wait until some verdict is answered or given up. **Cancellation**: at any moment, without effect."""
        await self._changed.wait()

    def release(self, lease: Lease) -> None:
        """Give back a job that was claimed but not begun."""
        self.settle(lease, Stopped(Reason.SHUTDOWN), None)

    def _send_again(self, lease: Lease, group: Any, item: Any) -> None:
        lease.resent = True
        patience = self._open[lease] - time.monotonic()
        group.submit(item, partial(self._answered, lease, group, item), give_up_after=max(0.0, patience))

    def _answered(self, lease: Lease, group: Any, item: Any, verdict: Verdict | EchoMQError) -> None:
        if not isinstance(verdict, Verdict):
            if time.monotonic() + AGAIN < self._open[lease]:
                self._timers.at(anyio.current_time() + AGAIN, partial(self._send_again, lease, group, item))
                return
            _log.error("verdict_not_delivered", **self._names(lease), verb=group.verb, error=str(verdict))
            self._measure(lease, "undelivered")
        elif type(item) is Completion and verdict.code in (STATE, KIND):
            # What it was to do at once with the completion, or before it, cannot be: that is a failure of the handler's.
            self._fail_instead(lease, _incomplete(verdict))
            return
        elif not verdict.ok:
            self._counters.refused += 1
            self._measure(lease, "refused", verdict.code)
            before = {"hint": "it was sent before, and may have counted then"} if lease.resent else {}
            _log.warning(
                "verdict_refused", **self._names(lease), verb=group.verb, refusal=verdict.code, detail=verdict.detail,
                **before,
            )  # fmt: skip
            if type(item) is Completion:
                # The claim that overtook it may be our own, read in the same moment and not begun yet.
                self._late.add(lease)
                self._timers.at(anyio.current_time() + LINGER, partial(self._late.discard, lease))
        else:
            self._measure(lease, self._counters.count(group.verb, verdict.code, getattr(item, "kind", "")))
            if verdict.code == "dead":
                _log.error("job_dead", **self._names(lease), error=_cause(item))
            elif type(item) is Completion and item.follow and lease.notes is not None and lease.notes.family.owes:
                lease.calls.owes()
        del self._open[lease]
        self._changed.send()
        self._on_settled()

    def _measure(self, lease: Lease, outcome: JobOutcome, refusal: str = "") -> None:
        """Tell what became of a claim."""
        if not self._instruments:
            return
        claimed, now, began, ended = lease.claimed, time.monotonic(), lease.started_at, lease.ended_at
        row, lasted = claimed.record, None
        if outcome in ENDED:
            # By the server's clock at the claim and ours since then; the id has the producer's.
            server_ms = lease.now_ms + 1000 * (anyio.current_time() - lease.sent_at)
            with suppress(ValueError):  # an id made by hand
                lasted = max(0.0, server_ms - parse(claimed.id).unix_ms) / 1000
        self._instruments.record(
            JobSettled(
                lease.calls.queue, row.task, row.lane, claimed.id, claimed.token, outcome,
                ended - began if began and ended else None,
                now - ended if ended and outcome not in {"lost", "undelivered"} else None,
                lasted, refusal,
            )
        )  # fmt: skip

    def _fail_instead(self, lease: Lease, error: Exception) -> None:
        """Send a failure in the place of a completion that was refused."""
        try:
            sent = self._failed(lease, error, lease.handler)
        except Exception:  # noqa: BLE001 - a torn row, and we are in the reader
            _log.exception("verdict_failed", **self._names(lease))
            sent = self._last_word(lease, error, lease.handler)
        self._keep(lease, *sent)

    @staticmethod
    def _last_word(lease: Lease, error: BaseException, handler: Handler | None) -> tuple[Any, Any]:
        """Answer the verdict when none could be made: a failure by the little that is certain."""
        c = lease.claimed
        budget = 1 if handler is None else handler.max_attempts
        record = ErrorRecord("RuntimeError", "its failure could not be described")
        with suppress(BaseException):  # a torn row
            budget = budget if c.record.max_attempts is None else c.record.max_attempts
        with suppress(BaseException):  # Ctrl-C too: whoever calls us has it in hand
            record = ErrorRecord.from_exception(error)
        return lease.calls.fail, Failure(c.id, c.token, c.nonce, to_ms(UNFIT_FIRST), budget, record.to_bytes())

    def _names(self, lease: Lease) -> dict[str, Any]:
        # The worker's name too: verdicts are answered in the client's tasks, which know of no worker.
        record = lease.claimed.record
        return {
            "worker": self._options.name, "queue": lease.calls.queue, "job": record.id, "task": record.task,
            "attempt": lease.claimed.token,
        }  # fmt: skip

    # --- from an outcome to a verdict --------------------------------------------------------------------------------

    def _verdict(self, lease: Lease, outcome: Outcome, handler: Handler | None) -> tuple[Any, Any] | None:
        c, calls = lease.claimed, lease.calls
        if type(outcome) is Returned:
            result: bytes | EncodeError = b""
            row = c.record.row
            # Its parent reads it, too.
            if handler is not None and (b"parent" in row or (b"result_ttl_ms" in row and c.record.result_ttl_ms)):
                result = self._result(outcome.value, handler)
            if isinstance(result, EncodeError):
                return self._failed(lease, result, handler)
            staged = None if lease.notes is None else lease.notes.staged
            return calls.complete, Completion(c.id, c.token, c.nonce, result, b"" if staged is None else staged.follow)
        fence = (c.id, c.token, c.nonce)
        match outcome:
            case Stopped(Reason.SHUTDOWN):
                return calls.release, Release(*fence)
            case Stopped(Reason.SUSPENDED):
                return calls.suspend, Suspension(*fence)
            case Stopped(Reason.CANCELLED | Reason.PARENT_ENDED):
                return calls.end, Ending(*fence, "cancelled", lease.reason_detail)
            case Stopped(Reason.TIMEOUT):
                return self._failed(lease, _timeout(lease), handler)
            case Stopped(Reason.LEASE_LOST):
                return None
            case Poison(error):
                self._tell_failure(lease, error)
                _log.error("payload_undecodable", **self._names(lease), error=_text(error))
                return calls.fail, Failure(*fence, 0, 0, ErrorRecord.from_exception(error).to_bytes())
            case Unfit(error):
                return self._unfit(lease, error)
            case Raised(error, record):
                return self._raised(lease, error, record, handler)
        raise AssertionError(outcome)

    def _result(self, value: Any, handler: Handler) -> bytes | EncodeError:
        try:
            result = handler.dump_result(value)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - a hook of the user's may raise anything
            return error if type(error) is EncodeError else EncodeError(f"the result: {_text(error)}")
        if type(result) is not bytes:
            # It could not be sent, whatever was tried.
            return EncodeError(f"the result: the codec made {name_of(type(result))} of it, not bytes")
        limit = self._options.result_limit
        return (
            result
            if len(result) <= limit
            else EncodeError(f"the result has {len(result)} bytes, result_limit is {limit}")
        )

    def _raised(
        self, lease: Lease, error: BaseException, record: ErrorRecord | None, handler: Handler | None
    ) -> tuple[Any, Any]:
        c, calls = lease.claimed, lease.calls
        leaf = unfold(error)
        match leaf:
            case Snooze():
                return calls.snooze, Snoozed(c.id, c.token, c.nonce, to_ms(leaf.after))
            case RateLimited():
                return calls.rate_limited, Closing(c.id, c.token, c.nonce, to_ms(leaf.after), leaf.scope)
            case Discard():
                return calls.end, Ending(c.id, c.token, c.nonce, "discarded", bounded(leaf.reason))
            case Retry():
                return self._failed(lease, leaf, handler, delay=leaf.after, record=record, again=True)
        return self._failed(lease, error, handler, record=record)

    def _failed(
        self,
        lease: Lease,
        error: BaseException,
        handler: Handler | None,
        *,
        delay: float | None = None,
        record: ErrorRecord | None = None,
        again: bool = False,
    ) -> tuple[Any, Any]:
        self._tell_failure(lease, error)
        c = lease.claimed
        failures = c.record.failures + 1
        own = c.record.max_attempts
        budget = own if own is not None else handler.max_attempts if handler is not None else 1
        if delay is None:
            delay = self._delay(lease, error, handler)
        if delay is None and again:  # the handler's word goes before its policy's
            delay = DEFAULT_BACKOFF(failures, error, self._random)
        if delay is None:
            delay, budget = 0.0, 0
        record = record or ErrorRecord.from_exception(error)
        more: dict[str, Any] = {}
        if failures < budget and not _comes_too_late(lease, delay):
            more["retry_in"] = round(delay, 3)
        if is_by_name(error):
            more["hint"] = "policies see a RuntimeError: outside its process, its type is known by name only"
        _log.warning(
            "job_failed", **self._names(lease), error=f"{record.type}: {record.message}", failures=failures,
            max_attempts=budget, **more, **_traced(record),
        )  # fmt: skip
        return lease.calls.fail, Failure(c.id, c.token, c.nonce, to_ms(delay), budget, record.to_bytes())

    def _tell_failure(self, lease: Lease, error: BaseException) -> None:
        if self._on_failure is not None:
            self._on_failure(lease, error)

    def _delay(self, lease: Lease, error: BaseException, handler: Handler | None) -> float | None:
        failures = lease.claimed.record.failures + 1
        try:
            policy = DEFAULT_BACKOFF if handler is None else handler.backoff
            delay = policy(failures, error, self._random)
            return None if delay is None else to_seconds(to_ms(delay))
        except KeyboardInterrupt:
            raise
        except BaseException:  # noqa: BLE001 - a policy of the user's
            _log.exception("backoff_failed", **self._names(lease))
            return DEFAULT_BACKOFF(failures, error, self._random)

    def _unfit(self, lease: Lease, error: BaseException) -> tuple[Any, Any]:
        self._tell_failure(lease, error)
        c = lease.claimed
        since = int(c.record.row.get(b"unfit_since", lease.now_ms))
        waited = max(0.0, (lease.now_ms - since) / 1000)
        if waited >= self._options.deploy_window:
            _log.error("job_unfit", **self._names(lease), error=_text(error), waited=waited)
            return lease.calls.fail, Failure(c.id, c.token, c.nonce, 0, 0, ErrorRecord.from_exception(error).to_bytes())
        delay = min(UNFIT_CAP, max(UNFIT_FIRST, waited)) * self._random.uniform(0.8, 1.0)
        _log.warning("job_unfit", **self._names(lease), error=_text(error), retry_in=round(delay, 1))
        return lease.calls.snooze, Snoozed(c.id, c.token, c.nonce, to_ms(delay), unfit=True)


def _comes_too_late(lease: Lease, delay: float) -> bool:
    """Tell whether the job will be buried for its deadline, since that is over by its next attempt."""
    deadline_ms = lease.claimed.record.deadline_ms
    return deadline_ms is not None and anyio.current_time() + delay >= lease.here(deadline_ms)


def _cause(item: Any) -> str:
    """Tell why a job was buried at a verdict."""
    if type(item) is not Failure:
        return "a child of it has failed, and on_failure is fail_parent: the job's reason names it"
    record = ErrorRecord.from_bytes(item.error)
    return f"{record.type}: {record.message}"


def _incomplete(verdict: Verdict) -> RuntimeError:
    """Make the error of a job whose completion is refused, although it is its own."""
    what, _, count = verdict.detail.partition(" ")
    if verdict.code == STATE and what == "children":
        return RuntimeError(
            f"the handler returned while {count} of the job's children are open: it must let the cancellation at the end "
            "of job.nursery() pass, and the next attempt finds them ended"
        )
    return RuntimeError(f"the job's follow-ups (job.on_complete) were refused: {verdict.code} {verdict.detail}")


def _traced(record: ErrorRecord) -> dict[str, str]:
    """Answer what a log shows below its line: the frames of a failure, if it has any."""
    return {"exception": record.traceback} if '  File "' in record.traceback else {}


def _timeout(lease: Lease) -> TimeoutError:
    if not lease.at_deadline:
        seconds = time.monotonic() - lease.started_at
        return TimeoutError(f"the handler ran for {seconds:.1f} s, its timeout is {lease.timeout:g} s")
    ran = (
        f"the handler had run for {time.monotonic() - lease.started_at:.1f} s"
        if lease.started_at
        else "it had not begun"
    )
    return TimeoutError(f"the job's deadline has come; {ran}")


def bounded(reason: Any) -> str:
    """Make a handler's reason text that can be sent: whatever it is, at most 1,024 bytes of UTF-8."""
    return _text(reason).encode("utf-8", "backslashreplace")[:MAX_REASON].decode("utf-8", "ignore")


def _text(value: Any) -> str:
    if issubclass(type(value), BaseException):
        record = ErrorRecord.from_exception(value)
        return f"{record.type}: {record.message}"
    return text_of(value)
