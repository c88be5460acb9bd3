"""Settings that a program declares for its queues: told to the server when a queue is first used.

Theory of operation
    `send` puts the call into the line before whatever the queue is used for, so that a first job meets the settings
    already (unless the server has to be told the script first: that reorders independent calls). It waits for nothing: a
    task of the client's sees to it that the call is made again until it is answered, however long the server is away,
    and is forgotten when the client closes. What is set on the server stays, so a repetition does no harm, and the
    operator's word wins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, final

import anyio
import anyio.abc

from echomq._logs import Told, get_logger
from echomq.errors import EchoMQError
from echomq.transitions import configure

if TYPE_CHECKING:
    from echomq.protocol.keys import QueueKeys
    from echomq.transitions import Call, Transition
    from echomq.transitions.settings import Named
    from echomq.wire.calls import NumberedCall
    from echomq.wire.client import WireClient

FIRST_PAUSE: float = 0.5
LONGEST_PAUSE: float = 30.0
"""Seconds until settings that could not be told are told again: doubling from the first to the longest."""

_log = get_logger("echomq.client")


@final
class Declared:
    """What is declared for the queues of one client."""

    def __init__(self, wire: WireClient, tasks: anyio.abc.TaskGroup) -> None:
        self.unsent: dict[str, Named] = {}
        """The settings of queues that have not been used since they were declared, by the queue's name."""
        self._wire = wire
        self._tasks = tasks
        self._scopes: set[anyio.CancelScope] = set()

    def add(self, name: str, settings: Named) -> None:
        """Note settings of a queue, to be sent when it is next used."""
        self.unsent[name] = {**self.unsent.get(name, {}), **settings}

    def send(self, keys: QueueKeys) -> None:
        """Send what is declared for a queue, if that has not been done. Does not block."""
        if keys.queue not in self.unsent:
            return
        try:
            self._wire.check()
        except RuntimeError:  # somewhere else, where nothing can be sent: the next use will
            return
        settings = self.unsent.pop(keys.queue)

        def build(call: Call) -> Transition[bool]:
            return configure(keys, call, settings=settings, only_unset=True)

        first = self._wire.start(keys, build, verb="configure")
        scope = anyio.CancelScope()
        self._scopes.add(scope)
        self._tasks.start_soon(self._see_to, keys, first, build, scope)

    def close(self) -> None:
        """Forget what could not be sent."""
        for scope in self._scopes:
            scope.cancel()

    async def _see_to(
        self, keys: QueueKeys, call: NumberedCall, build: Callable[[Call], Transition[bool]], scope: anyio.CancelScope
    ) -> None:
        told, pause = Told(), FIRST_PAUSE
        with scope:
            while True:
                try:
                    await call.value()
                except EchoMQError as error:
                    if told.is_new(str(error)):
                        _log.warning("settings_not_declared", queue=keys.queue, error=str(error))
                else:
                    break
                await anyio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
                call = self._wire.start(keys, build, verb="configure")
        self._scopes.discard(scope)
