"""Finding: jobs of a set by task, lane, age and the words of their failure, in bounded steps."""

from __future__ import annotations

from echomq.conformance.bench import Bench
from echomq.conformance.scenarios.registry import scenario
from echomq.transitions import Look


@scenario("find looks through a set in steps, from either end, and says how far it came", 25)
def finds(b: Bench) -> None:
    ids = [b.add(task="even" if n % 2 == 0 else "odd", lane=None) for n in range(6)]
    with b.unchanged():
        found = b.worker.plain("find", state="pending", bound=4)
        b.expect("a step", (found.total, found.examined, list(found.ids)), (6, 4, ids[:4]))
        b.expect("the clock", 0 <= b.clock() - found.now_ms < 60_000, True)
        found = b.worker.plain("find", state="pending", offset=4, bound=4, task="odd")
        b.expect("the rest", (found.examined, list(found.ids)), (2, ids[5:]))
        found = b.worker.plain("find", state="pending", bound=3, reverse=True, task="odd")
        b.expect("from behind", (found.examined, list(found.ids)), (3, [ids[5], ids[3]]))
        b.expect("nothing", b.worker.plain("find", state="dead").ids, ())
        b.expect("a thousand", b.worker.plain("find", state="dead", bound=1000).total, 0)
    for bad in (
        ("asleep", "", 0, 0, 1),
        ("", "", 0, 0, 1),
        ("dead", "a", 0, 0, 1),
        ("dead", "", 0, -1, 1),
        ("dead", "", 0, 0, 0),
        ("dead", "", 0, 0, 1001),
    ):
        b.refuses(str(bad), "EMQKIND", b.worker.bare, "find", *bad, 0, "", "", 0)
    b.refuses("before", "EMQKIND find", b.worker.bare, "find", "dead", "", 0, 0, 1, 0, "", "", "x")


@scenario("find finds by lane, by age, and by the words of an error or a reason")
def finds_by(b: Bench) -> None:
    failed = {}
    for text in ('{"type":"KeyError","message":"a.b"}', '{"type":"E","message":null}', "no json", '"text"'):
        id = failed[text] = b.add(lane="a" if "Key" in text else None)
        b.take()
        row = b.row(id)
        b.worker.bare("fail", id, row["attempts"], row["holder"], 0, 1, text)

    def find(**options: object) -> set[str]:
        with b.unchanged():
            return set(b.worker.plain("find", state="dead", **options).ids)

    texts = list(failed)
    for words, expected in (
        ("KeyError: a", texts[:1]), ("a.b", texts[:1]), ("a*b", []), ("E: ", texts[1:2]), ("no js", texts[2:3]), ("text", texts[3:]),
        ("failed 1 of 1", texts), ("nothing like it", []),
    ):  # fmt: skip
        b.expect(words, find(error=words), {failed[text] for text in expected})
    b.expect("of a lane", find(lane="a", of_lane=True), {failed[texts[0]]})
    b.expect("of no lane", find(lane="", of_lane=True), {failed[text] for text in texts[1:]})
    old = failed[texts[1]]
    b.server.hset(b.keys.job(old), "since", 5000)
    b.expect("older", (find(before_ms=5001), find(before_ms=5000), find(before_ms=1)), ({old}, set(), set()))
    b.server.hdel(b.keys.job(old), "since")
    b.expect("of no age", find(before_ms=1), {old})
    laned = [b.add(lane="a") for _ in range(2)]
    with b.unchanged():
        b.expect("ready in it", b.worker.plain("find", state="pending", lane="a").ids, tuple(laned))
    c = b.take()
    with b.unchanged():
        b.expect("running in it", b.worker.plain("find", state="active", lane="a").ids, (c.id,))
        b.expect("running", b.worker.plain("find", state="active", lane="a", of_lane=True).ids, (c.id,))
        b.expect("of another", b.worker.plain("find", state="active", lane="b", of_lane=True).ids, ())
    b.server.delete(b.keys.job(old))
    b.server.set(b.keys.job(old), "no hash")
    b.expect("one that cannot be read", old in find(), False)
    b.expect("repaired", b.on("repair", Look("job", old)), ["dropped 1"])
