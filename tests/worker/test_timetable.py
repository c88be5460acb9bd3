"""Recurring schedules fired by workers: in time, once, and whatever else is in the queue.

A slot that was missed is made by moving a schedule's slot into the past, not by waiting.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import anyio
import attrs
import pytest
from structlog.testing import capture_logs

from echomq import App, Job, Queue, Recurrence
from echomq.protocol.ids import mint, new_tag
from echomq.protocol.newjob import NewJob
from echomq.protocol.times import from_unix_ms
from echomq.transitions import MULTI, Call, Transition, schedule_fire
from echomq.worker import timetable
from tests.worker.support import TRIO, Peek, proxied, running, until

pytestmark = pytest.mark.anyio

HOUR = 3_600_000
MINUTE = 60_000


@attrs.define
class Scene:
    """An open app with one task, its queue, and what has run."""

    app: App
    queue: Queue
    peek: Peek
    ran: list[tuple[str, int, float]] = attrs.field(factory=list)
    """Schedule, slot and lateness in ms of each job that began."""
    hold: anyio.Event = attrs.field(factory=anyio.Event)

    @property
    def slots(self) -> list[int]:
        """The slots that ran."""
        return [slot for _, slot, _ in self.ran]

    async def put(
        self, name: str, every: float, *, slot_ms: int | None = None, task: str = "tick", **given: Any
    ) -> int:
        """Define a schedule, which stands at a slot in the past if that is given; answer the slot that is next."""
        await self.queue.schedules.put(name, b"{}", every=every, task=task, **given)
        ahead = self.stands(name)
        if slot_ms is not None:
            self.stand(name, slot_ms)
        return ahead

    def stand(self, name: str, slot_ms: int) -> None:
        """Move the slot of a schedule, as if it stood there."""
        keys = self.peek.keys
        self.peek.client.hset(keys.schedule_of(name), "slot", slot_ms)
        self.peek.client.zadd(keys.schedules, {name: slot_ms})

    def stands(self, name: str) -> int:
        """Answer the slot at which a schedule stands."""
        found: Any = self.peek.client.hget(self.peek.keys.schedule_of(name), "slot")
        return int(found or 0)

    def made(self) -> list[tuple[str, int]]:
        """Answer schedule and slot of each job that was made, in the order of the queue's events."""
        fields = [fields for _, fields in self.peek.events("enqueued") if b"schedule" in fields]
        return [(each[b"schedule"].decode(), int(each[b"slot"])) for each in fields]


@pytest.fixture
async def scene(app: App, queue_name: str, peek: Peek) -> AsyncIterator[Scene]:
    """An open app, whose queue keeps all events."""
    scene: Scene

    @app.task(queue=queue_name)
    async def tick(job: Job) -> None:
        assert job.schedule is not None
        assert job.slot is not None
        slot_ms = round(job.slot.timestamp() * 1000)
        scene.ran.append((job.schedule, slot_ms, peek.now() - slot_ms))

    @app.task(queue=queue_name)
    async def long() -> None:
        await scene.hold.wait()

    async with app:
        scene = Scene(app, app.queue(queue_name), peek)
        await scene.queue.configure(events="all")
        yield scene


def ago(peek: Peek, ms: float) -> tuple[int, dt.datetime]:
    """Answer a moment so long ago by the server's clock."""
    at = round(peek.now() - ms)
    return at, from_unix_ms(at)


def counted(monkeypatch: pytest.MonkeyPatch, name: str) -> list[Any]:
    """Gather the calls of a transition that timetables make."""
    calls: list[Any] = []
    build = getattr(timetable, name)

    def count(*args: Any, **given: Any) -> Any:
        calls.append(given)
        return build(*args, **given)

    monkeypatch.setattr(timetable, name, count)
    return calls


# --- in time, and once ------------------------------------------------------------------------------------------------


@TRIO
async def test_slot_wakes_one_of_several_idle_workers(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each slot has its one job, and parked workers wake for it: nobody waits for a round, nor for the cap of a park."""
    monkeypatch.setattr(timetable, "EVERY", 60.0)
    async with AsyncExitStack() as stack:
        for _ in range(3):  # each with a client of its own, as processes have
            app = App(scene.app.url)
            app.task(name="tick", queue=scene.queue.name)(scene.app.tasks["tick"].function)
            await stack.enter_async_context(running(await stack.enter_async_context(app)))
        await anyio.sleep(0.2)
        first = await scene.put("t", 0.3)
        await until(lambda: len(scene.ran) >= 7)
    slots = scene.slots[:7]
    assert slots == [first + 300 * n for n in range(7)]
    assert [slot for _, slot in scene.made()][:7] == slots
    assert min(late for _, _, late in scene.ran) < 100  # a cap's worth of late would be 0.5 s on average


async def test_slot_fired_by_somebody_else_meanwhile_is_left_alone(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever comes second has made nothing, and says nothing."""
    build = schedule_fire
    others: list[int] = []

    def after_another(*args: Any, **given: Any) -> Any:
        if not others:
            others.append(given["slot_ms"])
            firings = [attrs.evolve(each, id=mint()) for each in given["firings"]]
            scene.peek.run(schedule_fire(args[0], Call(new_tag()), **{**given, "firings": firings}))
        return build(*args, **given)

    monkeypatch.setattr(timetable, "schedule_fire", after_another)
    slot, start = ago(scene.peek, 1000)
    await scene.put("t", 3600, start=start, slot_ms=slot)
    with capture_logs() as logs:
        async with running(scene.app):
            await until(lambda: scene.ran)
            await anyio.sleep(0.3)
    assert scene.made() == [("t", slot)]
    assert others == [slot]
    assert [each for each in logs if each["event"].startswith("schedule_not")] == []


async def test_job_whose_id_is_taken_gets_another(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A collision costs a second call, and no slot."""
    taken = mint()
    scene.peek.run(MULTI["enqueue"](scene.peek.keys, Call(new_tag(), 1), [NewJob(id=taken, delay_ms=HOUR)]))
    ids = [taken]
    monkeypatch.setattr(timetable, "mint", lambda: ids.pop() if ids else mint())
    slot, start = ago(scene.peek, 1000)
    await scene.put("t", 3600, start=start, slot_ms=slot)
    with capture_logs() as logs:
        async with running(scene.app):
            await until(lambda: scene.ran)
    assert scene.made() == [("t", slot)]
    assert ids == []
    assert [each for each in logs if each["event"] == "schedule_not_fired"] == []


async def test_slot_is_fired_by_a_worker_whose_slots_are_taken(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """It claims nothing, and looks at the schedules all the same."""
    monkeypatch.setattr(timetable, "EVERY", 0.2)
    async with running(scene.app, concurrency=1):
        await scene.queue.enqueue(b"{}", task="long")
        await until(scene.peek.active)
        slot, start = ago(scene.peek, 1000)
        await scene.put("t", 3600, start=start, slot_ms=slot)
        await until(scene.made)
        scene.hold.set()


@TRIO
async def test_series_goes_on_where_the_server_is_slower_than_its_interval(
    scene: Scene, server_url: str, queue_name: str
) -> None:
    """Each slot found is over before the server hears of it; then one further ahead is taken."""
    async with proxied(server_url) as proxy:
        far = App(proxy.url)

        @far.task(queue=queue_name, name="tick")
        async def tick() -> None: ...

        async with far, running(far):
            await scene.put("t", 0.1)
            await until(lambda: len(scene.made()) >= 2)
            proxy.delay = 0.15
            before = len(scene.made())
            await until(lambda: len(scene.made()) >= before + 3)
            proxy.delay = 0.0


# --- missed slots -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("missed", "minutes", "made"),
    [("skip", 30, 0), ("last", 30, 1), ("all", 30, 6), ("skip", 0.2, 1), ("last", 0.2, 1), ("all", 0.2, 6)],
)
async def test_missed_slots_by_policy(scene: Scene, missed: str, minutes: float, made: int) -> None:
    """Nobody was there for five hours; the latest slot was half an hour ago, or just now."""
    slot, start = ago(scene.peek, 5 * HOUR + minutes * MINUTE)
    ahead = await scene.put("t", 3600, start=start, slot_ms=slot, missed=missed)
    assert ahead == slot + 6 * HOUR
    async with running(scene.app):
        await until(lambda: scene.stands("t") == ahead)
        await until(lambda: len(scene.ran) == made)
    assert scene.made() == [("t", slot + HOUR * n) for n in range(6)][6 - made :]
    info = await scene.queue.schedules.get("t")
    assert info is not None
    assert info.count == made
    assert (info.last_run is not None) is (made > 0)


async def test_missed_slots_are_bounded(scene: Scene) -> None:
    """After days away, a hundred jobs are made, of the latest slots."""
    slot, start = ago(scene.peek, 5000 * MINUTE + 30_000)
    await scene.put("t", 60, start=start, slot_ms=slot, missed="all")
    async with running(scene.app):
        await until(lambda: len(scene.ran) >= 100)
    assert sorted(scene.slots)[:100] == [slot + MINUTE * n for n in range(4901, 5001)]


# --- limits, overlap, jitter -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("overlap", ["allow", "skip"])
async def test_limited_schedule_ends(scene: Scene, overlap: str) -> None:
    """So many slots make a job; then it stands nowhere, and is still listed."""
    async with running(scene.app):
        await scene.put("t", 0.1, limit=3, overlap=overlap)
        await until(lambda: scene.stands("t") == 0)
        await until(lambda: len(scene.ran) == 3)
    info = await scene.queue.schedules.get("t")
    assert info is not None
    assert (info.count, info.next_run, info.next_runs(2)) == (3, None, [])


async def test_limit_counts_jobs_and_not_slots_that_were_skipped(scene: Scene) -> None:
    """The last job of a limited schedule is not lost to its overlap."""
    ahead = await scene.put("t", 3600, task="long", overlap="skip", limit=2)
    async with running(scene.app):
        for jobs, skipped in ((1, 0), (1, 1)):
            scene.stand("t", ahead - HOUR)
            await until(lambda: scene.stands("t") == ahead)
            info = await scene.queue.schedules.get("t")
            assert info is not None
            assert (info.count, info.skipped) == (jobs, skipped)
        scene.hold.set()
        await until(scene.peek.empty)
        scene.stand("t", ahead - HOUR)
        await until(lambda: len(scene.made()) == 2)


@pytest.mark.parametrize(("overlap", "made"), [("allow", 3), ("skip", 1), ("queue", 2)])
async def test_overlap_while_the_last_job_runs(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, overlap: str, made: int
) -> None:
    """Another job; none; or one that waits."""
    monkeypatch.setattr(timetable, "EVERY", 0.2)
    ahead = await scene.put("t", 3600, task="long", overlap=overlap)
    async with running(scene.app, concurrency=1):
        for _ in range(3):
            scene.stand("t", ahead - HOUR)
            await until(lambda: scene.stands("t") == ahead)
            await until(scene.peek.active)
        assert len(scene.made()) == made
        info = await scene.queue.schedules.get("t")
        assert info is not None
        assert (info.count, info.skipped) == (made, 3 - made)
        scene.hold.set()


async def test_jitter_makes_jobs_late_on_purpose(scene: Scene) -> None:
    """The slot is fired in time; its job waits for a part of the jitter."""
    slot, start = ago(scene.peek, 10_000)
    await scene.put("t", 100, start=start, slot_ms=slot, jitter=86400)
    async with running(scene.app):
        await until(lambda: scene.made() == [("t", slot)])
    found: Any = scene.peek.client.zrange(scene.peek.keys.schedule, 0, -1, withscores=True)
    ((_, due),) = found
    assert slot < due <= slot + 86_400_000  # one in 8,640 runs is within these ten seconds, and would fail


# --- what cannot be fired --------------------------------------------------------------------------------------------


@TRIO
async def test_full_queue_keeps_the_slot_and_is_not_asked_in_a_loop(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slot waits for room; it is told once, tried a few times, and fired when there is some."""
    calls = counted(monkeypatch, "schedule_fire")
    await scene.queue.configure(max_size=1)
    await scene.queue.pause()
    await scene.queue.enqueue(b"{}", task="long")
    scene.hold.set()
    slot, start = ago(scene.peek, 1000)
    await scene.put("t", 3600, start=start, slot_ms=slot)
    with capture_logs() as logs:
        async with running(scene.app):
            await until(lambda: len(calls) >= 3)
            assert scene.stands("t") == slot
            for _ in range(200):  # as many claims as a busy worker makes in a second
                scene.peek.client.lpush(scene.peek.keys.wake, "1")
                await anyio.sleep(0.005)
            assert len(calls) < 12
            assert scene.made() == []
            await scene.queue.resume()
            await until(lambda: scene.ran)
    assert scene.made() == [("t", slot)]
    told = [each for each in logs if each["event"] == "schedule_not_fired"]
    assert [(each["schedule"], "full" in each["error"]) for each in told] == [("t", True)]


async def test_more_missed_slots_than_a_queue_may_hold_make_as_many_jobs_as_it_may(scene: Scene) -> None:
    """A series does not wait for room that there will never be."""
    await scene.queue.configure(max_size=3)
    slot, start = ago(scene.peek, 5 * HOUR + 30 * MINUTE)
    await scene.put("t", 3600, start=start, slot_ms=slot, missed="all")
    async with running(scene.app):
        await until(lambda: len(scene.ran) == 3)
    assert [at for _, at in scene.made()] == [slot + 3 * HOUR, slot + 4 * HOUR, slot + 5 * HOUR]


@TRIO
@pytest.mark.parametrize("damage", ["newer", "torn", "no-slot", "no-digest", "not-json", "no-row", "bug", "no-ends"])
async def test_schedule_that_cannot_be_fired_keeps_no_other_back(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    """It is told of once by name, left as it is, and looked at now and then; the others go on."""
    reads = counted(monkeypatch, "read_schedules")
    await scene.put("bad", 0.2, limit=77)
    keys, client = scene.peek.keys, scene.peek.client
    row = keys.schedule_of("bad")
    changes: dict[str, Callable[[], Any]] = {
        "newer": lambda: client.hset(row, "spec", b'{"v":2,"moon":"full"}'),
        "torn": lambda: client.hdel(row, "spec"),
        "no-slot": lambda: client.hdel(row, "slot"),
        "no-digest": lambda: client.hdel(row, "digest"),
        "not-json": lambda: client.hset(row, "spec", b"\xff{"),
        "no-row": lambda: client.delete(row),
        "bug": lambda: None,
        "no-ends": lambda: client.hset(row, "ends", "soon"),
    }
    due = Recurrence.due

    def broken(self: Recurrence, *args: Any, **given: Any) -> Any:
        if damage == "bug" and self.limit == 77:
            raise ZeroDivisionError
        return due(self, *args, **given)

    monkeypatch.setattr(Recurrence, "due", broken)
    client.zadd(keys.schedules, {"bad": 1000})
    if damage != "no-row":
        client.hset(row, "slot", 1000)
    changes[damage]()
    before = client.dump(row)
    with capture_logs() as logs:
        async with running(scene.app):
            await scene.put("good", 0.1)
            await until(lambda: len(scene.ran) >= 4)
            await scene.queue.schedules.remove("good")
            await anyio.sleep(0.2)
            reads.clear()
            for _ in range(200):
                client.lpush(keys.wake, "1")
                await anyio.sleep(0.005)
            assert len(reads) < 40
    assert {name for name, _ in scene.made()} == {"good"}
    if damage != "no-ends":  # of which the server has tried to make a job, for its latest slot
        assert client.dump(row) == before
    event = "schedule_not_fired" if damage == "no-ends" else "schedule_unreadable"
    told = [each["schedule"] for each in logs if each["event"] == event]
    assert told == ([] if damage == "no-row" else ["bad"])


async def test_schedules_beyond_a_page_are_fired(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also behind a page full of those that cannot be."""
    monkeypatch.setattr(timetable, "PAGE", 3)
    for n in range(7):
        await scene.put(f"bad{n}", 3600)
        scene.peek.client.hset(scene.peek.keys.schedule_of(f"bad{n}"), "spec", b"?")
        scene.stand(f"bad{n}", 1000 + n)
    slot, start = ago(scene.peek, 1000)
    for n in range(8):
        await scene.put(f"good{n}", 3600, start=start, slot_ms=slot)
    async with running(scene.app):
        await until(lambda: len(scene.ran) == 8)
    assert {name for name, _ in scene.made()} == {f"good{n}" for n in range(8)}


async def test_definition_changed_under_a_worker_is_fired_by_the_new_one(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The digest is part of what is compared: a slot that has come is fired with the options of now."""
    build = schedule_fire
    changed: list[str] = []

    def after_a_change(*args: Any, **given: Any) -> Transition[Any]:
        if not changed:
            changed.append(given["digest"])
            keys = scene.peek.keys
            scene.peek.client.hset(keys.schedule_of("t"), mapping={"digest": "another", "priority": 9})
        return build(*args, **given)

    monkeypatch.setattr(timetable, "schedule_fire", after_a_change)
    slot, start = ago(scene.peek, 1000)
    await scene.put("t", 3600, start=start, slot_ms=slot, task="long")
    async with running(scene.app):
        (id,) = await until(scene.peek.active)
        assert scene.peek.record(id).schedule == "t"
        scene.hold.set()
    assert scene.made() == [("t", slot)]


# --- what an app declares ----------------------------------------------------------------------------------------------


async def test_worker_defines_the_schedules_of_its_app(app: App, queue_name: str, peek: Peek) -> None:
    """When it starts, without being asked; what stands there already it leaves alone."""
    ran = anyio.Event()

    @app.task(queue=queue_name)
    async def tick(job: Job, day: int) -> None:
        assert (job.schedule, day) == ("often", 3)
        ran.set()

    app.schedule("often", tick.call(3), every=0.2)
    with capture_logs() as logs:
        async with app, running(app), running(app):
            with anyio.fail_after(10):
                await ran.wait()
    assert [each["outcome"] for each in logs if each["event"] == "schedule_defined"] == ["created"]


@TRIO
async def test_worker_defines_its_schedules_when_the_server_comes(
    server_url: str, queue_name: str, peek: Peek, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long it was away; and one that is refused keeps no other back."""
    monkeypatch.setattr("echomq._app_schedules.FIRST_PAUSE", 0.1)
    monkeypatch.setattr("echomq._app_schedules.LONGEST_PAUSE", 0.2)
    closing = f"{queue_name}-closing"
    keys = Peek(peek.client, closing).keys
    peek.client.hset(keys.meta, "closing", "1")
    async with proxied(server_url) as proxy:
        proxy.refusing = True
        app = App(proxy.url, unavailable_after=0.2)

        @app.task(queue=queue_name)
        async def tick() -> None: ...

        @app.task(queue=closing)
        async def tock() -> None: ...

        app.schedule("refused", tock.call(), every=60)
        app.schedule("there", tick.call(), every=60)
        with capture_logs() as logs:
            async with app, anyio.create_task_group() as tasks:

                async def serve() -> None:
                    async with running(app):
                        await until(lambda: peek.client.exists(peek.keys.schedule_of("there")))
                        assert not peek.client.exists(keys.schedule_of("refused"))
                        peek.client.hdel(keys.meta, "closing")
                        await until(lambda: peek.client.exists(keys.schedule_of("refused")))

                tasks.start_soon(serve)
                await anyio.sleep(0.8)
                proxy.refusing = False
    told = [(each["schedule"], each["queue"]) for each in logs if each["event"] == "schedule_not_defined"]
    assert ("there", queue_name) in told
    assert len(told) <= 4  # each reason once
