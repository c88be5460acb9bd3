"""Recurring schedules as programs define and look at them, on both event loops and without one."""

from __future__ import annotations

import datetime as dt
from typing import Any

import anyio
import pytest
import redis

from echomq import App, Client, JobHandle, JobStateError, Queue, ScheduleNotFoundError, open_client, sync
from echomq.conformance.proxy import FaultProxy
from echomq.protocol.keys import QueueKeys
from echomq.protocol.times import from_unix_ms
from echomq.schedules import ScheduleInfo
from echomq.transitions.scripts import load
from tests.integration.cutting import CuttingProxy
from tests.worker.support import until

pytestmark = pytest.mark.anyio


def frozen(server: redis.Redis, queue: str) -> dict[bytes, Any]:
    """Answer the keys of a queue, as the server would serialise them."""
    return {key: server.dump(key) for key in server.scan_iter(f"emq:{{{queue}}}:*")}


def slot_of(server: redis.Redis, queue: str, name: str) -> int:
    """Answer the slot at which a schedule stands."""
    return int(server.hget(QueueKeys(queue=queue).schedule_of(name), "slot") or 0)


async def test_put_defines_once(queue: Queue, redis_client: redis.Redis, queue_name: str) -> None:
    """The same definition again changes nothing, byte for byte; another one changes it."""
    put = queue.schedules.put
    assert await put("nightly", b"{}", cron="30 2 * * *", tz="Europe/Berlin") == "created"
    before = frozen(redis_client, queue_name)
    assert await put("nightly", b"{}", cron=" 30 2 * *  * ", tz="Europe/Berlin") == "same"
    assert frozen(redis_client, queue_name) == before
    assert await put("nightly", b"{}", cron="30 3 * * *", tz="Europe/Berlin") == "changed"
    assert await put("nightly", b"[]", cron="30 3 * * *", tz="Europe/Berlin") == "changed"
    assert await put("nightly", b"[]", cron="30 3 * * *", tz="Europe/Berlin", overlap="skip") == "changed"
    assert await put("nightly", b"[]", cron="30 3 * * *", tz="Europe/Berlin", overlap="skip", lane="l") == "changed"
    assert (await queue.schedules.page()).total == 1


async def test_put_spells_headers_in_any_order(queue: Queue) -> None:
    """Two processes whose dictionaries are in another order define the same."""
    assert await queue.schedules.put("h", b"", every=60, headers={"a": "1", "b": "2"}) == "created"
    assert await queue.schedules.put("h", b"", every=60, headers={"b": "2", "a": "1"}) == "same"


async def test_put_stands_at_the_first_slot_after_now(queue: Queue, redis_client: redis.Redis, queue_name: str) -> None:
    """By the server's clock, whatever that of this machine says."""
    await queue.schedules.put("m", b"", every=60)
    seconds: Any = redis_client.time()[0]
    assert slot_of(redis_client, queue_name, "m") == (seconds // 60 + 1) * 60_000


async def test_info_says_what_was_put(queue: Queue) -> None:
    """A schedule is read as it was defined."""
    end = from_unix_ms(4_000_000_000_000)
    await queue.schedules.put(
        "report", b'{"args":[1]}', every=3600, end=end, limit=2, missed="all", overlap="queue", jitter=5, task="report",
        lane="slow", priority=3, expires=600, deadline=dt.timedelta(hours=2), max_attempts=5, timeout=60, result_ttl=60,
    )  # fmt: skip
    info = await queue.schedules.get("report")
    assert info is not None
    assert info.next_run is not None
    rule = info.recurrence
    assert rule is not None
    assert (info.name, info.task, info.payload, info.lane) == ("report", "report", b'{"args":[1]}', "slow")
    assert (info.overlap, info.origin, info.problem, info.paused) == ("queue", "", None, None)
    assert (info.count, info.skipped, info.last_job, info.last_run) == (0, 0, None, None)
    assert (rule.limit, rule.missed, rule.jitter_ms, rule.end_ms) == (2, "all", 5000, 4_000_000_000_000)
    assert info.next_runs(5) == [info.next_run, info.next_run + dt.timedelta(hours=1)]
    assert info.next_runs(1) == [info.next_run]
    assert info.next_runs(0) == []
    assert await queue.schedules.get("other") is None


async def test_pause_and_resume_answer_who_did_it(queue: Queue) -> None:
    """A schedule that rests has no next run; it goes on at the next slot after now."""
    await queue.schedules.put("p", b"", every=60)
    assert [await queue.schedules.pause("p"), await queue.schedules.pause("p")] == [True, False]
    info = await queue.schedules.get("p")
    assert info is not None
    assert info.paused is not None
    assert (info.next_run, info.next_runs(3)) == (None, [])
    assert [await queue.schedules.resume("p"), await queue.schedules.resume("p")] == [True, False]
    info = await queue.schedules.get("p")
    assert info is not None
    assert info.paused is None
    assert info.next_run is not None


async def test_resume_forgets_what_came_meanwhile(queue: Queue, redis_client: redis.Redis, queue_name: str) -> None:
    """A slot that was paused is not missed: the schedule goes on ahead of now."""
    await queue.schedules.put("p", b"", every=60, missed="all")
    await queue.schedules.pause("p")
    redis_client.hset(QueueKeys(queue=queue_name).schedule_of("p"), "slot", 60_000)
    await queue.schedules.resume("p")
    now: Any = redis_client.time()[0]
    assert slot_of(redis_client, queue_name, "p") > now * 1000


async def test_remove_answers_whether_there_was_one(queue: Queue, redis_client: redis.Redis, queue_name: str) -> None:
    """And leaves no key behind but the queue's own."""
    await queue.schedules.put("r", b"", every=60)
    assert [await queue.schedules.remove("r"), await queue.schedules.remove("r")] == [True, False]
    keys = QueueKeys(queue=queue_name)
    assert not redis_client.exists(keys.schedules, keys.schedule_of("r"))


async def test_run_now_makes_a_job_and_moves_no_slot(queue: Queue, redis_client: redis.Redis, queue_name: str) -> None:
    """It carries the schedule's name and options; the count is that of slots."""
    await queue.schedules.put("r", b'"x"', every=60, task="t", priority=7, headers={"a": "b"})
    slot = slot_of(redis_client, queue_name, "r")
    handle = await queue.schedules.run_now("r")
    job = await handle.info()
    assert job is not None
    assert (job.record.schedule, job.record.task, job.record.payload) == ("r", "t", b'"x"')
    assert (job.record.priority, job.record.headers) == (7, {"a": "b"})
    assert job.record.slot_ms is not None
    assert slot_of(redis_client, queue_name, "r") == slot
    info = await queue.schedules.get("r")
    assert info is not None
    assert (info.count, info.last_job) == (0, handle.id)


async def test_run_now_of_a_paused_schedule_makes_a_job(queue: Queue) -> None:
    """A person's word is not a slot's."""
    await queue.schedules.put("r", b"", every=60)
    await queue.schedules.pause("r")
    assert await (await queue.schedules.run_now("r")).state() == "pending"


async def test_run_now_asks_no_overlap(queue: Queue) -> None:
    """Who says it wants it; but not of a queue that is being closed."""
    await queue.schedules.put("r", b"", every=60, overlap="skip")
    await queue.schedules.run_now("r")
    await queue.schedules.run_now("r")
    assert (await queue.counts()).pending == 2


async def test_queue_that_is_being_closed_takes_no_schedule(
    queue: Queue, redis_client: redis.Redis, queue_name: str
) -> None:
    """Nor does it make a job of one; the error says why."""
    await queue.schedules.put("r", b"", every=60)
    redis_client.hset(QueueKeys(queue=queue_name).meta, "closing", "1")
    with pytest.raises(JobStateError, match="closing"):
        await queue.schedules.run_now("r")
    with pytest.raises(JobStateError, match="closing"):
        await queue.schedules.put("s", b"", every=60)


async def test_verbs_on_an_unknown_schedule_say_so(queue: Queue) -> None:
    """One error names schedule and queue."""
    for verb in (queue.schedules.pause, queue.schedules.resume, queue.schedules.run_now):
        with pytest.raises(ScheduleNotFoundError, match=f"{queue.name}.* no recurring schedule 'none'"):
            await verb("none")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"delay": 5}, "delay: a recurring job cannot have it: its slots"),
        ({"at": from_unix_ms(0)}, "at: a recurring job cannot have it: its slots"),
        ({"dedup": "x"}, "dedup: a recurring job cannot have it: overlap="),
        ({"dedup": "x", "dedup_window": 5}, "dedup: a recurring job"),
        ({"overlap": "never"}, "overlap is one of allow, skip, queue, not 'never'"),
        ({"priority": 9999}, "priority"),
        ({"cron": "x"}, "either every= or cron="),
    ],
)
async def test_put_refuses_what_makes_no_sense(queue: Queue, options: Any, words: str) -> None:
    """By name, and nothing is sent."""
    with pytest.raises(ValueError, match=words):
        await queue.schedules.put("bad", b"", every=60, **options)
    with pytest.raises(ValueError, match="a schedule's name"):
        await queue.schedules.put("a b", b"", every=60)
    assert (await queue.schedules.page()).total == 0


async def test_put_takes_a_call_of_this_queue(client: Client, app: App, queue: Queue) -> None:
    """Its options come with it; a call for elsewhere is refused."""
    report = app.task_stub("report", queue=queue.name).options(lane="slow")
    await queue.schedules.put("r", report.call(1, x=2), every=60, priority=1)
    info = await queue.schedules.get("r")
    assert info is not None
    assert (info.task, info.lane, info.payload) == ("report", "slow", b'{"args":[1],"kwargs":{"x":2}}')
    with pytest.raises(ValueError, match=f"for queue '{queue.name}', and this schedule's is 'elsewhere'"):
        await client.queue("elsewhere").schedules.put("r", report.call(), every=60)
    with pytest.raises(ValueError, match="call is one of task 'report' already"):
        await queue.schedules.put("r", report.call(), every=60, task="other")
    with pytest.raises(ValueError, match="delay: a recurring job"):
        await queue.schedules.put("r", report.options(delay=5).call(), every=60)


async def test_all_schedules_are_listed_by_next_run(queue: Queue) -> None:
    """By pages, and each once; those that rest come last."""
    for n in range(230):
        await queue.schedules.put(f"s{n:03}", b"", every=1000 + n)
    await queue.schedules.pause("s000")
    found = [each async for each in queue.schedules]
    assert len(found) == 230
    assert sorted(each.name for each in found) == [f"s{n:03}" for n in range(230)]
    runs = [each.next_run for each in found[:-1]]
    assert runs == sorted(runs)  # type: ignore[type-var]
    assert (found[-1].name, found[-1].next_run) == ("s000", None)
    page = await queue.schedules.page(offset=228, count=2)
    assert (page.total, len(page.schedules)) == (230, 2)
    with pytest.raises(ValueError, match="256 schedules"):
        await queue.schedules.page(count=257)
    with pytest.raises(ValueError, match="offset"):
        await queue.schedules.page(offset=-1)


async def test_schedule_that_cannot_be_read_is_listed(queue: Queue, redis_client: redis.Redis, queue_name: str) -> None:
    """A newer version's definition is shown with its problem, and can be removed, but not resumed."""
    await queue.schedules.put("new", b"", every=60)
    redis_client.hset(QueueKeys(queue=queue_name).schedule_of("new"), "spec", b'{"v":2}')
    (info,) = [each async for each in queue.schedules]
    assert info.recurrence is None
    assert info.problem is not None
    assert "version 1" in info.problem
    assert info.next_run is not None
    assert info.next_runs(3) == [info.next_run]
    await queue.schedules.pause("new")
    with pytest.raises(ValueError, match="cannot read"):
        await queue.schedules.resume("new")
    assert await queue.schedules.remove("new")


async def test_run_now_whose_reply_is_lost_makes_one_job(
    proxy: FaultProxy, queue_name: str, redis_client: redis.Redis
) -> None:
    """The call is sent again, meets its own job, and says that it is there."""
    async with open_client(proxy.url) as client:
        queue = client.queue(queue_name)
        await queue.schedules.put("r", b"", every=60)
        handles: list[JobHandle[Any]] = []

        async def run_now() -> None:
            handles.append(await queue.schedules.run_now("r"))

        async with anyio.create_task_group() as tasks:
            await queue.counts()
            proxy.delay = 0.8  # the job is there before the reply is
            tasks.start_soon(run_now)
            keys = QueueKeys(queue=queue_name)
            await until(lambda: redis_client.zcard(keys.pending))
            proxy.cut()
            proxy.delay = 0.0
        ids: Any = redis_client.zrange(keys.pending, 0, -1)
        assert [id.decode() for id in ids] == [handles[0].id]
        assert client.wire.statistics.resent == 1


def test_sync_run_now_whose_reply_is_lost_makes_one_job(
    cutting: CuttingProxy, queue_name: str, redis_client: redis.Redis
) -> None:
    """Likewise without an event loop."""
    with sync.Client(cutting.url) as client:
        schedules = client.queue(queue_name).schedules
        schedules.put("r", b"", every=60)
        cutting.marker, cutting.cuts = load("schedule_fire").sha.encode(), 1
        handle = schedules.run_now("r")
        assert cutting.cuts == 0
    ids: Any = redis_client.zrange(QueueKeys(queue=queue_name).pending, 0, -1)
    assert [id.decode() for id in ids] == [handle.id]


# --- an app's ---------------------------------------------------------------------------------------------------------


def make_app(server_url: str, queue_name: str, origin: str = "billing") -> tuple[App, Any]:
    """Make an app with one task."""
    app = App(server_url, origin=origin)

    @app.task(queue=queue_name)
    async def report(day: int = 0) -> None: ...

    return app, report


async def test_app_schedules_are_synced_and_pruned(server_url: str, queue_name: str, queue: Queue) -> None:
    """What it no longer declares goes; what others defined stays."""
    app, report = make_app(server_url, queue_name)
    app.schedule("a", report.call(1), every=60)
    app.schedule("b", report.call(2), cron="0 9 * * *", tz="Europe/Berlin", overlap="skip")
    assert (list(app.schedules), len(app.schedules)) == (["a", "b"], 2)
    async with app:
        synced = await app.schedules.sync()
        assert (synced.created, synced.changed, synced.same, synced.removed) == (("a", "b"), (), (), ())
    await queue.schedules.put("by-hand", b"", every=60)
    other, report = make_app(server_url, queue_name, "shop")
    other.schedule("shops", report.call(), every=60)
    async with other:
        await other.schedules.sync(prune=True)
    later, report = make_app(server_url, queue_name)
    later.schedule("b", report.call(3), cron="0 9 * * *", tz="Europe/Berlin", overlap="skip")
    later.schedule("c", report.call(), every=60)
    async with later:
        assert (await later.schedules.sync()).removed == ()
        synced = await later.schedules.sync(prune=True)
    assert (synced.created, synced.changed, synced.same, synced.removed) == ((), (), ("b", "c"), ("a",))
    assert {each.name: each.origin async for each in queue.schedules} == {
        "b": "billing", "c": "billing", "by-hand": "", "shops": "shop"
    }  # fmt: skip


async def test_prune_needs_an_origin(server_url: str, queue_name: str) -> None:
    """Without, nobody could tell its schedules from those made by hand."""
    app, report = make_app(server_url, queue_name, "")
    app.schedule("a", report.call(), every=60)
    async with app:
        await app.schedules.sync()
        with pytest.raises(ValueError, match="origin"):
            await app.schedules.sync(prune=True)
    with pytest.raises(ValueError, match="an app's origin"):
        App(server_url, origin="a b")


async def test_app_schedule_is_checked_when_declared(server_url: str, queue_name: str) -> None:
    """No I/O, and no surprise in a worker's log later."""
    app, report = make_app(server_url, queue_name)
    app.schedule("a", report.call(), every=60)
    with pytest.raises(ValueError, match="'a' is declared twice"):
        app.schedule("a", report.call(), every=60)
    with pytest.raises(ValueError, match="minute cannot be"):
        app.schedule("b", report.call(), cron="x * * * *")
    with pytest.raises(ValueError, match="delay: a recurring job"):
        app.schedule("b", report.options(delay=5).call(), every=60)
    with pytest.raises(ValueError, match="overlap"):
        app.schedule("b", report.call(), every=60, overlap="no")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a call of a task"):
        app.schedule("b", report, every=60)
    with pytest.raises(RuntimeError, match="not open"):
        await app.schedules.sync()


# --- without an event loop ------------------------------------------------------------------------------------------


def test_sync_client_has_the_same_verbs(sync_client: sync.Client, queue_name: str) -> None:
    """A program that blocks defines, reads, pauses, runs and removes."""
    queue = sync_client.queue(queue_name)
    schedules = queue.schedules
    assert schedules.put("a", b"{}", every=60, overlap="skip", task="t") == "created"
    assert schedules.put("a", b"{}", every=60, overlap="skip", task="t") == "same"
    info = schedules.get("a")
    assert isinstance(info, ScheduleInfo)
    assert info.task == "t"
    assert [schedules.pause("a"), schedules.pause("a"), schedules.resume("a"), schedules.resume("a")] == [
        True, False, True, False
    ]  # fmt: skip
    handle = schedules.run_now("a")
    assert handle.state() == "pending"
    for n in range(120):
        schedules.put(f"s{n}", b"", every=1000)
    assert len(list(schedules)) == 121
    assert schedules.page(offset=120).total == 121
    assert [schedules.remove("a"), schedules.remove("a")] == [True, False]
    assert schedules.get("a") is None
    for verb in (schedules.pause, schedules.resume, schedules.run_now):
        with pytest.raises(ScheduleNotFoundError):
            verb("a")


def test_both_clients_define_the_same(sync_client: sync.Client, server_url: str, queue_name: str) -> None:
    """A definition by one is no change to the other."""
    sync_client.queue(queue_name).schedules.put("a", b"{}", cron="0 9 * * 1", tz="Asia/Tokyo", lane="l", expires=5)

    async def again() -> str:
        async with open_client(server_url) as client:
            put = client.queue(queue_name).schedules.put
            return await put("a", b"{}", cron="0 9 * * 1", tz="Asia/Tokyo", lane="l", expires=5)

    assert anyio.run(again, backend="trio") == "same"


async def test_schedule_belongs_to_who_declares_it_last(server_url: str, queue_name: str) -> None:
    """A program that hands its schedule on does not remove it from the one that has it now; a person takes it from none."""
    first, report = make_app(server_url, queue_name, "a")
    second, same = make_app(server_url, queue_name, "b")
    first.schedule("nightly", report.call(), every=60)
    second.schedule("nightly", same.call(), every=60)
    async with first, second:
        assert (await first.schedules.sync()).created == ("nightly",)
        assert (await second.schedules.sync()).same == ("nightly",)
        schedules = first.queue(queue_name).schedules
        assert await schedules.put("nightly", report.call(), every=90) == "changed"  # by hand
        info = await schedules.get("nightly")
        assert info is not None
        assert info.origin == "b"
    without, _ = make_app(server_url, queue_name, "a")
    async with without:
        assert (await without.schedules.sync(prune=True)).removed == ()
    none, _ = make_app(server_url, queue_name, "b")
    async with none:
        assert (await none.schedules.sync(prune=True)).removed == ("nightly",)


@pytest.mark.parametrize(
    ("what", "error", "shown"),
    [
        ({"expires": dt.datetime(2099, 1, 1, tzinfo=dt.UTC)}, ValueError, "expires: a recurring job has it in seconds"),
        (
            {"deadline": dt.datetime(2099, 1, 1, tzinfo=dt.UTC)},
            ValueError,
            "deadline: a recurring job has it in seconds",
        ),
        ({"cron": "* * * * *", "every": None, "tz": "localtime"}, ValueError, "another on each machine"),
        ({"call": None}, TypeError, "a call of a task, such as report.call"),
        ({"call": "text"}, TypeError, "a call of a task, such as report.call"),
    ],
)
async def test_schedule_that_cannot_be_is_refused(
    queue: Queue, what: dict[str, Any], error: type[Exception], shown: str
) -> None:
    """Before anything is sent."""
    given: dict[str, Any] = {"call": b"{}", "every": 60, "task": ""} | what
    with pytest.raises(error, match=shown):
        await queue.schedules.put("a", given.pop("call"), **given)
    assert [each async for each in queue.schedules] == []
