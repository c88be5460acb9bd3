"""What every part of a queue's front needs: the names of its keys, and what runs its transitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from echomq.transitions import Call

if TYPE_CHECKING:
    from collections.abc import Callable

    from echomq._channels import Channels
    from echomq.protocol.codec import Codec
    from echomq.protocol.keys import QueueKeys
    from echomq.wire.client import WireClient


class Door(Protocol):
    """What is behind a queue: an open client, or an app that has one when it is open."""

    @property
    def wire(self) -> WireClient:
        """What runs transitions."""

    @property
    def channels(self) -> Channels:
        """Where results are told."""


class QueueBase:
    """What the parts of `Queue` share; one class in several files, not meant to be subclassed by others."""

    def __init__(self, door: Door, keys: QueueKeys, codec: Codec) -> None:
        self.keys = keys
        """The names of its keys."""
        self.codec = codec
        """What decodes results that have no declared type."""
        self._door = door
        self._decode: Callable[[bytes], Any] = codec.decode

    def __repr__(self) -> str:
        return f"<Queue {self.name!r}>"

    @property
    def wire(self) -> WireClient:
        """What runs its transitions."""
        return self._door.wire

    @property
    def channels(self) -> Channels:
        """Where results are told."""
        return self._door.channels

    @property
    def name(self) -> str:
        """Its name."""
        return self.keys.queue

    @property
    def _call(self) -> Call:
        return Call(self.wire.tag)
