"""Changing what waits: another payload, another priority."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from echomq.conformance.bench import Bench
from echomq.conformance.items import YEAR_MS
from echomq.conformance.scenarios.registry import scenario
from echomq.protocol.records import NewJob, join_payload
from echomq.transitions import NewPayload, NewPriority

SIZES = (0, 1, 64, 65, 128, 129, 192, 193, 256, 257, 1000)
"""Of payloads: each number of pieces, at its edges."""


def _payload(b: Bench, id: str) -> bytes:
    row = {name.encode(): value.encode() for name, value in b.row(id).items()}
    return join_payload(row)


@scenario("update replaces a payload of any size by one of any size, and nothing else of the job")
def updates(b: Bench) -> None:
    for old in SIZES:
        id = b.add(payload=b"o" * old, priority=2, task="t")
        rest = {name: value for name, value in b.row(id).items() if not name.startswith("payload")}
        for new in SIZES:
            b.expect("update", b.on("update", NewPayload(id, b"n" * new)), ["ok"])
            b.expect("payload", _payload(b, id), b"n" * new)
        b.expect("the rest", {n: v for n, v in b.row(id).items() if not n.startswith("payload")}, rest)
        b.expect("its place", b.score("pending", id), -2.0)
        b.on("remove", id)


@scenario("reprioritise moves what is ready at once, in its lane, and all else when it is ready")
def reprioritises(b: Bench) -> None:
    for lane, where in ((None, "pending"), ("a", "lane:a:pending")):
        first, second = b.add(lane=lane), b.add(lane=lane, priority=1)
        b.expect("up", b.on("reprioritise", NewPriority(first, 2047)), ["ok"])
        b.expect("down", b.on("reprioritise", NewPriority(second, -2047)), ["ok"])
        b.expect("places", b.look().zset(where), {first: -2047.0, second: 2047.0})
        b.expect("rows", [b.row(id)["priority"] for id in (first, second)], ["2047", "-2047"])
        b.expect("none", b.on("reprioritise", NewPriority(first, 0)), ["ok"])
        b.expect("its place", b.look().zset(where)[first], 0.0)
        b.expect("its row", "priority" in b.row(first), False)
        b.on("remove", first, second)
    later = b.add(delay_ms=YEAR_MS)
    due = b.score("schedule", later)
    b.on("reprioritise", NewPriority(later, 7))
    b.expect("due as before", b.score("schedule", later), due)
    b.due(later)
    b.worker.plain("promote")
    b.expect("then", b.score("pending", later), -7.0)
    b.bury(later)
    b.on("reprioritise", NewPriority(later, 5))
    b.on("redrive", later)
    b.expect("in its next life", b.score("pending", later), -5.0)


@scenario("update and reprioritise refuse what runs or has ended, and what they cannot read")
def refuses(b: Bench) -> None:
    id = b.add(result_ttl_ms=YEAR_MS)
    claimed = b.take()
    for state in ("active", "done"):
        b.refuses(f"update {state}", f"EMQSTATE {state}", b.on, "update", NewPayload(id, b"x"))
        b.refuses(f"reprioritise {state}", f"EMQSTATE {state}", b.on, "reprioritise", NewPriority(id, 1))
        if state == "active":
            b.settle("complete", claimed)
    absent = NewJob().id
    b.refuses("update", "EMQGONE", b.on, "update", NewPayload(absent, b"x"))
    b.refuses("reprioritise", "EMQGONE", b.on, "reprioritise", NewPriority(absent, 1))
    other = b.add()
    for bad in ("2048", "-2048", "0.5", "x", "", "nan"):
        b.refuses(bad, "EMQKIND priority", lambda bad=bad: b.worker.bare("reprioritise", other, bad)[0].decode())


@scenario("what was updated or reprioritised is no late holder's any more", 21)
def late_holders(b: Bench) -> None:
    items: dict[str, tuple[Callable[[str], Any], ...]] = {
        "update": (lambda id: NewPayload(id, b"x"),),
        "reprioritise": (lambda id: NewPriority(id, 1), lambda id: NewPriority(id, 0)),
    }
    for verb, item in ((verb, item) for verb, several in items.items() for item in several):
        id = b.add()
        late = b.take()
        b.expire(id)
        b.worker.plain("reap")
        b.on(verb, item(id))
        b.refuses("late", "EMQSTALE pending", lambda late=late: b.settle("complete", late))
        b.on("remove", id)


@scenario("a payload that did not fit its handler has its whole time again when it is replaced")
def fits_again(b: Bench) -> None:
    id = b.add()
    b.server.hset(b.keys.job(id), "unfit_since", 1000)
    b.on("update", NewPayload(id, b"better"))
    b.expect("forgotten", "unfit_since" in b.row(id), False)


@scenario("an update or a reprioritise that is sent again is answered, and an overtaken one refused", 2)
def again(b: Bench) -> None:
    b.configure(events="all")
    id = b.add(payload=b"1")
    items = {
        "update": (NewPayload(id, b"2"), NewPayload(id, b"3")),
        "reprioritise": (NewPriority(id, 2), NewPriority(id, 3)),
    }
    for verb, (first, second) in items.items():
        b.on(verb, first)
        with b.unchanged():
            b.expect("again", [v.code for v in b.producer.resend(verb)], ["ok"])
        b.on(verb, second)
        b.refuses("overtaken", "EMQSTALE call", b.producer.resend, verb, back=2)
    events = [dict(zip(words[::2], words[1::2], strict=True)) for _, words in b.look().items("events")]
    told = [(it["event"], it.get("priority")) for it in events if it["event"] != "enqueued"]
    b.expect("told", told, [("updated", None)] * 2 + [("reprioritised", "2"), ("reprioritised", "3")])
