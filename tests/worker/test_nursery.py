"""Children of a running job: spawned under its token, waited for without a lease, found again by their names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import attrs
import pytest

from echomq import App, Batch, Fixed, FlowLimits, JobBatch, chain, flow, group
from echomq import child as named
from echomq.errors import JobCancelledError, JobFailedError, JobStateError
from echomq.job import Job, SyncJob
from echomq.transitions import Call, read_flow
from tests.worker.support import Peek, running, until

pytestmark = pytest.mark.anyio


@attrs.define
class Play:
    """What a handler's attempts have seen."""

    attempts: list[int] = attrs.field(factory=list)
    reasons: list[str | None] = attrs.field(factory=list)
    ran: list[Any] = attrs.field(factory=list)


def children_of(peek: Peek, id: str) -> dict[str, str | None]:
    """Answer the names of a job's children, and how each has ended."""
    page = peek.run(read_flow(peek.keys, Call("looks"), id=id, count=1000))
    return {child.name: None if child.outcome is None else child.outcome.kind for child in page.children}


async def test_nursery_suspends_its_job_and_the_next_attempt_has_the_results(
    app: App, queue_name: str, peek: Peek
) -> None:
    """The handler runs twice, each child once; the lease is given back meanwhile, and no budget is spent."""
    play = Play()

    @app.task(queue=queue_name, result_ttl=60, max_attempts=1)
    async def parent(job: Job, n: int) -> int:
        play.attempts.append(job.attempt)
        try:
            async with job.nursery() as children:
                counted = [children.enqueue(child.call(i)) for i in range(n)]
        finally:
            play.reasons.append(job.cancel_reason)
        assert await job.children_results(int) == {str(i): i * i for i in range(n)}
        assert list(await job.children_results()) == [str(i) for i in range(n)]
        assert await job.outstanding() == []
        return sum(each.result() for each in counted)

    @app.task(queue=queue_name)
    async def child(job: Job, i: int) -> int:
        assert job.parent is not None
        play.ran.append((i, job.parent.id, job.parent.queue, job.parent.name))
        return i * i

    async with app, running(app, concurrency=1) as worker:
        handle = await parent.enqueue(12)
        assert await handle.result(timeout=10) == sum(i * i for i in range(12))
        counters = worker.statistics().counters
    assert play.attempts == [1, 2]
    assert play.reasons == ["suspended", None]
    assert sorted(play.ran) == [(i, handle.id, queue_name, str(i)) for i in range(12)]
    assert (counters.suspended, counters.completed, counters.failed, counters.released) == (1, 13, 0, 0)


async def test_nursery_of_many_children_sends_them_while_the_body_goes_on(
    app: App, queue_name: str, peek: Peek
) -> None:
    """What has gathered leaves, a call at a time; nothing waits for the end of the block."""
    gate, begun = anyio.Event(), anyio.Event()

    @app.task(queue=queue_name, result_ttl=60)
    async def parent(job: Job) -> int:
        async with job.nursery() as children:
            for i in range(300):
                children.enqueue(child.call(i))
            if job.attempt == 1:
                begun.set()
                await gate.wait()
        return len(await job.children_results(int))

    @app.task(queue=queue_name)
    async def child(i: int) -> int:
        return i

    async with app, running(app):
        handle = await parent.enqueue()
        await begun.wait()
        await until(lambda: peek.count("completed") == 300)
        assert peek.state(handle.id) == "active"
        gate.set()
        assert await handle.result(timeout=10) == 300


async def test_nurseries_one_after_another_and_nested(app: App, queue_name: str) -> None:
    """Each block is passed in its turn; the names count on over all of them; what is around is sent before suspending."""
    play = Play()

    @app.task(queue=queue_name, result_ttl=60)
    async def parent(job: Job) -> list[Any]:
        play.attempts.append(job.attempt)
        async with job.nursery() as outer:
            one = outer.enqueue(child.call("one"))
            async with job.nursery() as inner:
                two = inner.enqueue(child.call("two"))
            play.ran.append("between")
        async with job.nursery() as last:
            three = last.enqueue(child.call(two.result()))
        return [(each.name, each.result()) for each in (one, two, three)]

    @app.task(queue=queue_name)
    async def child(text: str) -> str:
        play.ran.append(text)
        if text == "two!":
            await anyio.sleep(0.2)  # longer than the next attempt takes to look at it
        return text + "!"

    async with app, running(app) as worker:
        handle = await parent.enqueue()
        assert await handle.result(timeout=10) == [["0", "one!"], ["1", "two!"], ["2", "two!!"]]
        assert worker.statistics().counters.failed == 0
    assert play.attempts[:2] == [1, 2]  # and a third, if the last child has not ended when it is looked at
    assert sorted(play.ran[:2]) == ["one", "two"]
    assert play.ran[2:4] == ["between", "two!"]
    assert set(play.ran[4:]) <= {"between"}


async def test_nursery_without_children_is_passed(app: App, queue_name: str) -> None:
    """There is nothing to wait for, nor where nobody waits."""

    @app.task(queue=queue_name, result_ttl=60)
    async def parent(job: Job) -> tuple[int, bool, str | None]:
        async with job.nursery():
            pass
        async with job.nursery() as children:
            child = children.enqueue(later.options(delay=60).call(), detached=True)
        with pytest.raises(JobStateError, match="detached"):
            child.result()
        return job.attempt, child.failure is None, child.kind

    @app.task(queue=queue_name)
    async def later() -> None: ...

    async with app, running(app):
        handle = await parent.enqueue()
        assert await handle.result(timeout=10) == (1, True, None)


async def test_child_inherits_what_it_does_not_say(app: App, queue_name: str, peek: Peek) -> None:
    """Lane, deadline if it is earlier, headers and depth come from the parent; the call's own word goes first."""

    @app.task(queue=queue_name)
    async def parent(job: Job) -> None:
        async with job.nursery() as children:
            options: dict[str, Any] = {"delay": 60}
            children.enqueue(child.options(**options).call(), name="plain")
            own: dict[str, Any] = {"lane": "own", "headers": {"a": "2", "c": "3"}, "deadline": 30}
            children.enqueue(child.options(**own, **options).call(), name="own")
            children.enqueue(child.options(deadline=9000, lane="", **options).call(), name="late")

    @app.task(queue=queue_name)
    async def child() -> None: ...

    async with app, running(app):
        handle = await parent.options(lane="tenant", headers={"a": "1", "b": "1"}, deadline=100).enqueue()
        await until(lambda: peek.state(handle.id) == "waiting")
        deadline = peek.record(handle.id).deadline_ms
        page = peek.run(read_flow(peek.keys, Call("looks"), id=handle.id))
        rows = {child.name: peek.record(child.ref.id) for child in page.children}
        assert deadline is not None
        assert {name: (row.lane, row.headers, row.depth) for name, row in rows.items()} == {
            "plain": ("tenant", {"a": "1", "b": "1"}, 1),
            "own": ("own", {"a": "2", "b": "1", "c": "3"}, 1),
            "late": ("", {"a": "1", "b": "1"}, 1),
        }
        assert (rows["plain"].deadline_ms, rows["late"].deadline_ms) == (deadline, deadline)
        assert (rows["own"].deadline_ms or 0) < deadline
        await handle.cancel()


async def test_children_fail_by_their_policies(app: App, queue_name: str, peek: Peek) -> None:
    """`ignore` is told and nothing else; the failure is there in words, and raised by `result`."""

    @app.task(queue=queue_name, result_ttl=60)
    async def parent(job: Job) -> list[Any]:
        async with job.nursery(on_failure="ignore") as children:
            bad, good = children.enqueue(child.call("bad")), children.enqueue(child.call("good"))
        failure = bad.failure
        assert failure is not None
        assert failure.error is not None
        assert good.failure is None
        with pytest.raises(JobFailedError, match="ValueError: bad"):
            bad.result()
        assert await job.ignored_failures() == {"0": failure}
        assert await job.children_results(str) == {"1": "good"}
        return [failure.kind, failure.error.message, failure.queue == job.queue, good.result(list)]

    @app.task(queue=queue_name, max_attempts=1)
    async def child(text: str) -> Any:
        if text == "bad":
            raise ValueError(text)
        return text

    async with app, running(app):
        handle = await parent.enqueue()
        with pytest.raises(JobFailedError, match="the result of child '1'"):
            await handle.result(timeout=10)  # a text is no list


async def test_child_that_buries_its_parent(app: App, queue_name: str, peek: Peek) -> None:
    """With `fail_parent` the parent is not run again, and is dead with a reason that names the child."""
    play = Play()

    @app.task(queue=queue_name)
    async def parent(job: Job) -> None:
        play.attempts.append(job.attempt)
        async with job.nursery() as children:
            children.enqueue(child.call(), name="a child")

    @app.task(queue=queue_name, max_attempts=1)
    async def child() -> None:
        raise ValueError("bad")

    async with app, running(app):
        handle = await parent.enqueue()
        await until(lambda: peek.state(handle.id) == "dead")
    assert play.attempts == [1]
    assert peek.record(handle.id).reason.startswith("child a child (JOB")


async def test_child_that_runs_its_parent_while_others_are_open(app: App, queue_name: str, peek: Peek) -> None:
    """With `run_parent` the block is passed at the first failure; what is open is swept when the parent has completed."""
    hold = anyio.Event()

    @app.task(queue=queue_name, result_ttl=60)
    async def parent(job: Job) -> list[Any]:
        async with job.nursery(on_failure="run_parent") as children:
            bad, long = children.enqueue(fails.call()), children.enqueue(sleeps.call())
        with pytest.raises(JobStateError, match="open"):
            long.result()
        assert bad.failure is not None
        return [job.attempt, bad.failure.kind, await job.outstanding()]

    @app.task(queue=queue_name, max_attempts=1)
    async def fails() -> None:
        await hold.wait()
        raise ValueError("bad")

    ended: list[str | None] = []

    @app.task(queue=queue_name)
    async def sleeps(job: Job) -> None:
        hold.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(job.cancel_reason)

    async with app, running(app) as worker:
        handle = await parent.enqueue()
        assert await handle.result(timeout=10) == [2, "dead", ["1"]]
        await until(lambda: worker.statistics().counters.cancelled == 1)
    assert ended == ["parent_ended"]


async def test_nursery_in_another_queue(app: App, queue_name: str, peek: Peek) -> None:
    """A child of another queue goes by the outbox, at once, and its outcome comes back so; also where nobody else serves it."""
    other = f"{queue_name}-far"

    @app.task(queue=queue_name, result_ttl=60)
    async def parent(job: Job) -> int:
        async with job.nursery() as children:
            far = children.enqueue(child.call(20))
            near = children.enqueue(here.call(1))
        return far.result() + near.result()

    @app.task(queue=queue_name)
    async def here(i: int) -> int:
        return i

    @app.task(queue=other)
    async def child(job: Job, i: int) -> int:
        assert job.parent is not None
        assert job.parent.queue == queue_name
        return i

    async with app, running(app, queues=[queue_name]), running(app, queues=[other]):
        handle = await parent.enqueue()
        assert await handle.result(timeout=10) == 21
    assert not peek.client.exists(peek.keys.outbox)


async def test_child_may_be_a_flow_or_a_chain(app: App, queue_name: str) -> None:
    """What hangs below a child is added with it, here or in another queue, and the child has the last word."""
    other = f"{queue_name}-far"

    @app.task(queue=queue_name, result_ttl=60)
    async def parent(job: Job) -> list[Any]:
        async with job.nursery() as children:
            tree = children.enqueue(flow(add.call(), [one.call(1), one.call(2), far.call(3)]))
            line = children.enqueue(named(chain(one.call(5), double.call(), double.call()), name="line"))
            away = children.enqueue(flow(far_add.call(), [far.call(7), one.call(8)]), name="away")
        return [tree.result(), line.result(int), away.result(), line.name]

    @app.task(queue=queue_name)
    async def one(job: Job, i: int) -> int:
        assert job.record.depth >= 1
        assert job.record.lane == "tenant"
        return i

    @app.task(queue=other)
    async def far(job: Job, i: int) -> int:
        assert job.record.lane == "tenant"
        return i

    @app.task(queue=queue_name)
    async def double(job: Job) -> int:
        return 2 * await job.previous_result(int)

    @app.task(queue=queue_name)
    async def add(job: Job) -> int:
        return sum((await job.children_results(int)).values())

    @app.task(queue=other)
    async def far_add(job: Job) -> int:
        return sum((await job.children_results(int)).values())

    async with app, running(app):
        handle = await parent.options(lane="tenant").enqueue()
        assert await handle.result(timeout=10) == [6, 20, 15, "line"]


async def test_body_that_raises_suspends_nothing(app: App, queue_name: str, peek: Peek) -> None:
    """The error is what it was, in no group, and the attempt has failed; the next one finds what was sent."""
    play = Play()

    @app.task(queue=queue_name, result_ttl=60, backoff=lambda *_: 0.0)
    async def parent(job: Job) -> int:
        play.attempts.append(job.attempt)
        try:
            async with job.nursery() as children:
                one = children.enqueue(child.call(1), name="one")
                await until(lambda: peek.count("completed") == 1)
                _ = {2: "the second"}[job.attempt]
        except Exception as error:
            play.reasons.append(type(error).__name__)
            raise
        return one.result()

    @app.task(queue=queue_name)
    async def child(i: int) -> int:
        play.ran.append(i)
        return i

    async with app, running(app) as worker:
        handle = await parent.enqueue()
        assert await handle.result(timeout=10) == 1
        assert worker.statistics().counters.suspended == 0
        error = peek.record(handle.id).error
    assert play.attempts == [1, 2]
    assert play.ran == [1]
    assert error is not None
    assert error.type == "KeyError"
    assert play.reasons == ["KeyError"]


async def test_handler_that_swallows_its_suspension_has_failed(app: App, queue_name: str, peek: Peek) -> None:
    """It returned while children are open: the completion is refused, and the error says what to do."""

    @app.task(queue=queue_name, max_attempts=1)
    async def parent(job: Job) -> None:
        try:
            async with job.nursery() as children:
                children.enqueue(child.options(delay=60).call())
        except anyio.get_cancelled_exc_class():
            pass

    @app.task(queue=queue_name)
    async def child() -> None: ...

    async with app, running(app):
        handle = await parent.enqueue()
        await until(lambda: peek.state(handle.id) == "dead")
    error = peek.record(handle.id).error
    assert error is not None
    assert "1 of the job's children are open" in error.message


def _twice(children: Any, call: Any) -> None:
    children.enqueue(call, name="a")
    children.enqueue(call, name="a")


def _many(children: Any, call: Any) -> None:
    for _ in range(261):
        children.enqueue(call)


REFUSED: dict[str, tuple[type[Exception], str, Callable[[Any, Any, Any], object]]] = {
    "twice": (ValueError, "is named 'a' already", lambda children, call, _: _twice(children, call)),
    "no call": (TypeError, "is a task's call", lambda children, _, __: children.enqueue(7)),
    "several": (ValueError, "is several children", lambda children, call, _: children.enqueue(group([call, call]))),
    "large": (ValueError, "let the child spawn", lambda children, call, _: children.enqueue(flow(call, [call] * 256))),
    "large elsewhere": (ValueError, "257 jobs", lambda children, _, far: children.enqueue(flow(far, [far] * 256))),
    "long elsewhere": (ValueError, "257 jobs", lambda children, _, far: children.enqueue(chain(*[far] * 257))),
    "many": (ValueError, "the limit is 260 (flow_limits)", lambda children, call, _: _many(children, call)),
    "long": (
        ValueError,
        "limit of 300 (flow_limits)",
        lambda children, call, _: children.enqueue(chain(*[call] * 301)),
    ),
    "name": (ValueError, "1 to 128 bytes", lambda children, call, _: children.enqueue(call, name="x" * 129)),
    "no text": (ValueError, "a child's name is", lambda children, call, _: children.enqueue(call, name=7)),
    "named twice": (
        ValueError,
        "named twice, 'b' and 'a'",
        lambda children, call, _: children.enqueue(named(call, name="a"), name="b"),
    ),
    "policy": (
        ValueError,
        "on_failure is one of",
        lambda children, call, _: children.enqueue(call, on_failure="detach"),
    ),
    "detached": (
        ValueError,
        "nobody hears",
        lambda children, call, _: children.enqueue(call, detached=True, on_failure="ignore"),
    ),
    "detached child": (
        ValueError,
        "nobody hears",
        lambda children, call, _: children.enqueue(named(call, on_failure="ignore"), detached=True),
    ),
    "yes": (TypeError, "not 'yes'", lambda children, call, _: children.enqueue(call, detached="yes")),
    "mode": (
        ValueError,
        "dedup_mode",
        lambda children, _, far: children.enqueue(far),
    ),
}
"""What is wrong, how it is told, and how it is done with a nursery, a call here and a call elsewhere."""


@pytest.mark.parametrize("wrong", [*REFUSED, "of all", "after", "deep"])
async def test_nursery_refuses_what_it_cannot_do(server_url: str, queue_name: str, wrong: str) -> None:
    """Each is told where it is made, and nothing is sent."""
    seen: list[BaseException] = []
    app = App(server_url, flow_limits=FlowLimits(breadth=260, chain=300))

    @app.task(queue=queue_name, max_attempts=1)
    async def parent(job: Job) -> None:
        call: Any = child.options(delay=600).call()
        try:
            async with job.nursery(on_failure="never" if wrong == "of all" else "ignore") as children:
                if wrong in REFUSED:
                    REFUSED[wrong][2](children, call, far)
                elif wrong == "deep":
                    children.enqueue(parent.call(), detached=True)
            if wrong == "after":
                children.enqueue(call)
        except Exception as given:
            seen.append(given)
            raise

    @app.task(queue=queue_name)
    async def child() -> None: ...

    stub = app.task_stub("far", queue=f"{queue_name}-b")
    far = (stub.options(dedup="k", dedup_mode="replace") if wrong == "mode" else stub).call()

    async with app, running(app, max_depth=2):
        await parent.enqueue()
        await until(lambda: seen)
    others: dict[str, tuple[type[Exception], str]] = {
        "of all": (ValueError, "on_failure is one of"),
        "after": (RuntimeError, "block is over"),
        "deep": (ValueError, "max_depth is 2"),
    }
    error, words = others[wrong] if wrong in others else REFUSED[wrong][:2]
    assert isinstance(seen[0], error)
    assert words in str(seen[0])


async def test_name_that_was_used_is_that_child_wherever_it_is(app: App, queue_name: str, peek: Peek) -> None:
    """What the first attempt has enqueued by a name counts: its queue, its attempts, and its end."""
    seen: list[Any] = []

    @app.task(queue=queue_name)
    async def parent(job: Job) -> None:
        async with job.nursery(on_failure="ignore") as children:
            one = children.enqueue((near if job.attempt == 1 else far).call(), name="x")
        assert one.failure is not None
        seen.append((one.queue, one.failure.attempts, str(one.failure.raised())))

    @app.task(queue=queue_name, max_attempts=2, backoff=Fixed(0))
    async def near() -> None:
        raise ValueError("v")

    @app.task(queue=f"{queue_name}-b")
    async def far() -> None: ...

    async with app, running(app):
        await parent.enqueue()
        await until(lambda: seen)
    ((queue, attempts, words),) = seen
    assert (queue, attempts) == (queue_name, 2)
    assert "failed after 2 attempts: ValueError: v" in words


async def test_nursery_is_for_coroutine_functions(app: App, queue_name: str) -> None:
    """Neither a thread nor an item of a batch can be suspended, and each is told so."""
    seen: list[str] = []

    @app.task(queue=queue_name)
    def plain(job: SyncJob) -> None:
        with pytest.raises(TypeError, match="coroutine functions") as caught:
            job.nursery()
        seen.append(str(caught.value))

    @app.task(queue=f"{queue_name}-batch", batch=Batch(max_size=2))
    async def batched(batch: JobBatch[int]) -> None:
        for item in batch:
            with pytest.raises(TypeError, match="item of a batch") as caught:
                item.nursery()
            seen.append(str(caught.value))

    async with app, running(app):
        await plain.enqueue()
        await batched.enqueue(1)
        await until(lambda: len(seen) == 2)


async def test_nursery_within_a_shield_says_so(app: App, queue_name: str, peek: Peek) -> None:
    """A handler that would not hear of its suspension fails, instead of hanging."""

    @app.task(queue=queue_name, max_attempts=1)
    async def parent(job: Job) -> None:
        with anyio.CancelScope(shield=True):
            async with job.nursery() as children:
                children.enqueue(child.options(delay=60).call())

    @app.task(queue=queue_name)
    async def child() -> None: ...

    async with app, running(app):
        handle = await parent.enqueue()
        await until(lambda: peek.state(handle.id) == "dead")
    error = peek.record(handle.id).error
    assert error is not None
    assert "shielded" in error.message


async def test_parent_may_be_cancelled_while_it_waits(app: App, queue_name: str, peek: Peek) -> None:
    """A person's word ends it, and what is below it; the child that runs hears that its parent is over."""
    begun = anyio.Event()
    ended: list[str | None] = []

    @app.task(queue=queue_name, result_ttl=60)
    async def parent(job: Job) -> None:
        async with job.nursery() as children:
            children.enqueue(child.call())

    @app.task(queue=queue_name)
    async def child(job: Job) -> None:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(job.cancel_reason)

    async with app, running(app):
        handle = await parent.enqueue()
        await until(lambda: peek.state(handle.id) == "waiting" and begun.is_set())
        await handle.cancel(reason="not needed")
        with pytest.raises(JobCancelledError, match="not needed"):
            await handle.result(timeout=10)
        await until(lambda: ended)
    assert ended == ["parent_ended"]
