"""Children as plain functions read them, in threads and in processes, and as whoever reads them finds them."""

from __future__ import annotations

import inspect
from typing import Any

import anyio
import pytest

from echomq import App, chain, child, flow
from echomq.children import by_name
from echomq.errors import DecodeError, JobFailedError
from echomq.flows import Node
from echomq.job import Job
from tests.worker import process_jobs
from tests.worker.support import Peek, running, until

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("place", ["thread", "process"])
async def test_plain_function_reads_its_children(app: App, queue_name: str, place: Any) -> None:
    """What a coroutine awaits, a plain function gets; its follow-up comes with its completion."""
    told: list[str] = []

    parent = app.task(queue=queue_name, run_in=place, result_ttl=60)(process_jobs.parent)

    @app.task(queue=queue_name, max_attempts=1)
    async def one(i: int) -> int:
        if i < 0:
            raise ValueError
        return i

    @app.task(queue=queue_name)
    async def after(text: str) -> None:
        told.append(text)

    async with app, running(app, pool=1, lease=30.0):
        nodes: list[Node] = [one.call(1), one.call(2), child(one.call(-1), on_failure="ignore")]
        handle = await app.flows.add(flow(parent.call("told"), nodes))
        found: Any = await handle.result(timeout=30)
        assert found == [{"0": 1, "1": 2}, [], [["2", "dead"]], True]
        await until(lambda: told)
    assert told == ["told"]


async def test_link_reads_the_one_before_and_nothing_else(app: App, queue_name: str) -> None:
    """A job without a child, with several, or with one that has failed is told so; the type is checked."""
    seen: dict[str, Any] = {}

    async def look(job: Job, kind: Any = Any) -> None:
        try:
            seen[job.task] = await job.previous_result(kind)
        except Exception as error:
            seen[job.task] = error

    @app.task(queue=queue_name, max_attempts=1)
    async def first(good: bool) -> str:
        if not good:
            raise ValueError("bad")
        return "text"

    @app.task(queue=queue_name)
    async def alone(job: Job) -> None:
        await look(job)

    @app.task(queue=queue_name)
    async def several(job: Job) -> None:
        await look(job)

    @app.task(queue=queue_name)
    async def failed(job: Job) -> None:
        await look(job)

    @app.task(queue=queue_name)
    async def wrong(job: Job) -> None:
        await look(job, int)

    @app.task(queue=queue_name)
    async def right(job: Job) -> None:
        await look(job, str)

    async with app, running(app):
        await alone.enqueue()
        await app.flows.add(flow(several.call(), [first.call(True), first.call(True)]))
        await app.flows.add(chain(child(first.call(False), on_failure="ignore"), failed.call()))
        await app.flows.add(chain(first.call(True), wrong.call()))
        await app.flows.add(chain(first.call(True), right.call()))
        await until(lambda: len(seen) == 5)
    assert seen["right"] == "text"
    assert "no children" in str(seen["alone"])
    assert "2 children" in str(seen["several"])
    assert isinstance(seen["failed"], JobFailedError)
    assert isinstance(seen["wrong"], DecodeError)
    assert "the result of child '0'" in str(seen["wrong"])


async def test_result_of_a_child_is_kept_for_its_parent_alone(app: App, queue_name: str, peek: Peek) -> None:
    """A child without `result_ttl` leaves no row, and one that returns what cannot be written has failed."""

    @app.task(queue=queue_name, result_ttl=60)
    async def parent(job: Job) -> dict[str, str]:
        return {name: failure.kind for name, failure in (await job.ignored_failures()).items()}

    @app.task(queue=queue_name, max_attempts=1)
    async def odd() -> Any:
        return {object()}

    async with app, running(app):
        handle = await app.flows.add(flow(parent.call(), [child(odd.call(), on_failure="ignore")]))
        assert await handle.result(timeout=10) == {"0": "dead"}


async def test_result_of_a_child_in_a_process_reaches_its_parent(app: App, queue_name: str) -> None:
    """The worker is given it, though the row does not ask for one."""
    add = app.task(queue=queue_name, run_in="process")(process_jobs.add)

    @app.task(queue=queue_name, result_ttl=60)
    async def parent(job: Job) -> int:
        return sum((await job.children_results(int)).values())

    async with app, running(app, pool=1, lease=30.0):
        handle = await app.flows.add(flow(parent.call(), [add.call(1, 2), add.call(3, 4)]))
        assert await handle.result(timeout=30) == 10


async def test_many_children_are_read_page_by_page(app: App, queue_name: str) -> None:
    """Also more of them than one reply holds; in the order of their numbers."""
    with anyio.fail_after(30):

        @app.task(queue=queue_name, result_ttl=60)
        async def parent(job: Job) -> bool:
            found = await job.children_results(int)
            return list(found.items()) == [(str(i), i) for i in range(700)]

        @app.task(queue=queue_name)
        async def one(i: int) -> int:
            return i

        async with app, running(app, concurrency=100):
            handle = await app.flows.add(flow(parent.call(), [one.call(i) for i in range(700)]))
            assert await handle.result() is True


def test_names_are_in_the_order_of_their_numbers() -> None:
    """Numbers within them count as such."""
    names = ["b", "10", "2", "a10", "a9", "a", "x1y2", "x1y10"]
    assert sorted(names, key=by_name) == ["2", "10", "a", "a9", "a10", "b", "x1y2", "x1y10"]
    assert inspect.iscoroutinefunction(Job.children_results)
