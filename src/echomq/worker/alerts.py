"""Tells the queues of a worker which task is to hear of dead jobs (`@app.on_dead`)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, final

import anyio

from echomq._logs import Told, get_logger
from echomq.errors import EchoMQError
from echomq.transitions import configure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from echomq.protocol.keys import QueueKeys
    from echomq.wire.client import WireClient

FIRST_PAUSE: float = 0.5
LONGEST_PAUSE: float = 30.0
"""Seconds until a queue that could not be told is told again: doubling from the first to the longest."""

_log = get_logger("echomq.worker")


@final
class Alerts:
    """What some queues are to be told."""

    def __init__(self, wire: WireClient, tasks: Mapping[QueueKeys, str]) -> None:
        """Make it.

        Args:
            wire: What tells them.
            tasks: The task's name for each queue that has one.
        """
        self._wire = wire
        self._tasks = tasks

    async def run(self) -> None:
        """Tell each, however long the server is away. One that refuses keeps no other back."""
        left, told, pause = dict(self._tasks), Told(), FIRST_PAUSE
        while left:
            for keys, task in tuple(left.items()):
                build = partial(configure, keys, settings={"on_dead": task})
                try:
                    await self._wire.remembered(keys, build, verb="configure")
                except EchoMQError as error:
                    if told.is_new(str(error), keys.queue):
                        _log.warning("on_dead_not_set", queue=keys.queue, task=task, error=str(error))
                else:
                    del left[keys]
            if left:
                await anyio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
