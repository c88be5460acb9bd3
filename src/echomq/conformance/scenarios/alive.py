"""Beats: workers say that they are alive, and are forgotten when they do not."""

from __future__ import annotations

from echomq.conformance.bench import Bench
from echomq.conformance.driver import Driver
from echomq.conformance.scenarios.registry import scenario
from echomq.transitions import Pulse, Running


def _pulse(**changed: object) -> Pulse:
    said: dict[str, object] = {
        "name": "w", "host": "h", "pid": 7, "up_ms": 5000, "concurrency": 10, "running": 1,
        "jobs": [Running("JOB00000000001", "t", 2, 300)],
    }  # fmt: skip
    return Pulse(**{**said, **changed})  # type: ignore[arg-type]


def _tags(b: Bench, driver: Driver | None = None, **page: int) -> list[str]:
    return [tag for tag, _ in (driver or b.producer).plain("read_workers", **page).workers]


@scenario("a beat is what a worker says of itself, for as long as it says; the next one takes its place")
def beats(b: Bench) -> None:
    before = b.clock()
    b.expect("noted", b.worker.plain("beat", pulse=_pulse()), True)
    page = b.producer.plain("read_workers")
    b.expect("read", (page.examined, [tag for tag, _ in page.workers]), (1, [b.worker.tag]))
    said = page.workers[0][1]
    b.expect(
        "said",
        {name: said[name] for name in (b"name", b"host", b"pid", b"concurrency", b"running", b"jobs")},
        {
            b"name": b"w", b"host": b"h", b"pid": b"7", b"concurrency": b"10", b"running": b"1",
            b"jobs": b'[["JOB00000000001","t",2,300]]',
        },
    )  # fmt: skip
    b.expect("since", before <= int(said[b"since"]) + 5000 <= b.clock(), True)
    b.expect("heard", before <= int(said[b"beat"]) <= page.now_ms, True)
    for name, key in (("set", b.keys.workers), ("hash", b.keys.worker(b.worker.tag))):
        b.expect(f"the {name} goes", 20_000 < b.server.pttl(key) <= 30_000, True)
        b.server.pexpire(key, 5000)
    b.worker.plain("beat", pulse=_pulse(name="x", jobs=[]), ttl_ms=600_000)
    for name, key in (("set", b.keys.workers), ("hash", b.keys.worker(b.worker.tag))):
        b.expect(f"the {name} goes later", 500_000 < b.server.pttl(key) <= 600_000, True)
    b.expect("its score", (b.look().zset("workers")[b.worker.tag] - b.clock()) > 500_000, True)
    b.expect("the next", b.look().hash(f"worker:{b.worker.tag}")["name"], "x")


@scenario("workers are read last heard first, by pages; those whose time is over are passed, and go with the next beat")
def pages(b: Bench) -> None:
    clients = [b.worker, b.other, b.producer]
    for n, client in enumerate(clients):
        client.plain("beat", pulse=_pulse(name=str(n)))
        b.server.zadd(b.keys.workers, {client.tag: b.clock() + 10_000 * (n + 1)})
    b.expect("all", _tags(b), [it.tag for it in reversed(clients)])
    b.expect("a page", _tags(b, count=2), [b.producer.tag, b.other.tag])
    b.expect("the next", _tags(b, count=2, offset=2), [b.worker.tag])
    b.server.delete(b.keys.worker(b.other.tag))
    page = b.worker.plain("read_workers")
    b.expect("one that says nothing", (page.examined, len(page.workers)), (3, 2))
    b.server.zadd(b.keys.workers, {b.worker.tag: 1000, b.other.tag: 1000})
    b.expect("those that are over", _tags(b), [b.producer.tag])
    b.producer.plain("beat", pulse=_pulse())
    b.expect("gone", list(b.look().zset("workers")), [b.producer.tag])
    b.server.zadd(b.keys.workers, {f"t{n:02}": 1000 + n for n in range(20)})
    b.producer.plain("beat", pulse=_pulse())
    b.expect("sixteen at once", len(b.look().zset("workers")), 5)
    for bad in ((-1, 1), (0, 0), (0, 257)):
        b.refuses(str(bad), "EMQKIND read_workers", b.worker.bare, "read_workers", *bad)
    b.expect("256", b.worker.plain("read_workers", count=256).examined, 1)


@scenario("a worker that goes is forgotten at once, and leaves nothing")
def goes(b: Bench) -> None:
    for client in (b.worker, b.other):
        client.plain("beat", pulse=_pulse())
    b.expect("goes", b.worker.plain("beat", pulse=None), False)
    b.expect("the other", _tags(b), [b.other.tag])
    b.expect("its word", f"worker:{b.worker.tag}" in b.look().entries, False)
    b.other.plain("beat", pulse=None)
    b.expect("nothing", [suffix for suffix in b.look().entries if suffix.startswith("worker")], [])


@scenario("a queue that is being closed notes no worker, and forgets those that go", 35)
def closing(b: Bench) -> None:
    b.worker.plain("beat", pulse=_pulse())
    b.server.hset(b.keys.meta, mapping={"protocol": "1.0", "closing": "1"})
    with b.unchanged():
        b.expect("not noted", b.other.plain("beat", pulse=_pulse()), False)
    b.expect("goes", b.worker.plain("beat", pulse=None), False)
    b.expect("nothing", [suffix for suffix in b.look().entries if suffix.startswith("worker")], [])
    b.worker.plain("resume")


@scenario("a beat that says too much, or for too long, is refused")
def refuses(b: Bench) -> None:
    said = ("w", "h", 7, 5000, 10, 1)
    for bad in (
        (-1, *said, "[]"), (600_001, *said, "[]"), ("x", *said, "[]"), (30_000, "w", "h", 7, -1, 10, 1, "[]"),
        (30_000, *said, "x" * 65_536),
    ):  # fmt: skip
        b.refuses(str(bad)[:40], "EMQKIND beat", b.worker.bare, "beat", *bad)
    rest = sum(len(str(it)) for it in said)
    b.expect("just enough", b.worker.bare("beat", 600_000, *said, "x" * (65_536 - rest)), 1)


@scenario("whoever reads a running job is told which worker has it, while that is heard of")
def has_it(b: Bench) -> None:
    id = b.add()
    b.worker.plain("beat", pulse=_pulse(name="the worker"))
    b.expect("ready", b.other.plain("read_job", id).worker, None)
    b.take()
    b.expect("running", b.other.plain("read_job", id).worker, "the worker")
    b.worker.plain("beat", pulse=None)
    b.expect("unknown", b.other.plain("read_job", id).worker, None)
    b.worker.plain("beat", pulse=_pulse(name="the worker"))
    b.expire(id)
    b.worker.plain("reap")
    b.expect("a late holder has it no longer", b.other.plain("read_job", id).worker, None)
