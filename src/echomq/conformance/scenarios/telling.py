"""Events: what is told, to whom it is read, and how many are kept."""

from __future__ import annotations

from echomq.conformance.bench import Bench
from echomq.conformance.items import make_item
from echomq.conformance.scenarios.registry import scenario
from echomq.transitions import Failure, Snoozed


def _kinds(b: Bench, **options: object) -> list[str]:
    return [fields["event"] for _, fields in b.worker.plain("read_events", **options).entries]


@scenario("read_events answers what happened behind a position, and where the stream begins and ends")
def reads_on(b: Bench) -> None:
    with b.unchanged():
        page = b.worker.plain("read_events")
        b.expect("no stream", (page.position, page.examined, page.added, page.kept), ("0-0", 0, 0, 0))
        b.expect("no stream's ends", (page.first, page.last, page.entries), ("0-0", "0-0", ()))
        b.expect("its end", b.worker.plain("read_events", after="$").position, "0-0")
        b.expect("a position", b.worker.plain("read_events", after="5-1").position, "5-1")
    b.configure(events="all")
    ids = [b.add(), b.add()]
    job = b.take()
    with b.unchanged():
        page = b.worker.plain("read_events", bound=2)
        b.expect("the first two", [fields["job"] for _, fields in page.entries], ids)
        b.expect("how many there are", (page.examined, page.added, page.kept), (2, 3, 3))
        b.expect("where it begins", (page.first, page.position), tuple(id for id, _ in page.entries))
        rest = b.worker.plain("read_events", after=page.position, bound=1000)
        b.expect("the rest", [fields["event"] for _, fields in rest.entries], ["claimed"])
        b.expect("the end", (rest.examined, rest.position, rest.last), (1, page.last, page.last))
        done = b.worker.plain("read_events", after=rest.position)
        b.expect("nothing more", (done.examined, done.position, done.entries), (0, rest.position, ()))
        now = b.worker.plain("read_events", after="$")
        b.expect("from now on", (now.position, now.examined, now.entries), (page.last, 0, ()))
        b.expect("of a job", _kinds(b, job=job.id), ["enqueued", "claimed"])
        b.expect("of a kind", _kinds(b, kinds=["claimed", "dead"]), ["claimed"])
        b.expect("of kinds", _kinds(b, kinds=["claimed", "enqueued"], job=ids[1]), ["enqueued"])
        some = b.worker.plain("read_events", kinds=["dead"], bound=2)
        b.expect("passes others", (some.entries, some.examined, some.position), ((), 2, page.position))
    for after, bound in (
        ("", 1),
        ("5", 1),
        ("x-1", 1),
        ("-1-1", 1),
        ("1-1 ", 1),
        ("0-0", 0),
        ("0-0", 1001),
        ("0-0", 1.5),
    ):
        b.refuses(f"{after!r} {bound}", "EMQKIND read_events", b.worker.bare, "read_events", after, bound, "", "")


@scenario("about as many events are kept as the queue says, and the reader learns how many are gone")
def bound_of_events(b: Bench) -> None:
    for bad in ("0", "-1", "x", "1.5", "1000000001"):
        b.refuses(bad, f"EMQKIND events_max {bad}", b.producer.plain, "configure", settings={"events_max": bad})
    b.expect("unset", b.worker.plain("read_settings").events_max, None)
    b.expect("the most", b.producer.plain("configure", settings={"events_max": "1000000000"}), True)
    b.expect("only if unset", b.producer.plain("configure", settings={"events_max": "5"}, only_unset=True), False)
    b.expect("read", b.worker.plain("read_settings").events_max, 1_000_000_000)
    b.configure(events="all", events_max="1")
    b.expect("as few", b.worker.plain("read_settings").events_max, 1)
    job = b.add(), b.take()
    note = make_item("progress", job[1].id, job[1].token, job[1].nonce)
    for _ in range(2):
        b.worker.items("progress", *[note] * 256)
    page = b.worker.plain("read_events")
    b.expect("added", page.added, 514)
    b.expect("kept", 0 < page.kept < 350, True)
    b.configure(events_max="")
    for _ in range(2):
        b.worker.items("progress", *[note] * 256)
    b.expect("more are kept", b.worker.plain("read_events").kept, page.kept + 512)


@scenario("events say what a reader cannot know afterwards: the attempt, when it goes on, why, and by which error")
def fields_of_events(b: Bench) -> None:
    b.configure(events="all")

    def last(*names: str) -> tuple[str, ...]:
        *_, (_, fields) = b.worker.plain("read_events").entries
        return tuple(fields[name] for name in ("event", *names))

    id = b.add()
    claimed = b.take()
    fenced = (claimed.id, claimed.token, claimed.nonce)
    b.expect("claimed", last("job", "token", "holder"), ("claimed", id, "1", claimed.nonce))
    b.settle("progress", claimed)
    b.expect("progress", last("token"), ("progress", "1"))
    b.settle("checkpoint", claimed)
    b.expect("checkpoint", last("token")[1], "1")
    b.on("snooze", Snoozed(*fenced, 60_000))
    b.expect("snoozed", last("token", "due"), ("snoozed", "1", f"{b.score('schedule', id):.0f}"))
    b.due(id)
    claimed = b.take()
    error = b'{"type":"ssl.SSLError","message":"type: \\"x\\""}'
    b.on("fail", Failure(claimed.id, claimed.token, claimed.nonce, 60_000, 3, error))
    due = f"{b.score('schedule', id):.0f}"
    b.expect("failed", last("token", "failures", "due", "error"), ("failed", "2", "1", due, "ssl.SSLError"))
    b.due(id)
    claimed = b.take()
    b.on("fail", Failure(claimed.id, claimed.token, claimed.nonce, 0, 2, b'"no record"'))
    b.expect("dead", last("token", "reason", "error"), ("dead", "3", "failed 2 of 2 times", ""))
    b.on("redrive", id)
    claimed = b.take()
    b.on("fail", Failure(claimed.id, claimed.token, claimed.nonce, 0, 1, error))
    b.expect("dead again", last("token", "error"), ("dead", "4", "ssl.SSLError"))
    b.on("remove", id)
    b.expect("removed", last("job", "state"), ("removed", id, "dead"))
    gone = b.add(result_ttl_ms=60_000)
    b.settle("complete", b.take())
    b.configure(done_max="1")
    b.add(result_ttl_ms=60_000)
    b.settle("complete", b.take())
    told = [fields for _, fields in b.worker.plain("read_events", kinds=["trimmed"]).entries]
    b.expect("trimmed", told, [{"event": "trimmed", "job": gone, "state": "done"}])


@scenario(
    "whoever looks after a queue is told of pause and resume by default, and a torn stream keeps nobody from pausing"
)
def told_of_pauses(b: Bench) -> None:
    b.producer.plain("pause")
    b.producer.plain("pause")
    b.producer.plain("resume")
    b.expect("told once", _kinds(b), ["paused", "resumed"])
    b.server.delete(b.keys.events)
    b.server.set(b.keys.events, "no stream")
    b.expect("paused", b.producer.plain("pause"), True)
    b.expect("resumed", b.producer.plain("resume"), True)
    b.server.delete(b.keys.events)
