"""Recurring schedules fired by workers: in time, once, and by their policies.

A slot that was missed is made by moving a schedule's slot into the past, not by waiting.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import anyio
import attrs
import pytest
from structlog.testing import capture_logs

from echomq import App
from echomq.protocol.ids import mint, new_tag
from echomq.protocol.newjob import NewJob
from echomq.transitions import MULTI, Call, schedule_fire
from echomq.worker import timetable
from tests.worker.scene import HOUR, MINUTE, Scene, ago
from tests.worker.support import TRIO, proxied, running, until

pytestmark = pytest.mark.anyio


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


@TRIO
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


@TRIO
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
