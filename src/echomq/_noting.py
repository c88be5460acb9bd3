"""What a worker does for a job in a handler's hands: the far side of `Job` and `SyncJob`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from echomq.children import ChildFailure, Nursery, Stage


class Family(Protocol):
    """What a lease knows of its job's children, and keeps for its completion."""

    async def children_results(self, type: Any) -> dict[str, Any]:
        """Answer what those returned that have completed."""

    async def ignored_failures(self) -> dict[str, ChildFailure]:
        """Answer how those failed whose failure does not bury the parent."""

    async def outstanding(self) -> list[str]:
        """Answer the names of those that have not ended."""

    async def previous_result(self, type: Any) -> Any:
        """Answer what the only child returned."""

    def open_nursery(self, on_failure: str) -> AbstractAsyncContextManager[Nursery]:
        """Open a nursery."""


class BlockingFamily(Protocol):
    """The same for a plain function, wherever it runs."""

    def children_results(self, type: Any) -> dict[str, Any]:
        """Answer what those returned that have completed."""

    def ignored_failures(self) -> dict[str, ChildFailure]:
        """Answer how those failed whose failure does not bury the parent."""

    def outstanding(self) -> list[str]:
        """Answer the names of those that have not ended."""

    def previous_result(self, type: Any) -> Any:
        """Answer what the only child returned."""


class Seen(Protocol):
    """What can be known of a held job without waiting."""

    @property
    def reason(self) -> str | None:
        """Why the handler is being stopped; None while it is not."""

    def load_checkpoint(self) -> Any:
        """Decode the state that the last attempt kept."""

    @property
    def stage(self) -> Stage:
        """What keeps follow-ups until it has completed."""


class Notes(Seen, Protocol):
    """What the worker's lease does for the job it holds."""

    async def progress(self, done: float, total: float | None, message: str | None) -> None:
        """Send a progress note, now or soon."""

    async def checkpoint(self, state: Any, step: int | None) -> None:
        """Send a checkpoint."""

    async def log(self, line: str) -> None:
        """Send a log line."""

    @property
    def family(self) -> Family:
        """Its children."""


class BlockingNotes(Seen, Protocol):
    """The same for a plain function, wherever it runs."""

    def progress(self, done: float, total: float | None, message: str | None) -> None:
        """Send a progress note, now or soon."""

    def checkpoint(self, state: Any, step: int | None) -> None:
        """Send a checkpoint."""

    def log(self, line: str) -> None:
        """Send a log line."""

    @property
    def family(self) -> BlockingFamily:
        """Its children."""
