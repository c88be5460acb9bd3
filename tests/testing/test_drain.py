"""`drain` and `advance`: all of an app's jobs on a real server, in this event loop, without sleeping."""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
import redis

import echomq
from echomq import App, Fixed, Job
from echomq.testing import _scripts as scripts
from echomq.testing import advance, drain
from echomq.transitions import ALL_VERBS
from echomq.worker import calls, intake
from tests.worker.support import Peek

pytestmark = pytest.mark.anyio
HOUR = 3600.0


class DeclinedError(Exception):
    """What a handler raises."""


@pytest.fixture
async def app(server_url: str) -> AsyncIterator[App]:
    """An app that is open."""
    app = App(server_url, unavailable_after=5.0)
    async with app:
        yield app


@pytest.fixture
def peek(redis_client: redis.Redis, queue_name: str) -> Peek:
    """The test's queue behind everybody's back."""
    return Peek(redis_client, queue_name)


# --- until the queues are empty -----------------------------------------------------------------


async def test_drain_runs_what_there_is_and_what_comes_of_it(app: App, queue_name: str) -> None:
    """Jobs that jobs enqueue, in other queues of the app too, follow-ups, and attempts that are due at once."""
    ran: list[str] = []
    other = f"{queue_name}-2"

    @app.task(queue=queue_name, backoff=Fixed(0), max_attempts=3)
    async def first(job: Job) -> None:
        ran.append("first")
        if job.attempt < 3:
            raise echomq.Retry(after=0)
        await second.enqueue(2)
        job.on_complete.enqueue(second.call(0))

    @app.task(queue=other)
    async def second(left: int) -> None:
        ran.append(f"second {left}")
        if left:
            await back.enqueue(left - 1)

    @app.task(queue=queue_name)
    async def back(left: int) -> None:
        await second.enqueue(left)

    await first.enqueue()
    done = await drain(app)
    assert sorted(ran) == ["first"] * 3 + ["second 0", "second 0", "second 1", "second 2"]
    assert (done.completed, done.failed, done.dead, done.later, done.waiting) == (7, 2, 0, 0, 0)
    assert [type(each.error) for each in done.failures] == [echomq.Retry, echomq.Retry]


async def test_drain_follows_jobs_to_and_fro(app: App, queue_name: str) -> None:
    """A job that is in the one queue when the other is looked at keeps it."""
    other, ran = f"{queue_name}-2", []

    @app.task(queue=queue_name)
    async def to(left: int) -> None:
        ran.append(left)
        await fro.enqueue(left - 1)

    @app.task(queue=other)
    async def fro(left: int) -> None:
        ran.append(left)
        if left:
            await to.enqueue(left - 1)

    await to.enqueue(39)
    assert (await drain(app)).completed == 40
    assert ran == [*range(39, -1, -1)]


async def test_drain_waits_for_what_others_hold(app: App, queue_name: str, peek: Peek) -> None:
    """A job that another worker has claimed keeps it; it is run here if that one's lease ends."""
    ran = []

    @app.task(queue=f"{queue_name}-2")
    async def never() -> None: ...

    @app.task(queue=queue_name)
    async def note() -> None:
        ran.append(1)

    handle = await note.enqueue()
    peek.claim(lease=600)
    over = anyio.Event()

    async def drained() -> None:
        await drain(app)
        over.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(drained)
        with anyio.move_on_after(0.3):
            await over.wait()
        assert not over.is_set()
        peek.expire(handle.id)
    assert ran == [1]


async def test_drain_runs_flows(app: App, queue_name: str) -> None:
    """Parents and children, also in two queues, and jobs that spawn."""

    @app.task(queue=f"{queue_name}-2", result_ttl=60)
    async def count(n: int) -> int:
        return n

    @app.task(queue=queue_name, result_ttl=60)
    async def total(job: Job) -> int:
        async with job.nursery() as children:
            counts = [children.enqueue(count.call(n)) for n in range(3)]
        return sum(each.result() for each in counts) + sum((await job.children_results(int)).values())

    flow = await app.flows.add(echomq.flow(total.call(), {"a": count.call(10)}))
    assert (await drain(app)).waiting == 0
    assert await flow.result(timeout=0) == 16


async def test_drain_of_nothing_ends(app: App, queue_name: str) -> None:
    """It tells that nothing was run, and may be called again."""

    @app.task(queue=queue_name)
    async def never() -> None: ...

    for _ in range(2):
        done = await drain(app)
        assert (done.completed, done.later, done.failures) == (0, 0, ())


async def test_drain_opens_an_app_that_is_closed(server_url: str, queue_name: str) -> None:
    """And closes it again."""
    app = App(server_url)
    ran = []

    @app.task(queue=queue_name)
    async def note() -> None:
        ran.append(1)

    async with app:
        await note.enqueue()
    await drain(app)
    assert ran == [1]
    assert not app.is_open


async def test_drain_refuses_nonsense(app: App, queue_name: str) -> None:
    """Before anything runs."""
    with pytest.raises(TypeError, match="no task"):
        await drain(app)

    @app.task(queue=queue_name)
    async def never() -> None: ...

    with pytest.raises(TypeError, match="burst"):
        await drain(app, burst=True)
    with pytest.raises(TypeError, match="no task on queue 'elsewhere'"):
        await drain(app, queues=["elsewhere"])
    with pytest.raises(ValueError, match="timeout"):
        await drain(app, timeout=0)
    with pytest.raises(ValueError, match="century"):
        await drain(app, ahead=-1)
    for wrong in (queue_name, b"a", 3, None):
        with pytest.raises(TypeError, match=r"queues= is several names, as in \['mails'\], not"):
            await drain(app, queues=wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="queues= is several names"):
            await echomq.run_worker(app, queues=wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"provide= is a mapping of types to values, not \[\]"):
        await drain(app, provide=[])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="an app's, not those of 3"):
        await drain(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("anyio_backend", ["trio"])  # it waits for real time
async def test_drain_tells_what_keeps_it(app: App, queue_name: str) -> None:
    """When its time is over, handlers are cancelled, and their jobs go back."""
    cancelled = []

    @app.task(queue=queue_name)
    async def dawdle() -> None:
        try:
            await anyio.sleep(60)
        finally:
            cancelled.append(True)

    await dawdle.enqueue()
    with pytest.raises(TimeoutError, match=rf"1 handlers were running here; queue '{queue_name}' has 1 claimed"):
        await drain(app, timeout=5)
    assert cancelled == [True]
    counts = await app.queue(queue_name).counts()
    assert (counts.pending, counts.active) == (1, 0)


async def test_drain_passes_a_providers_error(app: App, queue_name: str) -> None:
    """What the worker could not open is what the test sees."""

    @app.provide
    async def open_text() -> AsyncIterator[str]:
        raise DeclinedError("no text")
        yield ""

    @app.task(queue=queue_name)
    async def use(text: str = echomq.INJECTED) -> None: ...

    with pytest.raises(DeclinedError, match="no text"):
        await drain(app)


async def test_drain_provides_what_the_test_gives(app: App, queue_name: str) -> None:
    """In the place of the app's own, which is not opened; what is not given is."""
    seen: list[Any] = []

    @app.provide
    async def open_text() -> AsyncIterator[str]:
        raise AssertionError("not in a test")
        yield ""

    @app.provide
    async def open_number() -> AsyncIterator[int]:
        yield 7

    @app.task(queue=queue_name)
    async def use(text: str = echomq.INJECTED, number: int = echomq.INJECTED, other: bytes = echomq.INJECTED) -> None:
        seen.extend([text, number, other])

    await use.enqueue()
    await drain(app, provide={str: "mine", bytes: b"too"})
    assert seen == ["mine", 7, b"too"]


# --- failures -----------------------------------------------------------------------------------


async def test_drain_raises_the_first_error_when_all_is_done(app: App, queue_name: str) -> None:
    """The very object, with a note that names the job; the others have run."""
    ran, errors = [], [DeclinedError("one"), DeclinedError("two")]

    @app.task(queue=queue_name, max_attempts=1)
    async def fail(n: int) -> None:
        ran.append(n)
        if n:
            raise errors[n - 1]

    handles = [await fail.enqueue(n) for n in (1, 2, 0)]
    with pytest.raises(DeclinedError) as caught:
        await drain(app, concurrency=1)
    assert caught.value is errors[0]
    (note,) = caught.value.__notes__
    assert note.startswith(
        f"attempt 1 of job {handles[0].id}, task 'fail' on queue {queue_name!r}; 1 further attempt failed"
    )
    assert ran == [1, 2, 0]


async def test_drain_answers_failures_when_asked(app: App, queue_name: str) -> None:
    """Whatever made an attempt fail: an error, a time limit, arguments that do not fit, bytes that are no call."""

    @app.task(queue=queue_name, max_attempts=1, timeout=0.05)
    async def work(how: str) -> None:
        if how == "slow":
            await anyio.sleep(60)
        raise DeclinedError(how)

    stub = app.task_stub("work", queue=queue_name)
    handles = [
        await work.enqueue("slow"), await work.enqueue("raise"), await stub.enqueue(1, 2, 3),
        await app.queue(queue_name).enqueue(b"no call", task="work"),
    ]  # fmt: skip
    done = await drain(app, raise_failures=False)
    kinds = {each.id: (type(each.error), each.task) for each in done.failures}
    expected = (TimeoutError, DeclinedError, echomq.ArgumentsError, echomq.DecodeError)
    assert kinds == {handle.id: (kind, "work") for handle, kind in zip(handles, expected, strict=True)}
    assert (done.failed, done.dead, done.later) == (3, 3, 1)
    assert done.snoozed > 0  # in a second it is tried again


async def test_drain_does_not_raise_a_handlers_own_word(app: App, queue_name: str) -> None:
    """Retry, Snooze, RateLimited and Discard are what the handler meant to say."""
    words = [echomq.Retry(after=60), echomq.Snooze(60), echomq.Discard("no"), echomq.RateLimited(after=60)]

    @app.task(queue=queue_name)
    async def say(n: int) -> None:
        raise words[n]

    for n in range(4):
        await say.enqueue(n)
        await drain(app)
    done = await drain(app)
    assert (done.completed, done.later) == (0, 3)


async def test_drain_does_not_end_the_test_by_a_handlers_exit(app: App, queue_name: str) -> None:
    """What would mean something else outside the handler comes as an error."""

    @app.task(queue=queue_name, max_attempts=1)
    async def leave() -> None:
        raise SystemExit(3)

    await leave.enqueue()
    with pytest.raises(RuntimeError, match=r"the handler raised SystemExit\(3\)") as caught:
        await drain(app)
    assert isinstance(caught.value.__cause__, SystemExit)


# --- later --------------------------------------------------------------------------------------


async def test_drain_leaves_what_is_due_later(app: App, queue_name: str) -> None:
    """`advance` brings it, by as much as it is moved and no more."""
    ran = []

    @app.task(queue=queue_name)
    async def note() -> None:
        ran.append(1)

    await note.options(delay=HOUR).enqueue()
    assert (await drain(app)).later == 1
    await advance(app, HOUR - 60)
    assert (await drain(app)).later == 1
    assert ran == []
    await advance(app.queue(queue_name), dt.timedelta(minutes=2))
    assert (await drain(app)).later == 0
    assert ran == [1]


async def test_drain_ahead_runs_what_time_brings_in_order(app: App, queue_name: str) -> None:
    """Delays and retries within the time that may be skipped, and nothing beyond; nobody sleeps."""
    ran: list[str] = []
    other = f"{queue_name}-2"

    @app.task(queue=queue_name, backoff=Fixed(100), max_attempts=3)
    async def fail() -> None:
        ran.append("fail")
        raise DeclinedError

    @app.task(queue=other)
    async def note(what: str) -> None:
        ran.append(what)

    await fail.enqueue()
    for delay in (150, 50, 290, 400):
        await note.options(delay=delay).enqueue(f"{delay}")
    done = await drain(app, ahead=300, raise_failures=False)
    assert ran == ["fail", "50", "fail", "150", "fail", "290"]
    assert (done.completed, done.failed, done.dead, done.later) == (3, 3, 1, 1)


async def test_advance_lets_jobs_expire(app: App, queue_name: str) -> None:
    """`expires` and `deadline` are moments, too, whatever set their jobs are in."""

    @app.task(queue=queue_name, result_ttl=60)
    async def never() -> None:
        raise AssertionError

    late = [
        await never.options(expires=60).enqueue(),
        await never.options(expires=60, lane="acme").enqueue(),
        await never.options(expires=60, delay=30).enqueue(),
    ]
    over = await never.options(deadline=60).enqueue()
    await advance(app, 61)
    done = await drain(app, raise_failures=False)
    for handle in late:
        with pytest.raises(echomq.JobExpiredError):
            await handle.result(timeout=0)
    buried = await over.info()
    assert buried is not None
    assert buried.record.state == "dead"
    assert (done.completed, done.failures) == (0, ())


async def test_advance_opens_lanes_and_queues(app: App, queue_name: str) -> None:
    """What a handler closed, and a rate that was spent, open when their time has come."""
    ran: list[str] = []
    scopes: dict[str, Any] = {"lane": "lane", "queue": "queue"}

    @app.task(queue=queue_name)
    async def call(what: str) -> None:
        scope = scopes.pop(what, None)
        if scope:
            raise echomq.RateLimited(after=HOUR, scope=scope)
        ran.append(what)

    queue = app.queue(queue_name)
    await queue.lane("slow").configure(rate=echomq.Rate(1, per=HOUR))
    await call.options(lane="acme").enqueue("lane")
    for _ in range(2):
        await call.options(lane="slow").enqueue("slow")
    assert (await drain(app)).later == 2
    assert ran == ["slow"]
    await call.enqueue("queue")
    assert (await drain(app)).later == 3
    await advance(app, HOUR / 2)
    assert (await drain(app)).later == 3
    await advance(app, HOUR / 2 + 1)
    assert (await drain(app)).later == 0
    assert sorted(ran) == ["lane", "queue", "slow", "slow"]


async def test_drain_leaves_what_is_paused(app: App, queue_name: str) -> None:
    """A paused queue or lane is not worked at; no time opens it."""
    ran = []

    @app.task(queue=queue_name)
    async def note() -> None:
        ran.append(1)

    queue = app.queue(queue_name)
    await note.options(lane="acme").enqueue()
    await note.enqueue()
    await queue.lane("acme").pause()
    await advance(app, HOUR)
    assert (await drain(app, ahead=HOUR)).later == 1
    await note.enqueue()
    await queue.pause()
    assert (await drain(app, ahead=HOUR)).later == 2
    assert ran == [1]


async def test_advance_brings_recurring_slots(app: App, queue_name: str) -> None:
    """Each slot that has passed is treated by the schedule's own rule for missed ones."""
    slots: list[dt.datetime | None] = []
    # The next slot is twelve hours away.
    start = dt.datetime.now(dt.UTC).replace(microsecond=0) - dt.timedelta(days=9, hours=12)

    @app.task(queue=queue_name)
    async def tick(job: Job) -> None:
        slots.append(job.slot)

    app.schedule("daily", tick.call(), every=dt.timedelta(days=1), start=start, missed="all")
    await app.schedules.sync()
    assert (await drain(app)).completed == 0
    await advance(app, dt.timedelta(days=3))
    await drain(app)
    assert len(slots) == 3
    assert set(slots) == {start + dt.timedelta(days=each) for each in (10, 11, 12)}
    assert (await drain(app)).completed == 0
    info = [each async for each in app.queue(queue_name).schedules]
    assert info[0].next_run is not None
    assert info[0].next_run > dt.datetime.now(dt.UTC)


@pytest.mark.parametrize(
    ("every", "ahead", "runs"), [(60, HOUR, 60), (HOUR, 3 * HOUR, 3), (24 * HOUR, 24 * HOUR, 1), (HOUR, HOUR - 60, 0)]
)
async def test_drain_ahead_runs_each_slot_once(app: App, queue_name: str, every: int, ahead: float, runs: int) -> None:
    """As many as there are in that time, wherever the clock stands; and the next such time has as many."""
    slots: list[dt.datetime | None] = []

    @app.task(queue=queue_name)
    async def tick(job: Job) -> None:
        slots.append(job.slot)

    start = dt.datetime.now(dt.UTC).replace(microsecond=0) + dt.timedelta(seconds=every - 15)  # in the last quarter
    app.schedule("tick", tick.call(), every=every, start=start)
    await app.schedules.sync()
    assert (await drain(app, ahead=ahead)).completed == runs
    assert slots == [start + n * dt.timedelta(seconds=every) for n in range(runs)]
    if runs:
        assert (await drain(app, ahead=ahead)).completed == runs
        assert slots[-1] == start + (2 * runs - 1) * dt.timedelta(seconds=every)


@pytest.mark.parametrize(
    ("cron", "ahead", "runs"), [("{0.minute} {0.hour} * * *", 24 * HOUR, 1), ("{0.minute} * * * *", 3 * HOUR, 3)]
)
async def test_drain_ahead_knows_the_calendar(app: App, queue_name: str, cron: str, ahead: float, runs: int) -> None:
    """A daily and an hourly one that come in a few minutes; the retries of their jobs are run between."""
    slots: list[dt.datetime | None] = []

    @app.task(queue=queue_name, backoff=Fixed(100))
    async def tick(job: Job) -> None:
        slots.append(job.slot)
        if job.attempt < 3:
            raise echomq.Retry

    soon = dt.datetime.now(dt.UTC).replace(second=0, microsecond=0) + dt.timedelta(minutes=5)
    app.schedule("tick", tick.call(), cron=cron.format(soon))
    await app.schedules.sync()
    done = await drain(app, ahead=ahead)
    assert (done.completed, done.failed) == (runs, 2 * runs)
    assert slots == [soon + dt.timedelta(hours=n) for n in range(runs) for _ in range(3)]


async def test_advance_moves_the_calendar_of_a_schedule(app: App, queue_name: str) -> None:
    """Also of one that rests meanwhile, until it is defined anew; its end comes by that calendar."""
    slots: list[dt.datetime | None] = []
    day, start = dt.timedelta(days=1), dt.datetime.now(dt.UTC).replace(microsecond=0) + dt.timedelta(hours=12)

    @app.task(queue=queue_name)
    async def tick(job: Job) -> None:
        slots.append(job.slot)

    app.schedule("daily", tick.call(), every=day, start=start, end=start + 5 * day)
    await app.schedules.sync()
    await advance(app, day)
    await drain(app)
    schedules = app.queue(queue_name).schedules
    await schedules.pause("daily")
    await advance(app, day)
    assert (await drain(app, ahead=24 * HOUR)).completed == 0
    await schedules.resume("daily")
    assert (await drain(app, ahead=24 * HOUR)).completed == 1
    assert slots == [start, start + 2 * day]
    await drain(app, ahead=9 * 24 * HOUR)
    assert slots == [start + n * day for n in (0, 2, 3, 4, 5)]


async def test_advance_ends_a_batchs_linger(app: App, queue_name: str) -> None:
    """Jobs have then lingered for so long."""
    sizes = []

    @app.task(queue=queue_name, batch=echomq.Batch(max_size=10, linger=HOUR))
    async def gather(batch: echomq.JobBatch[int]) -> None:
        sizes.append(len(batch))

    await gather.enqueue(1)
    await gather.enqueue(2)
    assert (await drain(app)).later == 2
    await advance(app, HOUR)
    assert (await drain(app)).completed == 2
    assert sizes == [2]


async def test_advance_ends_the_deploy_window(app: App, queue_name: str) -> None:
    """A job that fits no handler is put off for ten minutes, and then buried."""

    @app.task(queue=queue_name)
    async def known() -> None: ...

    await app.task_stub("unknown", queue=queue_name).enqueue()
    done = await drain(app, raise_failures=False)
    assert (done.dead, done.later) == (0, 1)
    assert done.snoozed > 0
    await advance(app, 601)
    with pytest.raises(LookupError, match="unknown task 'unknown'"):
        await drain(app)
    assert (await app.queue(queue_name).counts()).dead == 1


async def test_advance_wakes_a_worker_that_is_parked(
    app: App, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker beside the test need not be started again."""
    for module in (calls, intake):
        monkeypatch.setattr(module, "CAP", 60.0)  # whoever wakes before was woken
    ran = anyio.Event()

    @app.task(queue=queue_name)
    async def note() -> None:
        ran.set()

    await note.options(delay=HOUR).enqueue()
    async with anyio.create_task_group() as tasks:
        worker = await tasks.start(echomq.run_worker, app)
        await advance(app, HOUR)
        with anyio.fail_after(20):
            await ran.wait()
        worker.stop()


async def test_advance_moves_moments_and_nothing_else(app: App, queue_name: str, peek: Peek) -> None:
    """Row by row: leases, results, counters and what jobs are stay as they are."""

    @app.task(queue=queue_name)
    async def never() -> None: ...

    queue, keys, client = app.queue(queue_name), peek.keys, peek.client
    active = await never.options(deadline=600, priority=2).enqueue()
    (claimed,) = peek.claim(lease=60)
    delayed = await never.options(delay=100, expires=500, lane="acme").enqueue()
    ready = await never.options(lane="acme").enqueue()

    def rows() -> dict[str, dict[bytes, bytes]]:
        return {id: client.hgetall(keys.job(id)) for id in (active.id, delayed.id, ready.id)}  # type: ignore[misc]

    before, leases, due = rows(), peek.active(), client.zscore(keys.schedule, delayed.id)
    counts = await queue.counts()
    await advance(queue, 50)
    moments = {b"since", b"expires_ms", b"deadline_ms"}
    for id, row in rows().items():
        assert {
            name: int(value) - int(row[name]) for name, value in before[id].items() if name in moments
        } == dict.fromkeys(before[id].keys() & moments, 50_000)
        assert {name: value for name, value in row.items() if name not in moments} == {
            name: value for name, value in before[id].items() if name not in moments
        }
    assert claimed.id == active.id
    assert peek.active() == leases
    assert client.zscore(keys.schedule, delayed.id) == due - 50_000  # type: ignore[operator]
    assert await queue.counts() == counts


async def test_advance_refuses_nonsense_and_what_is_too_much(
    app: App, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And changes nothing."""

    @app.task(queue=queue_name)
    async def note() -> None: ...

    for wrong in (0, -1, dt.timedelta(0)):
        with pytest.raises(ValueError, match=r"more than 0|century"):
            await advance(app, wrong)
    with pytest.raises(TypeError, match="duration"):
        await advance(app, "1")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="app or a queue"):
        await advance(queue_name, 1)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="not open"):
        await advance(_with_a_task(), 1)
    monkeypatch.setattr(scripts, "MOST", 1)
    for _ in range(2):
        await note.options(delay=1).enqueue()
    with pytest.raises(ValueError, match=f"queue '{queue_name}' has 2 jobs"):
        await advance(app, HOUR)
    assert (await drain(app)).later == 2


def _with_a_task() -> App:
    app = App()

    @app.task
    async def task() -> None: ...

    return app


def test_scripts_of_tests_are_no_verbs() -> None:
    """They stand apart, are headed like the others, and their names are free."""
    for name in scripts.NAMES:
        assert name not in ALL_VERBS
        header = scripts.load(name).header
        assert header.verb == name
        assert not header.events
        assert not header.moves
