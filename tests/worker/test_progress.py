"""Progress: what is noted, how often it leaves, and that the latest wins."""

from __future__ import annotations

import itertools
import math
import time
from typing import Any

import anyio
import orjson
import pytest

from echomq.app import App
from echomq.batches import Batch, JobBatch
from echomq.errors import LeaseLostError, ServerError
from echomq.job import Job, SyncJob
from echomq.protocol.codec import JsonCodec
from echomq.protocol.refusals import Verdict
from echomq.transitions import Progress
from echomq.worker import notes
from echomq.worker.notes import LeaseNotes, spell_progress
from echomq.worker.reasons import Reason, Returned
from echomq.worker.timers import Timers
from tests.worker.fakes import FakeCalls, make_lease, make_settler
from tests.worker.support import Peek, running, until

pytestmark = pytest.mark.anyio
HUGE = 10**5000


@pytest.mark.parametrize(
    ("note", "written"),
    [
        ((0,), {"done": 0, "total": None, "message": None}),
        ((1, 3, "on it"), {"done": 1, "total": 3, "message": "on it"}),
        ((0.5, 2**53, ""), {"done": 0.5, "total": 2**53, "message": ""}),
        ((4, 3), {"done": 4, "total": 3, "message": None}),
    ],
)
async def test_progress_is_written_as_json(note: Any, written: Any) -> None:
    """An object of three names, whatever the client's codec is."""
    assert orjson.loads(spell_progress(*note)) == written


@pytest.mark.parametrize(
    ("note", "error", "words"),
    [
        ((-1,), ValueError, "done lies in 0..2\\^53, not -1"),
        ((math.nan,), ValueError, "not nan"),
        ((math.inf,), ValueError, "not inf"),
        ((1, math.inf), ValueError, "total lies"),
        ((2**53 + 1,), ValueError, "not 9007199254740993"),
        ((HUGE,), ValueError, "<int>"),
        ((True,), TypeError, "not True"),
        (("1",), TypeError, "not '1'"),
        ((None,), TypeError, "not None"),
        ((1, "3"), TypeError, "total is an int or a float"),
        ((1, 3, b"x"), TypeError, "a message is text"),
        (({"done": 3},), TypeError, "done is an int or a float"),
    ],
    ids=range(12),
)
async def test_progress_that_is_none_is_refused(note: Any, error: type[Exception], words: str) -> None:
    """Before anything is kept or sent."""
    with pytest.raises(error, match=words):
        spell_progress(*note)


async def test_progress_message_is_bounded() -> None:
    """Its beginning is kept, in whole characters, and how much was cut; lone surrogates hurt nobody."""
    message = orjson.loads(spell_progress(1, None, "\u00e4" * 1000))["message"]
    assert message.endswith(" bytes cut")
    assert len(message.encode()) <= 1024
    assert orjson.loads(spell_progress(1, None, "a\ud800"))["message"] == "a?"


class _Calls:
    """A queue's calls of which progress is answered."""

    queue = "q"

    def __init__(self) -> None:
        self.sent: list[tuple[float, Any]] = []
        self.progress: Any = self
        self.verdict: Any = None

    def submit(self, item: Progress, done: Any, give_up_after: float | None = None) -> None:
        """Send without waiting."""
        self.sent.append((anyio.current_time(), orjson.loads(item.data)["done"]))
        if self.verdict is not None:
            done(self.verdict)

    async def __call__(self, item: Progress) -> Any:
        """Send, and answer."""
        self.submit(item, None)
        return _Ok()


class _Ok:
    def error(self, **_: Any) -> None:
        """There is none."""


async def test_progress_leaves_at_a_rate_and_the_latest_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first at once, then one each while, the latest of those that came; at once the one that says all is done."""
    monkeypatch.setattr(notes, "EVERY", 0.2)
    calls, timers = _Calls(), Timers()
    progress = LeaseNotes(make_lease(calls), JsonCodec(), timers).progress
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(timers.run)
        for done in range(50):
            await progress(done, 1000, None)
            if done < 40:
                await anyio.sleep(0.01)
        monkeypatch.setattr(notes, "EVERY", 1.0)  # from the next one on: there is time for what follows it at once
        await until(lambda: calls.sent[-1][1] == 49)
        await progress(50, 1000, None)
        await progress(1000, 1000, None)
        assert calls.sent[-1][1] == 1000
        await progress(7, None, None)
        assert calls.sent[-1][1] == 1000
        await until(lambda: calls.sent[-1][1] == 7)
        tasks.cancel_scope.cancel()
    sent = [done for _, done in calls.sent]
    assert (sent[0], sent[-3:]) == (0, [49, 1000, 7])
    assert sorted(sent[:-1]) == sent[:-1]
    assert 50 not in sent
    moments = [at for at, done in calls.sent if done != 1000]
    assert len(sent) <= max(8, (moments[-2] - moments[0]) / 0.2 + 4)  # more where a busy machine took longer
    assert min(late - early for early, late in itertools.pairwise(moments)) >= 0.19


async def test_progress_that_waits_is_sent_when_the_handler_ends() -> None:
    """And never after that, by a timer that is late; one of a lost lease is not sent at all."""
    timers = Timers()
    for reason, sent in ((None, [0, 2]), (Reason.LEASE_LOST, [0])):
        calls = _Calls()
        lease = make_lease(calls)
        held = LeaseNotes(lease, JsonCodec(), timers)
        for done in range(3):
            await held.progress(done, None, None)
        if reason is not None:
            lease.stop(reason)
            with pytest.raises(LeaseLostError):
                await held.progress(3, None, None)
        lease.running = False
        held._look()
        held.flush()
        held.flush()
        assert [done for _, done in calls.sent] == sent


async def test_progress_that_waits_leaves_before_the_verdict() -> None:
    """The verdict would have it refused."""
    timers = Timers()
    order: list[str] = []
    calls: Any = FakeCalls()
    calls.progress = _Calls()
    lease = make_lease(calls)
    lease.notes = LeaseNotes(lease, JsonCodec(), timers)
    for done in range(2):
        await lease.notes.progress(done, None, None)
    for group in (calls.progress, calls.complete):
        group.submit = lambda item, *_, **__: order.append(type(item).__name__)
    make_settler(timers).settle(lease, Returned(None), None)
    assert order == ["Progress", "Completion"]


async def test_refused_progress_ends_the_lease_also_when_nobody_waits() -> None:
    """The fence's word on a note that a timer has sent; an error is the next note's to meet."""
    for verdict, reason in (
        (Verdict("EMQSTALE"), Reason.LEASE_LOST),
        (Verdict("EMQTORN"), None),
        (ServerError("ERR", "no"), None),
        (Verdict("ok"), None),
    ):
        calls = _Calls()
        calls.verdict = verdict
        lease = make_lease(calls)
        held = LeaseNotes(lease, JsonCodec(), Timers())
        held._next_at = math.inf
        await held.progress(1, None, None)
        held.flush()
        assert len(calls.sent) == 1
        assert lease.reason is reason


async def test_progress_of_each_kind_of_handler_is_seen(app: App, queue_name: str, peek: Peek) -> None:
    """A coroutine function, a thread, an item of a batch: many notes, few calls, and the last one stands."""

    @app.task(queue=queue_name, result_ttl=60)
    async def loop(job: Job) -> None:
        for done in range(1, 1001):
            await job.progress(done, 1000)

    @app.task(queue=queue_name, result_ttl=60)
    def thread(job: SyncJob) -> None:
        for done in range(1, 101):
            job.progress(done, total=100, message=f"row {done}")

    @app.task(queue=f"{queue_name}-b", batch=Batch(max_size=2), result_ttl=60)
    async def batch(items: JobBatch[int]) -> None:
        for item in items:
            for done in range(1, item.value + 1):
                await item.progress(done, total=item.value)

    before = _calls(peek)
    async with app, running(app):
        jobs = [await loop.enqueue(), await thread.enqueue(), await batch.enqueue(50), await batch.enqueue(60)]
        for job in jobs:
            await job.result(timeout=20)
        infos = [await job.info() for job in jobs]
    found = [info.record.progress for info in infos if info is not None]
    assert [(note["done"], note["total"]) for note in found] == [(1000, 1000), (100, 100), (50, 50), (60, 60)]
    assert found[1]["message"] == "row 100"
    assert _calls(peek) - before < 200  # of 1,210 notes, and all else


def _calls(peek: Peek) -> int:
    stats: Any = peek.client.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("evalsha", "fcall"))


async def test_progress_of_a_handler_that_failed_is_the_last_one(app: App, queue_name: str, peek: Peek) -> None:
    """It waited for its turn when the handler raised."""

    @app.task(queue=queue_name, max_attempts=1)
    async def handle(job: Job) -> None:
        for done in range(5):
            await job.progress(done, 1000)
        raise RuntimeError

    async with app, running(app):
        began = time.monotonic()
        job = await handle.enqueue()
        await until(lambda: peek.state(job.id) == "dead")
        assert time.monotonic() - began < 5
    assert peek.record(job.id).progress["done"] in {0, 4}  # 4, unless the verdict overtook it
