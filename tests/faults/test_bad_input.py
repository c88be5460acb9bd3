"""Bad input from end to end: each job meets its own fate, and no neighbour, worker or client pays for it."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import anyio
import pytest

import echomq
from echomq import sync, transitions
from echomq.app import App
from echomq.backoff import Fixed
from echomq.conformance.driver import connect
from echomq.conformance.invariants import violations
from echomq.conformance.snapshot import scan, take
from echomq.embedded import Server, open_server
from echomq.errors import OutOfMemoryError
from echomq.job import Job
from echomq.protocol.newjob import NewJob
from echomq.transitions import Call
from echomq.verdicts import Discard, Snooze
from tests.worker.processes import wait_until, worker_process
from tests.worker.support import TRIO, Peek, running, until
from tests.worker.test_command import put

APP = "tests.faults.jobs_app:app"
OPTIONS = ("--lease", "3", "--grace", "0.2", "--cleanup", "1", "--concurrency", "4")


@pytest.mark.slow
def test_bad_jobs_meet_their_fates_and_their_neighbours_run(server_url: str, queue_name: str, peek: Peek) -> None:
    """The whole list through real workers, which one job kills and another blocks."""
    # Whoever runs beside the killer is stalled with it, each time.
    limits: dict[str, Any] = {"max_attempts": 1, "max_stalls": 9, "result_ttl_ms": 60_000}
    bad = {kind: put(peek, "bad", kind, **limits) for kind in ("unencodable", "huge", "strange", "blocker")}
    bad["killer"] = put(peek, "bad", "killer", **{**limits, "max_stalls": 1})
    bad["unknown"] = put(peek, "no_such_task", **limits)
    bad["unfit"] = put(peek, "bad", 1, 2, 3, **limits)
    for kind, payload in {"undecodable": b"\xff\x00{", "no call": b"[1]", "empty": b""}.items():
        unreadable = NewJob(task="bad", payload=payload, **limits)
        peek.run(transitions.enqueue(peek.keys, Call("test"), [unreadable]))
        bad[kind] = unreadable.id
    neighbours = [put(peek, "bad", "fine", **limits) for _ in range(30)]
    with ExitStack() as stack:
        crew = [stack.enter_context(worker_process(server_url, queue_name, *OPTIONS, app=APP)) for _ in range(2)]
        for _ in range(2):  # the killer's two attempts
            dead = wait_until(lambda: next((worker for worker in crew if worker.process.poll() is not None), None))
            assert dead.wait() == -signal.SIGKILL
            crew.remove(dead)
            crew.append(stack.enter_context(worker_process(server_url, queue_name, *OPTIONS, app=APP)))
        wait_until(lambda: not peek.client.exists(peek.keys.pending, peek.keys.active))
        assert all(worker.process.poll() is None for worker in crew)
    for job in neighbours:
        assert (peek.state(job), peek.record(job).failures) == ("done", 0)
    seen = {}
    for kind, job in bad.items():
        record = peek.record(job)
        seen[kind] = (peek.state(job), record.error.type.rpartition(".")[2] if record.error else record.reason[:7])
        assert record.failures <= 1
        assert len(record.row.get(b"error", b"")) <= 4096
    assert seen == {
        "unencodable": ("dead", "EncodeError"),
        "huge": ("dead", "EncodeError"),
        "strange": ("dead", "NeedsThree"),
        "killer": ("dead", "stalled"),
        "blocker": ("done", ""),
        "unknown": ("schedule", ""),
        "unfit": ("schedule", ""),
        "undecodable": ("dead", "DecodeError"),
        "no call": ("dead", "DecodeError"),
        "empty": ("dead", "DecodeError"),
    }
    assert peek.record(bad["undecodable"]).payload == b"\xff\x00{"
    assert violations(take(peek.client, peek.keys), awake=1) == []


LONG = "n" * 4096
NAMES = ["a{b", "a}b", "{}", "two words", "two\nlines", "tab\t", "nul\0", "\x1b[31m", LONG, "", "\udcff"]


@pytest.mark.parametrize("name", NAMES, ids=lambda name: repr(name[:10]))
@pytest.mark.anyio
async def test_strange_names_are_refused_before_any_io(server_url: str, peek: Peek, name: str) -> None:
    """Queues, tasks, prefixes, jobs: a ValueError, which shows the name, from either client, and no key is made."""
    before = set(scan(peek.client, "*"))
    app = echomq.App(server_url)

    async def handle() -> None: ...

    shown: list[Callable[[], object]] = [
        lambda: app.task(queue=name)(handle),
        lambda: echomq.App(server_url, prefix=name),
        lambda: echomq.open_client(server_url, prefix=name),
        lambda: sync.Client(server_url, prefix=name),
        lambda: app.task_stub(name, queue=name),
    ]
    if name:  # "": the function's own name, or no name at all
        shown.append(lambda: app.task(name=name)(handle))
    async with echomq.open_client(server_url) as client:
        queue = client.queue(peek.keys.queue)
        with sync.Client(server_url) as blocking:
            here = blocking.queue(peek.keys.queue)
            shown += [lambda: client.queue(name), lambda: blocking.queue(name)]
            shown += [lambda: client.handle(name, queue.name), lambda: blocking.handle(name, queue.name)]
            shown += [lambda: here.cancel(name), lambda: here.remove([name]), lambda: here.redrive([name])]
            shown += [lambda: here.job(name)]
            if name:
                shown.append(lambda: here.enqueue(b"x", task=name))
            for call in shown:
                with pytest.raises(ValueError, match=re.escape(repr(name)[:40])):
                    call()
        for sending in (queue.cancel(name), queue.remove([name]), queue.redrive([name]), queue.job(name)):
            with pytest.raises(ValueError, match=re.escape(repr(name)[:40])):
                await sending
        if name:
            with pytest.raises(ValueError, match=re.escape(repr(name)[:40])):
                await queue.enqueue(b"x", task=name)
    assert set(scan(peek.client, f"{peek.keys.base}*")) == set()
    assert not [key for key in set(scan(peek.client, "*")) - before if name and name.encode("utf-8", "replace") in key]


@pytest.mark.anyio
async def test_strange_text_that_is_no_name_travels_whole(app: App, peek: Peek) -> None:
    """Dedup keys, headers, reasons and log lines are text: braces, spaces, line breaks and 4 KiB come as they went."""
    seen: list[Mapping[str, str]] = []
    texts = {"braces": "a{b}c", "words": "two words", "lines": "one\ntwo\r\n", "long": LONG, "nul": "\0", "empty": ""}

    @app.task(queue=peek.keys.queue, result_ttl=60)
    async def handle(job: Job) -> None:
        seen.append(job.headers)
        for text in texts.values():
            await job.log(text)
        raise Discard(LONG)

    async with app, running(app):
        job = await handle.options(headers=texts, dedup="a {b} c").enqueue()
        with pytest.raises(echomq.JobFailedError):
            await job.result(10)
        found = await app.queue(peek.keys.queue).job(job.id, log=True)
    assert found is not None
    assert seen == [texts]
    assert list(found.log) == list(texts.values())
    assert peek.record(job.id).reason == LONG[:1024]
    assert violations(take(peek.client, peek.keys), awake=1) == []


@pytest.fixture
def full() -> Iterator[Server]:
    """A server that the test fills."""
    with open_server(config={"maxmemory-policy": "noeviction"}) as server:
        yield server


FATES: dict[str, tuple[str, int]] = {
    "complete": ("completed", 1), "fail": ("completed", 2), "dead": ("dead", 2), "snooze": ("completed", 2),
    "end": ("discarded", 1), "timeout": ("dead", 2), "cancel": ("cancelled", 1), "release": ("completed", 2),
}  # fmt: skip
"""How a job ends that does so once, and at which attempt."""


@TRIO
@pytest.mark.anyio
async def test_full_server_takes_every_verdict_and_no_job(full: Server, queue_name: str) -> None:
    """Enqueueing raises a clear error; workers that come when it is full claim, renew, and give every verdict."""
    app = App(full.url)
    began: list[str] = []

    @app.task(queue=queue_name, max_attempts=2, backoff=Fixed(0), result_ttl=600)
    async def settle(job: Job, how: str) -> str:
        began.append(how)
        first = job.attempt == 1
        if first and how in {"timeout", "cancel", "release"}:
            await anyio.sleep_forever()
        await anyio.sleep(2.0)  # longer than a lease
        await job.progress(job.attempt)
        match how:
            case "fail" if first:
                raise RuntimeError("once")
            case "dead":
                raise RuntimeError("again and again")
            case "snooze" if first:
                raise Snooze(0, at_least=0)
            case "end":
                raise Discard("enough")
        return how

    with connect(full.url) as client:
        peek = Peek(client, queue_name)
        async with app:
            jobs = {}
            for how in FATES:
                jobs[how] = await settle.options(timeout=0.5 if how == "timeout" else 30.0).enqueue(how)
            client.config_set("maxmemory", 1)
            with pytest.raises(OutOfMemoryError, match="enqueue"):
                await settle.enqueue("new")
            async with running(app, lease=1.8):
                await until(lambda: len(began) >= len(FATES))
                assert await jobs["cancel"].cancel() == "asked"
                await until(lambda: peek.state(jobs["cancel"].id) == "done")
                # All but one have ended; a job between two attempts is not active either.
                ends = {how: "dead" if kind == "dead" else "done" for how, (kind, _) in FATES.items()}
                ends["release"] = "active"
                await until(lambda: {how: peek.state(job.id) for how, job in jobs.items()} == ends)
            assert peek.state(jobs["release"].id) == "pending"
            async with running(app, lease=1.8):
                await until(peek.empty)
            with pytest.raises(OutOfMemoryError, match="enqueue"):
                await settle.enqueue("new")
            seen = {how: (peek.record(job.id).kind, peek.record(job.id).attempts) for how, job in jobs.items()}
            assert seen == FATES
            assert peek.count("stalled") == 0
            assert violations(take(client, peek.keys), awake=1) == []
            client.config_set("maxmemory", 0)
            assert (await settle.enqueue("complete")).admitted
