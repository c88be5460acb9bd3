"""What a handler notes is checked before it is sent: no value of one job's may hurt another's, or the process."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import anyio.lowlevel
import pytest

from echomq.app import App
from echomq.batches import Batch, JobBatch
from echomq.client import open_client
from echomq.errors import JobStateError
from echomq.job import Job, SyncJob
from echomq.protocol.codec import JsonCodec
from echomq.protocol.keys import QueueKeys
from echomq.transitions import Call, browse, claim, configure, read_job
from echomq.worker.notes import MAX_LINE, cut_line
from tests.worker import process_jobs
from tests.worker.support import TRIO, Peek, running, until

pytestmark = pytest.mark.anyio
HUGE = 10**5000
"""More digits than Python writes, at which the packer crashes the process."""


class Three(enum.IntEnum):
    """A number of another class."""

    THREE = 3


class Word(str):
    """Text of another class, whose methods are of no use."""

    __slots__ = ()

    def encode(self, *_args: Any, **_kwargs: Any) -> bytes:
        """Fail."""
        raise RuntimeError

    def __len__(self) -> int:
        raise RuntimeError


STEPS: list[tuple[Any, type[Exception], str]] = [
    (HUGE, ValueError, "<int>"),
    (-HUGE, ValueError, "<int>"),
    (10**14, ValueError, "100000000000000"),
    (-1, ValueError, "-1"),
    (True, TypeError, "True"),
    (Three.THREE, TypeError, "Three.THREE"),
    (1.0, TypeError, "1.0"),
    ("1", TypeError, "'1'"),
]


@pytest.mark.parametrize("in_thread", [False, True])
async def test_step_that_cannot_be_sent_is_refused_and_hurts_no_neighbour(
    app: App, queue_name: str, peek: Peek, in_thread: bool
) -> None:
    """A step is an int of 0 to 10^14-1: another one is named in the error, and checkpoints of the same call are kept."""
    errors: dict[int, BaseException] = {}

    @app.task(queue=queue_name, max_attempts=1)
    async def bad(job: Job, n: int) -> None:
        try:
            await job.checkpoint("state", step=STEPS[n][0])
        except Exception as error:
            errors[n] = error
            raise

    @app.task(queue=queue_name, max_attempts=1)
    def bad_in_thread(job: SyncJob, n: int) -> None:
        try:
            job.checkpoint("state", step=STEPS[n][0])
        except Exception as error:
            errors[n] = error
            raise

    @app.task(queue=queue_name, result_ttl=60)
    async def good(job: Job) -> int:
        await job.checkpoint("state", step=10**14 - 1)
        return 1

    async with app, running(app, concurrency=50):
        goods = []
        for n in range(len(STEPS)):
            await (bad_in_thread if in_thread else bad).enqueue(n)
            goods.append(await good.enqueue())
        for job in goods:
            assert await job.result(timeout=10) == 1
        await until(lambda: peek.count("dead") == len(STEPS))
    for n, (_, kind, text) in enumerate(STEPS):
        assert type(errors[n]) is kind
        assert text in str(errors[n])


KINDS = ("coroutine", "thread", "batch", "process")
STEPS_WANTED = ["kept 1", "kept 2", "is at step 5, expected a checkpoint that does not go back to step 4", "kept 4"]


@TRIO
@pytest.mark.parametrize("kind", KINDS)
async def test_checkpoint_without_a_step_stays_on_the_latest(app: App, queue_name: str, peek: Peek, kind: str) -> None:
    """The one that was kept in this attempt, wherever the handler runs; a refusal says from where to where."""
    options: dict[str, Any] = {"queue": queue_name, "result_ttl": 60, "max_attempts": 1}

    async def noted(notes: Any) -> list[str]:
        return [await try_checkpoint(notes, *each) for each in process_jobs.CHECKPOINTS]

    if kind == "coroutine":

        @app.task(**options, name="handle")
        async def handle(job: Job) -> list[str]:
            return await noted(job)

    elif kind == "batch":

        @app.task(**options, name="handle", batch=Batch(max_size=2))
        async def handle_batch(batch: JobBatch[int]) -> None:
            for item in batch:
                batch.done(item, await noted(item))

    else:
        app.task(**options, name="handle", run_in=kind)(process_jobs.checkpoints)  # type: ignore[call-overload]
    async with app, running(app, pool=1):
        args = b'{"args":[1]}' if kind == "batch" else b"{}"
        job = await app.queue(queue_name).enqueue(args, task="handle", result_ttl=60)
        await until(lambda: peek.state(job.id) in {"done", "dead"})
        found = await job.info()
    assert found is not None
    told = JsonCodec().decode(found.record.result or b"[]")
    assert [text.removeprefix(f"{job.id} ") for text in told] == STEPS_WANTED
    assert (found.record.step, found.record.checkpoint) == (5, b"4")


async def try_checkpoint(job: Any, state: int, step: int | None) -> str:
    """Keep a checkpoint, and tell what came of it."""
    try:
        await job.checkpoint(state, step=step)
    except JobStateError as error:
        return str(error)
    return f"kept {state}"


async def test_checkpoint_without_a_step_goes_on_from_what_was_kept_unheard(
    app: App, queue_name: str, redis_client: Any
) -> None:
    """A call whose answer was lost may have moved the step: the server's word counts, and one with a step is refused."""

    @app.task(queue=queue_name, result_ttl=60, max_attempts=1)
    async def handle(job: Job) -> list[str]:
        first = await try_checkpoint(job, 1, 2)
        redis_client.hset(QueueKeys(queue=queue_name).job(job.id), "step", 7)  # as if another call had
        return [first, await try_checkpoint(job, 2, 3), await try_checkpoint(job, 3, None)]

    async with app, running(app):
        job = await handle.enqueue()
        told = await job.result(timeout=10)
        found = await job.info()
    assert found is not None
    assert [text.removeprefix(f"{job.id} ") for text in told] == [
        "kept 1", "is at step 7, expected a checkpoint that does not go back to step 3", "kept 3",
    ]  # fmt: skip
    assert found.record.step == 7


class Odd:
    """A codec that makes what it is told."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make, self.json = make, JsonCodec()

    def encode(self, value: Any) -> Any:
        """Write what is marked as told."""
        return self.make() if value == "odd" else self.json.encode(value)

    def decode(self, data: bytes, type: Any = Any) -> Any:
        """Read JSON."""
        return self.json.decode(data, type)


@pytest.mark.parametrize("made", [bytearray(b"1"), "1", "\udcff", None, 1, Three.THREE, HUGE], ids=range(7))
async def test_codec_that_makes_no_bytes_fails_its_own_job_only(
    server_url: str, queue_name: str, peek: Peek, made: Any
) -> None:
    """What a codec makes of a note or a result must be bytes."""
    app = App(server_url, codec=Odd(lambda: made))

    @app.task(queue=queue_name, max_attempts=1, result_ttl=60)
    async def handle(job: Job, how: str) -> Any:
        if how == "result":
            return "odd"
        if how == "checkpoint":
            await job.checkpoint("odd")
        await job.progress(1, 1, "odd")
        await job.checkpoint("fine")
        return "fine"

    async with app, running(app):
        bad = [await handle.enqueue(how) for how in ("result", "checkpoint")]
        good = [await handle.enqueue("") for _ in range(3)]
        for job in good:
            assert await job.result(timeout=10) == "fine"
        await until(lambda: peek.count("dead") == len(bad))
    for job in bad:
        error = peek.record(job.id).error
        assert error is not None
        assert error.type.endswith("EncodeError")
        assert "not bytes" in error.message


async def test_long_line_of_a_log_is_cut_visibly(app: App, queue_name: str, peek: Peek) -> None:
    """A line longer than a log keeps its beginning and says how much is gone; it fails nothing."""

    @app.task(queue=queue_name, result_ttl=60)
    async def handle(job: Job) -> str:
        with pytest.raises(TypeError, match="b'x'"):
            await job.log(b"x")  # type: ignore[arg-type]
        await job.log("é" * MAX_LINE)
        return "fine"

    @app.task(queue=queue_name, result_ttl=60)
    async def short(job: Job) -> str:
        await job.log(Word("lone \udcff"))
        await job.log("x" * MAX_LINE)
        return "fine"

    async with app, running(app):
        one, other = await handle.enqueue(), await short.enqueue()
        assert await one.result(timeout=10) == await other.result(timeout=10) == "fine"
        found = await one.info(log=True)
        assert found is not None
        (line,) = found.log
        assert len(line.encode()) <= MAX_LINE
        assert line.startswith("éé")
        head, _, tail = line.partition(" ... ")
        assert tail == f"{2 * MAX_LINE - 2 * len(head)} bytes cut"
        found = await other.info(log=True)
        assert found is not None
        assert found.log == ("x" * MAX_LINE,)


def test_line_is_cut_to_the_byte() -> None:
    """The limit itself is not too long, one byte more is."""
    assert cut_line("x" * MAX_LINE) == b"x" * MAX_LINE
    assert MAX_LINE - 10 < len(cut_line("x" * (MAX_LINE + 1))) <= MAX_LINE
    assert cut_line(Word("a\udcff")) == b"a?"


@pytest.mark.parametrize(
    "bad", [{"offset": HUGE}, {"offset": 10**14}, {"offset": True}, {"count": HUGE}, {"count": Three.THREE}]
)
async def test_page_that_cannot_be_sent_is_refused(server_url: str, queue_name: str, bad: dict[str, Any]) -> None:
    """Numbers of a page have upper limits, and flags are flags whatever they are given as."""
    async with open_client(server_url) as client:
        queue = client.queue(queue_name)
        with pytest.raises(ValueError, match=r"an offset|a page"):
            await queue.browse("dead", **bad)
        page = await queue.browse("dead", offset=10**14 - 1, reverse=HUGE)  # type: ignore[arg-type]
        assert page.jobs == ()


def test_transitions_send_flags_as_flags(queue_name: str) -> None:
    """A truth of any kind is sent as 1."""
    keys = QueueKeys(queue=queue_name)
    assert browse(keys, Call("c"), state="dead", reverse=HUGE).argv[-2] == 1  # type: ignore[arg-type]
    assert claim(keys, Call("c"), count=1, lease_ms=1, by_lane=HUGE).argv[-1] == 1  # type: ignore[arg-type]
    assert configure(keys, Call("c"), settings={}, only_unset=HUGE).argv[-1] == 1  # type: ignore[arg-type]
    assert read_job(keys, Call("c"), "x", with_log=HUGE).argv[-1] == 1  # type: ignore[arg-type]


async def test_options_of_other_classes_are_sent_as_what_they_are(app: App, queue_name: str, peek: Peek) -> None:
    """Durations that are enums or texts that are enums hurt no neighbour."""

    class Key(enum.StrEnum):
        A = "a"

    @app.task(queue=queue_name)
    async def handle() -> None:
        await anyio.lowlevel.checkpoint()

    async with app:
        first = await handle.options(delay=Three.THREE, dedup=Key.A, headers={"a": Key.A}).enqueue()
        assert not (await handle.options(dedup="a").enqueue()).admitted
        with pytest.raises(ValueError, match="dedup"):
            handle.options(dedup=Word("\udcff"))
        assert await first.cancel(reason=Key.A) == "cancelled"
        for bad in ({"delay": HUGE}, {"priority": HUGE}, {"max_attempts": HUGE}):
            with pytest.raises(ValueError, match="<int>"):
                handle.options(**bad)  # type: ignore[arg-type]
    assert peek.count("cancelled") == 1
