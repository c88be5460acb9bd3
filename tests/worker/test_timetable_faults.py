"""Recurring schedules that cannot be fired, or not be defined: none keeps the others back, and nothing spins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from echomq import App, Job, Recurrence
from echomq.transitions import Transition, schedule_fire
from echomq.worker import timetable
from tests.worker.scene import HOUR, MINUTE, Scene, ago, counted
from tests.worker.support import TRIO, Peek, proxied, running, until

pytestmark = pytest.mark.anyio


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
            began = anyio.current_time()
            for _ in range(200):  # as many claims as a busy worker makes in a second
                scene.peek.client.lpush(scene.peek.keys.wake, "1")
                await anyio.sleep(0.005)
            assert len(calls) < 12 * max(1.0, anyio.current_time() - began)
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
            began = anyio.current_time()
            for _ in range(100):
                client.lpush(keys.wake, "1")
                await anyio.sleep(0.005)
            assert len(reads) < 40 * max(1.0, anyio.current_time() - began)
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
                await until(lambda: [each for each in logs if each.get("schedule") == "there"])
                await anyio.sleep(0.5)  # for some tries more
                proxy.refusing = False
    told = [(each["schedule"], each["queue"]) for each in logs if each["event"] == "schedule_not_defined"]
    assert ("there", queue_name) in told
    assert len(told) <= 4  # each reason once
