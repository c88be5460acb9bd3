"""Run what is around handling: from the outermost function to the handler, and back (see `echomq.middleware`).

If you change this
    What a middleware lets pass must come out as it was: `run` decides by the very error whether a job is buried, put off
    or has failed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, final

from echomq.batches import JobBatch
from echomq.protocol._convert import shown
from echomq.protocol.failures import unfold
from echomq.worker.reasons import Poison, Raised, Returned, Unfit

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

    from echomq.batches import BatchItem
    from echomq.job import Job
    from echomq.worker.lease import Lease

Handled = Returned | Raised | Poison | Unfit
"""How a handler ended, or why it was not run."""


@final
class _Next:
    """What one middleware awaits: all that is further in."""

    __slots__ = ("_at", "_called", "_way")

    def __init__(self, way: Around, at: int) -> None:
        self._way = way
        self._at = at
        self._called = False

    async def __call__(self, *, payload: bytes | Mapping[BatchItem[Any], bytes] | None = None) -> Any:
        if self._called:
            raise RuntimeError("call() was called before: an attempt runs its handler once")
        if payload is not None:
            replace_payload(self._way.job, payload)
        self._called = True
        return await self._way.go_on(self._at)


@final
class Around:
    """One attempt's way through the middleware."""

    __slots__ = ("_coroutine", "_functions", "_handle", "_kept", "_leases", "job")

    def __init__(
        self,
        functions: Sequence[Callable[..., Awaitable[Any]]],
        job: Job | JobBatch[Any],
        handle: Callable[[], Awaitable[Handled]],
        leases: Sequence[Lease],
    ) -> None:
        """Make it.

        Args:
            functions: The middleware, the outermost first.
            job: What each of them is given.
            handle: Decodes the job's payload, as it then is, and runs the handler; answers whatever that raises.
            leases: Whose coroutine this is, for the log: the handler's takes its place while it runs.
        """
        self.job = job
        self._functions = functions
        self._handle = handle
        self._leases = leases
        self._coroutine: Coroutine[Any, Any, Any] | None = None
        self._kept: Poison | Unfit | Raised | None = None

    async def run(self) -> Handled:
        """Run it; whatever it raises is answered, a cancellation too."""
        try:
            self._coroutine = self.go_on(0)
            self._show()
            return Returned(await self._coroutine)
        except BaseException as error:  # noqa: BLE001 - whoever calls raises what is not the handler's
            if self._kept is not None and unfold(error) is self._kept.error:
                return self._kept
            return Raised(error)

    def _show(self) -> None:
        for lease in self._leases:
            lease.coroutine = self._coroutine

    async def go_on(self, at: int) -> Any:
        """Run what is further in, and answer what it returns."""
        if at < len(self._functions):
            return await self._functions[at](self.job, _Next(self, at + 1))
        outcome = await self._handle()
        self._show()
        if isinstance(outcome, Returned):
            return outcome.value
        if not isinstance(outcome, Raised) or outcome.record is not None:
            self._kept = outcome
        raise outcome.error


def replace_payload(job: Job | JobBatch[Any], payload: Any) -> None:
    """Put bytes in the place of a job's payload, or of those of a batch's items.

    Raises:
        TypeError: They are not bytes; or of a batch no mapping of its items to bytes.
    """
    if not isinstance(job, JobBatch):
        job.record = job.record.with_payload(_bytes(payload))
        return
    if not isinstance(payload, Mapping):
        raise TypeError(f"the payloads of a batch are a mapping of its items to bytes, not {shown(payload)}")
    records = {}
    for item, data in payload.items():
        if item not in job.items:
            raise TypeError(f"the payloads of a batch are by its items, and this is none: {shown(item)}")
        records[item] = item.record.with_payload(_bytes(data))
    for item, record in records.items():
        item.record = record


def _bytes(payload: Any) -> bytes:
    if not isinstance(payload, bytes):
        raise TypeError(f"a payload is bytes, not {shown(payload)}")
    return bytes(payload)
