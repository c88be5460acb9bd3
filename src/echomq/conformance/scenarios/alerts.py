"""`on_dead`: each burial brings a job that tells of it, in the same script, and never a second one."""

from __future__ import annotations

from echomq.conformance.bench import Bench
from echomq.conformance.flowing import Flows
from echomq.conformance.items import YEAR_MS
from echomq.conformance.scenarios.registry import scenario
from echomq.protocol.records import Claimed, JobRecord, NewJob
from echomq.transitions import LocalNode


def _alert(id: str) -> str:
    return f"DED{id[3:]}"


@scenario("each way of dying brings an alert, in the script that buries")
def each_way(b: Bench) -> None:
    b.configure(on_dead="alarm")
    for how in ("fail", "stalled", "deadline", "parent", "suspend", "complete"):
        f = Flows(b)
        id = b.add(max_stalls=0)
        b.server.delete(b.keys.wake) if how == "fail" else None
        match how:
            case "fail":
                b.settle("fail", b.take())
                b.expect("rung", b.tokens(), 1)
            case "stalled":
                b.take()
                b.expire(id)
                b.worker.plain("reap")
            case "deadline":
                b.server.hset(b.keys.job(id), "deadline_ms", 1)
                b.expect(
                    "a claim finds the alert", [job.id for job in b.worker.claim(1).jobs] in ([], [_alert(id)]), True
                )
            case "parent":
                b.on("remove", id)
                it = f.family("0")
                b.on("remove", it["0"])
                id = it.parent
            case "suspend" | "complete":
                parent = b.take()
                f.spawn(parent, "0")
                b.on("remove", f.children(parent.id)["0"].split(" ")[0])
                (f.suspend if how == "suspend" else f.complete)(parent)
        b.expect(f"{how}: dead", b.state(id), "dead")
        row = b.row(_alert(id))
        b.expect(f"{how}: told", (row["task"], row["payload"]), ("alarm", f'{{"args":["{id}"]}}'))
        b.expect(f"{how}: by", (row["by"] != "", abs(int(row["since"]) - b.clock()) < 60_000), (True, True))
        if row["state"] == "pending":
            b.expect(f"{how}: where", b.score("pending", _alert(id)), 0.0)
            b.take()
        b.settle("complete", _claimed(b, _alert(id)))
        b.on("remove", id)


def _claimed(b: Bench, id: str) -> Claimed:
    row = b.row(id)
    return Claimed(id, int(row["attempts"]), row["holder"], JobRecord(id, {}))


@scenario(
    "no alert for an alert, none twice, none for children that died since their parent did, none when not asked for"
)
def none(b: Bench) -> None:
    f = Flows(b)
    quiet = b.add()
    b.bury(quiet)
    b.expect("not asked for", b.state(_alert(quiet)), "")
    b.configure(on_dead="alarm")
    id = b.add()
    b.bury(id)
    b.on("redrive", id)
    jobs = {job.id: job for job in b.worker.claim(2).jobs}
    b.settle("fail", jobs[id])
    b.expect("once", [it for it, _ in b.look().rows() if it.startswith("DED")], [_alert(id)])
    alert = jobs[_alert(id)]
    b.settle("fail", alert)
    b.expect("none for it", [it for it, _ in b.look().rows() if it.startswith("DED")], [_alert(id)])
    b.on("remove", alert.id)
    it = f.family("bad", "swept")
    f.die(b.take())
    f.pump()
    b.expect(
        "swept",
        b.row(it["swept"])["state"] if b.row(it["swept"])["state"] == "dead" else b.row(it["bad"])["state"],
        "dead",
    )
    told = sorted(it for it, _ in b.look().rows() if it.startswith("DED"))
    dead = [id for id, row in b.look().rows() if row["state"] == "dead" and row["reason"].startswith("parent dead")]
    b.expect(
        "one child, and the parent",
        (len(told), len(dead), _alert(dead[0]) in told, _alert(it.parent) in told),
        (2, 1, False, True),
    )
    by_hand = b.add(task="alarm", priority=9)
    b.bury(by_hand)
    b.expect("nor for a job of that task", b.state(_alert(by_hand)), "")
    b.configure(on_dead="")
    other = b.add(priority=9)
    b.bury(other)
    b.expect("no more", b.state(_alert(other)), "")


@scenario("an alert takes its place in a queue with lanes, too")
def with_lanes(b: Bench) -> None:
    b.configure(on_dead="alarm")
    id = b.add(lane="a")
    b.settle("fail", b.take())
    b.expect(
        "on the ring",
        (b.ring(), b.score("pending", _alert(id))),
        ([""], 0.0) if "a" not in b.ring() else (["a", ""], 0.0),
    )
    b.expect("served", b.take().id, _alert(id))


@scenario("the setting is a task's name, or none")
def setting(b: Bench) -> None:
    for good in ("a", "A.b:c_d-9", "x" * 128):
        b.configure(on_dead=good)
        b.expect("set", b.look().hash("meta")["on_dead"], good)
    for bad in ("a b", "x" * 129, "ä", "a/b"):
        b.refuses(bad, "EMQKIND", b.configure, on_dead=bad)
    b.configure(on_dead="")
    b.expect("none", b.look().hash("meta").get("on_dead"), None)


@scenario("an alert of a child of another queue, and of its parent, is in the queue of each")
def abroad(b: Bench) -> None:
    f = Flows(b)
    b.configure(on_dead="alarm")
    f.far.configure(on_dead="bell")
    root, job = NewJob(), NewJob()
    f.add(
        LocalNode(job=root, kids=True),
        f.abroad(job, root.id),
        LocalNode(job=NewJob(delay_ms=YEAR_MS), parent=1, name="1"),
    )
    f.pump()
    f.die(f.far.take(), b=f.far)
    f.pump()
    b.expect("each", (f.far.row(_alert(job.id))["task"], b.row(_alert(root.id))["task"]), ("bell", "alarm"))
    b.expect("no other", [id for id, _ in b.look().rows() if id.startswith("DED")], [_alert(root.id)])
