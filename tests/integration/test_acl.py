"""The rights that the documentation lists suffice for a client and for a worker, and a missing one is named."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import attrs
import pytest
import redis
from structlog.testing import capture_logs

import echomq
from echomq.embedded import open_server
from echomq.transitions import ALL_VERBS, load
from tests.integration.working import until

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "tls-and-acl.md"
RIGHTS = {
    name: rights.split()
    for name, rights in re.findall(r"^user shop-(\w+) on (.*)$", PAGE.read_text("utf-8"), re.MULTILINE)
}
FLOWS = {"flow_add", "flow_take", "flow_done", "flow_deliver", "flow_walk", "read_flow"}
READS_AND_ORDERS = FLOWS | {
    "enqueue", "cancel", "remove", "redrive", "pause", "resume", "configure", "counts", "read_job", "browse", "age",
    "reassign", "drain", "set_lane", "read_lanes", "read_settings", "reschedule", "find", "repair", "obliterate",
    "read_schedules", "schedule_put", "schedule_pause", "schedule_remove", "schedule_fire", "update", "reprioritise", "trim",
    "read_workers", "read_events",
}  # fmt: skip
WORKS = FLOWS | {
    "claim", "extend", "complete", "fail", "release", "snooze", "end", "rate_limited", "progress", "checkpoint", "log", "trim",
    "ring", "counts", "configure", "read_schedules", "schedule_fire", "schedule_put", "spawn", "suspend", "read_job",
    "beat",
}  # fmt: skip


def without(name: str, right: str) -> list[str]:
    """Answer a user's documented rights but for one command."""
    assert f"+{right}" in RIGHTS[name]
    return [each for each in RIGHTS[name] if each != f"+{right}"]


@attrs.frozen
class Place:
    """A server of the test's own, and how to make its users."""

    admin: redis.Redis
    where: str

    def users(self, *, client: list[str] = RIGHTS["client"], worker: list[str] = RIGHTS["worker"]) -> None:
        """Make both users, with the documented rights unless told otherwise."""
        for name, rights in (("client", client), ("worker", worker)):
            self.admin.execute_command("ACL", "SETUSER", f"shop-{name}", "reset", "on", *rights)

    def url(self, name: str) -> str:
        """Say where the server is for a user."""
        return f"valkey://shop-{name}:secret@{self.where}"


@pytest.fixture
def place() -> Iterator[Place]:
    """A server whose default user is left alone."""
    with open_server() as server, redis.Redis.from_url(server.url) as admin:
        parts = urlsplit(server.url)
        yield Place(admin, f"{parts.hostname}:{parts.port}")


def make_app(url: str) -> echomq.App:
    """Make the worker's app: a task that uses all that a job offers."""
    app = echomq.App(url, unavailable_after=5)

    @app.task(queue="files", result_ttl=60)
    async def work(job: echomq.Job, how: str) -> str:
        await job.progress(1, 2, how)
        await job.checkpoint(how, step=1)
        await job.log(how)
        match how:
            case "snooze" if job.attempt == 1:
                raise echomq.Snooze(0, at_least=0)
            case "retry" if job.attempt == 1:
                raise echomq.Retry(0)
            case "discard":
                raise echomq.Discard
            case "die":
                raise LookupError(how)
            case "wait":
                await anyio.sleep_forever()
        return how

    return app


@pytest.mark.anyio
async def test_acl_documented_rights_suffice(place: Place) -> None:
    """Enqueue, work, results, cancel and an operator's orders run under the two users, and the server refuses nothing."""
    place.users()
    worker_app = make_app(place.url("worker"))
    with capture_logs() as logs:
        async with echomq.open_client(place.url("client")) as client, anyio.create_task_group() as tasks:
            queue = client.queue("files")
            app = echomq.App(place.url("client"))
            stub = app.task_stub("work", queue="files", result_ttl=60)
            run = partial(echomq.run_worker, worker_app, grace=0, cleanup=5, lease=1.0)
            worker = await tasks.start(run)

            async def enqueue(how: str, **options: str | float) -> echomq.JobHandle[str]:
                return await client.enqueue(stub.options(**options).call(how))  # type: ignore[arg-type]

            for how in ("done", "snooze", "retry"):
                assert await (await enqueue(how)).result(10) == how
            with pytest.raises(echomq.JobFailedError, match="Discard"):
                await (await enqueue("discard")).result(10)
            dead = await enqueue("die", max_attempts=1)
            with pytest.raises(echomq.JobFailedError, match="LookupError"):
                await dead.result(10)
            running = await enqueue("wait")
            while await running.state() != "active":  # noqa: ASYNC110 - another program's doing
                await anyio.sleep(0.01)
            assert await running.cancel(reason="enough") == "asked"
            with pytest.raises(echomq.JobCancelledError, match="enough"):
                await running.result(10)

            held = await enqueue("held", dedup="held", delay=60)
            assert not (await enqueue("held", dedup="held")).admitted
            assert await held.cancel() == "cancelled"
            await queue.configure(events="all")
            events = queue.events("0")
            while (event := await anext(events)).kind != "paused":  # type: ignore[union-attr] # no gap: there are few
                if event.kind == "dead":  # type: ignore[union-attr]
                    assert await queue.history(dead.id) != []
                    assert await queue.pause()
            events.close()
            waiting = await enqueue("done")
            assert (await queue.age() or ("",))[0] == waiting.id
            assert (await queue.browse("dead", reverse=True)).total == 1
            assert await queue.redrive([dead.id]) == [None]
            assert await queue.remove([dead.id]) == [None]
            assert (await queue.job(waiting.id, log=True)) is not None
            assert await queue.resume()
            assert await waiting.result(10) == "done"
            assert (await queue.counts()).totals["completed"] == 4
            shut = await enqueue("wait")
            while await shut.state() != "active":  # noqa: ASYNC110
                await anyio.sleep(0.01)
            renewals = worker.statistics().renewals
            await until(lambda: worker.statistics().renewals > renewals)
            worker.stop()
        async with echomq.open_client(place.url("client")) as client:
            assert await client.handle(shut.id, "files").state() == "pending"
            await recover(client.queue("files"))
    assert place.admin.execute_command("ACL", "LOG") == []
    assert [log for log in logs if log["event"].endswith(("unknown", "channel_failed", "park_failed"))] == []


@pytest.mark.anyio
async def test_acl_documented_rights_suffice_for_flows(place: Place) -> None:
    """Flows small and large, nurseries, follow-ups, alerts, pictures, and what becomes of flows that are cancelled."""
    place.users()
    app = make_app(place.url("worker"))

    @app.task(queue="files", result_ttl=60)
    async def gather(job: echomq.Job) -> int:
        return len(await job.children_results(int)) + len(await job.ignored_failures()) + len(await job.outstanding())

    @app.task(queue="files")
    async def one() -> int:
        return 1

    @app.task(queue="files", result_ttl=60)
    async def spawns(job: echomq.Job) -> int:
        async with job.nursery() as children:
            spawned = [children.enqueue(one.call()) for _ in range(3)]
        job.on_complete.enqueue(gather.call())
        return sum(child.result() for child in spawned)

    @app.on_dead
    async def told(dead_id: str) -> None:
        pass

    fails = app.task_stub("work", queue="files").options(max_attempts=1).call("die")
    with capture_logs() as logs:
        async with echomq.open_client(place.url("client")) as client, anyio.create_task_group() as tasks:
            worker = await tasks.start(partial(echomq.run_worker, app, grace=0, cleanup=5))
            small = await client.flows.add(
                echomq.flow(gather.call(), [one.call(), echomq.child(fails, on_failure="ignore")])
            )
            assert await small.result(20) == 2
            large = await client.flows.add(echomq.flow(gather.call(), [one.call() for _ in range(300)]))
            assert await large.result(20) == 300
            assert (await client.flows.tree(large)).state == "completed"
            assert await (await client.enqueue(spawns.call())).result(20) == 3
            later = one.options(delay=60).call()
            cancelled = await client.flows.add(echomq.flow(gather.call(), [later, later]))
            assert (await cancelled.cancel()).cancelled == 3
            broken = await client.flows.add(echomq.flow(gather.call(), [fails, later]))
            with pytest.raises(echomq.JobFailedError, match="child 0"):
                await broken.result(20)
            queue = client.queue("files")
            # Both that failed, the parent, and its other child with it.
            while (await queue.counts()).totals.get("dead", 0) < 4:  # noqa: ASYNC110
                await anyio.sleep(0.01)
            assert await queue.redrive([broken.id]) == [None]
            with pytest.raises(echomq.JobFailedError, match="child 0"):
                await broken.result(20)
            worker.stop()
    assert place.admin.execute_command("ACL", "LOG") == []
    assert [log for log in logs if log["event"] in ("outbox_left_alone", "on_dead_not_set", "news_not_delivered")] == []


async def recover(queue: echomq.Queue) -> None:
    """Do what an operator does when things went wrong."""
    both = [await queue.enqueue(b"", task="later", delay=60, lane=lane) for lane in ("", "a")]
    for later in both:
        await later.promote()
        await later.reschedule(delay=60)
    assert (await queue.cancel_where(task="later")).cancelled == 2
    assert [line async for line in both[0].logs()] == []
    assert [job async for job in queue.dead.find()] == []
    waiting = await queue.enqueue(b"", lane="a")
    await queue.update(waiting.id, b"x" * 100)
    assert await queue.reprioritise([waiting.id], priority=3) == [None]
    assert [job.record.id async for job in queue.find("pending", lane="a")] == [waiting.id]
    assert (await queue.waits()).pending.jobs >= 1
    await queue.workers()
    await queue.trim(done_max=0)
    assert await queue.drain(scheduled=True) >= 1
    both = [await queue.enqueue(b"", task="later", lane=lane) for lane in ("", "a")]
    assert await queue.dead.redrive() == 0
    await queue.enqueue(b"", lane="a")
    assert (await queue.repair()).unknown == ()
    assert await queue.obliterate(force=True) >= 2


def test_acl_sync_client_needs_no_more(place: Place) -> None:
    """The synchronous client enqueues, reads and cancels with the client's rights."""
    place.users()
    with echomq.sync.Client(place.url("client")) as client:
        handle = client.queue("files").enqueue(b"1", result_ttl=60)
        with pytest.raises(TimeoutError):
            handle.result(timeout=0.01)
        assert handle.cancel() == "cancelled"
        with pytest.raises(echomq.JobCancelledError):
            handle.result(timeout=1)
    assert place.admin.execute_command("ACL", "LOG") == []


@pytest.mark.parametrize(("name", "verbs"), [("client", READS_AND_ORDERS), ("worker", WORKS)])
def test_acl_lists_are_those_of_the_scripts(name: str, verbs: set[str]) -> None:
    """What the page lists for scripts is what the scripts of these verbs call, no more and no less."""
    own = {
        "evalsha",
        "script|load",
        "ping",
        "client|setname",
        "client|setinfo",
        "subscribe",
        "unsubscribe",
        "blpop",
        "info",
        "scan",
        "zscan",
        "zremrangebyscore",
        "xread",
    }
    rights = {right[1:] for right in RIGHTS[name] if right.startswith("+")} - own
    listed = {right.partition("|")[0] for right in rights}
    called = {
        command.lower()
        for verb in verbs
        for command in re.findall(r"(?:call\(|and |or )'(?!EMQ)(Z?[A-Z]+)'", load(verb).source)
    }
    assert listed == called
    assert verbs <= set(ALL_VERBS)


@pytest.mark.anyio
@pytest.mark.parametrize("right", ["evalsha", "script|load", "subscribe", "ping", "zadd", "hset", "time"])
async def test_acl_error_names_the_missing_right(place: Place, right: str) -> None:
    """Whoever lacks a command is told which."""
    place.users(client=without("client", right))
    with pytest.raises(echomq.ServerError, match=re.escape(right)) as caught:
        await _enqueue_and_wait(place)
    # Within a script, after an item's first write, it is the item's own error.
    assert isinstance(caught.value, echomq.PermissionDeniedError) or caught.value.code == "EMQTORN"


@pytest.mark.anyio
@pytest.mark.parametrize(("instead", "told"), [
    ("~emq:{other}:*", "key.*enqueue, queue 'files'"),
    ("&emq:{other}:*", "channel.*SUBSCRIBE emq:{files}:job:JOB"),
])  # fmt: skip
async def test_acl_error_tells_keys_from_channels(place: Place, instead: str, told: str) -> None:
    """Whoever lacks a pattern is told of which kind, and for what."""
    place.users(client=[instead if right[0] == instead[0] else right for right in RIGHTS["client"]])
    with pytest.raises(echomq.PermissionDeniedError, match=told):
        await _enqueue_and_wait(place)


async def _enqueue_and_wait(place: Place) -> None:
    async with echomq.open_client(place.url("client"), unavailable_after=5) as client:
        handle = await client.queue("files").enqueue(b"1", result_ttl=60)
        await handle.result(timeout=5)


@pytest.mark.anyio
@pytest.mark.parametrize(("right", "warning"), [
    ("blpop", "park_failed"), ("subscribe", "cancel_channel_failed"), ("info", "eviction_policy_unknown"), ("pexpire", "beat_failed"),
    ("client|setinfo", None),
])  # fmt: skip
async def test_acl_worker_goes_without_what_it_can_spare(place: Place, right: str, warning: str | None) -> None:
    """Without the doorbell, the cancel channel or INFO a worker warns and works."""
    place.users(worker=without("worker", right))
    with capture_logs() as logs:
        async with echomq.open_client(place.url("client")) as client, anyio.create_task_group() as tasks:
            worker = await tasks.start(partial(echomq.run_worker, make_app(place.url("worker"))))
            handle = await client.queue("files").enqueue(b'{"args":["done"]}', task="work", result_ttl=60)
            assert await handle.result(10) == "done"
            await until(lambda: warning is None or [log for log in logs if log["event"] == warning])
            worker.stop()
    warned = {log["event"]: log.get("error", "") for log in logs if log["log_level"] == "warning"}
    warned.pop("event_loop_late", None)  # the machine's doing
    if warning is None:
        assert warned == {}
    else:
        assert right in warned[warning]


@pytest.mark.anyio
@pytest.mark.parametrize("right", ["hset", "zadd", "lpush", "time"])
async def test_acl_right_that_is_missing_inside_a_script_is_named(place: Place, right: str) -> None:
    """Whether the whole call is refused or the item in its middle, for one job, for many, and for each of their callers."""
    place.users(client=[*RIGHTS["client"], f"-{right}"])
    async with echomq.open_client(place.url("client")) as client:
        queue = client.queue("files")
        with pytest.raises(echomq.PermissionDeniedError, match=f"'{right}'"):
            await queue.enqueue(b"")
        for answer in await queue.enqueue_many([b"", b""]):
            assert isinstance(answer, echomq.PermissionDeniedError)
            assert f"'{right}'" in str(answer)
            assert "files" in str(answer)
