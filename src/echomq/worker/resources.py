"""Open what handlers share, keep it while they run, and close it (see `echomq.resources`).

Theory of operation
    One task holds everything: each value is opened within the block of the one before, and the innermost block waits for
    the last handler to end. So a provider may keep a task group or a cancel scope open, which belong to one task and
    nest. Each block has a cancel scope of its own: a stop that comes while a value is being opened cancels that one
    alone, and those that are open are closed in peace.

If you change this
    Nothing of a provider may be awaited in another task. A provider's error ends its own block: those around it close as
    if nothing had happened. The worker stops with the first error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import anyio

from echomq._logs import get_logger
from echomq.protocol._convert import type_name
from echomq.protocol.failures import holds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from echomq.resources import Provider

_log = get_logger("echomq.worker")


@final
class Resources:
    """What one worker's handlers share."""

    def __init__(self, providers: Sequence[Provider], *, failed: Callable[[BaseException], None]) -> None:
        """Make it.

        Args:
            providers: What is to be opened, in this order.
            failed: Told of each error when it happens; the worker is then to stop.
        """
        self._providers = providers
        self._failed = failed
        self._values: dict[Any, Any] = {}
        self._opening: anyio.CancelScope | None = None
        self._stopping = self._broken = False
        self._opened = anyio.Event()
        self._unneeded = anyio.Event()
        self._closed = anyio.Event()

    @property
    def values(self) -> Mapping[Any, Any]:
        """What is open, by type."""
        return self._values

    def stop(self) -> None:
        """Open nothing more; what is being opened is cancelled."""
        self._stopping = True
        if self._opening is not None:
            self._opening.cancel()

    async def wait_open(self) -> None:
        """Wait until all is open, or never will be. **Cancellation**: at any moment, without effect."""
        await self._opened.wait()

    async def close(self) -> None:
        """Close all, now that no handler runs, and wait for it. **Cancellation**: closing goes on."""
        self._unneeded.set()
        await self._closed.wait()

    async def hold(self) -> None:
        """Open all, keep it until `close` is called, close it.

        **Cancellation**: what is open is closed, as far as its provider does that while it is cancelled.
        """
        try:
            await self._hold(0)
        finally:
            self._opened.set()
            self._closed.set()

    def _check_unneeded(self, provider: Provider) -> None:
        """Refuse a provider that has ended by itself, swallowing a cancellation of its own."""
        if self._opened.is_set() and not self._unneeded.is_set() and not self._broken:
            msg = f"the provider of {type_name(provider.type)} closed it while handlers may need it"
            raise RuntimeError(msg)

    async def _hold(self, at: int) -> None:
        if at == len(self._providers):
            self._opened.set()
            await self._unneeded.wait()
            return
        if self._stopping:
            return
        provider = self._providers[at]
        scope = self._opening = anyio.CancelScope()
        try:
            with scope:
                async with provider.factory() as value:
                    self._opening = None
                    self._values[provider.type] = value
                    await self._hold(at + 1)
            self._check_unneeded(provider)
        except BaseException as error:
            if holds(error, anyio.get_cancelled_exc_class()):
                _log.warning("resource_cancelled", resource=type_name(provider.type))
                raise
            self._broken = True
            _log.error("resource_failed", resource=type_name(provider.type), error=repr(error))
            self._failed(error)
        finally:
            self._opening = None
