"""Tasks without handles."""

from __future__ import annotations

import anyio
import pytest

from echomq.worker.spawn import scope_class, spawner

pytestmark = pytest.mark.anyio


async def test_spawn_runs_a_task_in_the_group() -> None:
    """What is started runs before the group ends, on each backend."""
    seen: list[int] = []

    async def note(value: int) -> None:
        seen.append(value)

    async with anyio.create_task_group() as tasks:
        spawner(tasks)(note, 1)
    assert seen == [1]


async def test_spawn_takes_the_short_way_on_trio(anyio_backend_name: str) -> None:
    """On trio the nursery is used directly: a third of what a short job costs hangs on an attribute that may go."""
    async with anyio.create_task_group() as tasks:
        direct = spawner(tasks) != tasks.start_soon, scope_class(tasks) is not anyio.CancelScope
    assert direct == ((anyio_backend_name == "trio"),) * 2


async def test_scope_is_the_backends(anyio_backend_name: str) -> None:
    """It cancels what it encloses, at its deadline too; on trio it is trio's own."""
    async with anyio.create_task_group() as tasks:
        make = scope_class(tasks)
        with make(deadline=anyio.current_time() + 0.01) as scope:
            await anyio.sleep(30)
        assert scope.cancel_called
        assert type(scope).__module__.partition(".")[0] == ("trio" if anyio_backend_name == "trio" else "anyio")
