"""What tests of shared resources share: things that tell when they are opened and closed, and break as they are told."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import anyio

from echomq import INJECTED, App


class Pool:
    """Something that opens and closes."""

    def __init__(self) -> None:
        self.open = True


class Other(Pool):
    """Something else: a subclass is another type."""


class Third(Pool):
    """A third one."""


class Told(list[str]):
    """What has happened, in its order."""

    def provide(self, app: App, kind: type[Pool], **breaks: Any) -> None:
        """Provide a type, telling when it is opened and closed; breaking where it is said to."""
        name = kind.__name__

        async def at(moment: str) -> None:
            self.append(f"{moment} {name}")
            await anyio.lowlevel.checkpoint()
            if breaks.get(moment) == "hangs":
                await anyio.sleep_forever()
            if breaks.get(moment) == "slowly":
                await anyio.sleep(0.2)
            if breaks.get(moment) == "all the same":
                with contextlib.suppress(anyio.get_cancelled_exc_class()):
                    await anyio.sleep_forever()
            if isinstance(breaks.get(moment), BaseException):
                raise breaks[moment]

        @contextlib.asynccontextmanager
        async def factory() -> AsyncIterator[Pool]:
            await at("opens")
            pool = kind()
            try:
                yield pool
            finally:
                pool.open = False
                try:
                    await at("closes")
                    self.append(f"closed {name}")
                except anyio.get_cancelled_exc_class():
                    self.append(f"cancelled {name}")
                    raise

        app.provide(kind, factory)


def declare(app: App, queue: str, *kinds: type[Pool]) -> Any:
    """A task that asks for Pool, Other and Third."""

    @app.task(queue=queue)
    async def handle(pool: Pool = INJECTED, other: Other = INJECTED, third: Third = INJECTED) -> None: ...

    return handle


def bare(error: BaseException) -> BaseException:
    """What is in groups of one."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
