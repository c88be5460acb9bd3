"""The pump: bounded rounds of housekeeping that any worker may run and none leads."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import anyio

from echomq._logs import Told, get_logger
from echomq.errors import EchoMQError
from echomq.transitions import MAX_ROUND, Call, trim

if TYPE_CHECKING:
    from collections.abc import Iterable

    from echomq.worker.calls import QueueCalls

EVERY: float = 5.0
"""Seconds between two rounds, shortened by up to a half so that many workers do not pump in step."""

_log = get_logger("echomq.worker")


async def run_pump(queues: Iterable[QueueCalls]) -> None:
    """Trim every queue every few seconds, in bounded rounds. Runs until cancelled."""
    queues = tuple(queues)
    told = Told()
    while True:
        await anyio.sleep(EVERY * random.uniform(0.5, 1.0))
        for calls in queues:
            try:
                while (
                    await calls.wire.run(trim(calls.keys, Call(calls.wire.tag), bound=MAX_ROUND), route="bulk")
                    >= MAX_ROUND
                ):
                    pass
                told.over(calls.queue)
            except EchoMQError as error:
                if told.is_new(str(error), calls.queue):
                    _log.warning("pump_failed", queue=calls.queue, error=str(error))
