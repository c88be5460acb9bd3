"""A subscription of a program that blocks."""

from __future__ import annotations

import time
from typing import Final, final

import redis

from echomq._follow import REREAD_AFTER
from echomq.sync.runner import BROKEN, mapped, reply_text

_PAUSE: Final = 0.2
"""Seconds before a lost subscription is tried again."""


@final
class Listener:
    """A subscription to one channel. A lost connection is opened again; the row is read in between."""

    def __init__(self, pool: redis.ConnectionPool, channel: str) -> None:
        self._pool = pool
        self._channel = channel
        self._pubsub: redis.client.PubSub | None = None

    def open(self) -> None:
        """Subscribe, if that does not stand, and wait for the confirmation: then no later message is missed.

        Raises:
            PermissionDeniedError: The ACL user may not listen to it.
        """
        if self._pubsub is not None:
            return
        self._pubsub = redis.client.PubSub(self._pool)
        try:
            self._pubsub.subscribe(self._channel)
            self._pubsub.get_message(timeout=REREAD_AFTER)
        except (redis.RedisError, OSError) as error:
            self._lost(error)

    def wait(self, seconds: float, deaf: frozenset[bytes]) -> None:
        """Wait for a message that is not one of these, or for the time to pass."""
        if self._pubsub is None:
            time.sleep(min(seconds, _PAUSE))
            return
        until = time.monotonic() + seconds
        try:
            while (left := until - time.monotonic()) > 0:
                message = self._pubsub.get_message(timeout=left)
                if message is not None and not (message["type"] == "message" and message["data"] in deaf):
                    return
        except (redis.RedisError, OSError) as error:
            self._lost(error)

    def close(self) -> None:
        """Give the connection back."""
        if self._pubsub is not None:
            self._pubsub.close()
            self._pubsub = None

    def _lost(self, error: Exception) -> None:
        self.close()
        if reply_text(error) is not None and not isinstance(error, BROKEN):
            raise mapped(error, call=f"SUBSCRIBE {self._channel}") from error
