"""A queue with one handler and no tasks: the handler gets the decoded payload, and the job if it asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from echomq._signature import Signature, is_async
from echomq.backoff import Backoff, Exponential
from echomq.batches import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from echomq.protocol.codec import Codec
    from echomq.tasks import Place


@final
class RawHandler:
    """A function as the handler of everything a queue holds."""

    name = ""
    max_attempts = 3
    timeout: float | None = None
    batch: Batch | None = None
    run_in: Place | None = None

    def __init__(self, queue: str, function: Callable[..., Any], codec: Codec) -> None:
        self.queue = queue
        self.function = function
        self.is_async = is_async(function)
        self.backoff: Backoff = Exponential()
        self._codec = codec
        self._signature = Signature(f"of queue {queue}", function)
        self.job_parameter = self._signature.job_parameter
        self.injected = self._signature.injected
        if self.injected:
            raise TypeError(
                f"the handler of queue {queue!r} is of no app, so nothing provides {', '.join(self.injected)}"
            )

    def load_arguments(self, payload: bytes) -> tuple[list[Any], dict[str, Any]]:
        """Decode the payload: the handler's one argument."""
        return [self._codec.decode(payload)], {}

    def inject(
        self, job: Any, args: list[Any], kwargs: dict[str, Any], resources: Mapping[Any, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """Add the job to the arguments."""
        return self._signature.inject(job, args, kwargs)

    def dump_result(self, value: Any) -> bytes:
        """Encode what the handler returned."""
        return self._codec.encode(value)
