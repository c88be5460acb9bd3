"""Flows across queues: children are sent, once, and news of them may come late, again, or in another order."""

from __future__ import annotations

from echomq.conformance.bench import Bench
from echomq.conformance.flowing import FAR, Flows
from echomq.conformance.scenarios.registry import scenario
from echomq.protocol.kin import Policy
from echomq.protocol.records import NewJob
from echomq.transitions import CancelRequest, Delivery, ForeignNode, LocalNode


@scenario(
    "a child of another queue is sent there once: a repeated delivery is known by its mark, which goes by itself", 15
)
def abroad(b: Bench) -> None:
    f = Flows(b)
    root, job = NewJob(), NewJob(task="t", priority=7)
    b.expect("added", f.add(LocalNode(job=root, kids=True), f.abroad(job, root.id)), ["admitted"] * 2)
    b.expect("its parent knows it", f.children(root.id), {"0": f"{job.id} f {FAR}"})
    b.expect("owed", (f.owed(), b.tokens()), ([f"add:{job.id}"], 1))
    b.expect("not here", b.state(job.id), "")
    entry = f.take().entries[0]
    b.expect("what is sent", (entry.kind, entry.queue), ("add", FAR))
    b.expect("comes", (f.deliver(entry), f.far.state(job.id)), ("admitted", "pending"))
    b.expect("its parent", (f.far.row(job.id)["parent"], f.far.row(job.id)["priority"]), (f"{root.id} proof 0", "7"))
    with f.far.unchanged():
        b.expect("again", f.deliver(entry), "admitted")
    claimed = f.far.take()
    f.complete(claimed, b=f.far)
    with f.far.unchanged():
        b.expect("after its end", f.deliver(entry), "admitted")
    b.expect("the mark", f.far.look().entries[f"delivered:add:{job.id}"].ttl, True)
    b.expect("told", f.owed(f.far), [f"tell:{job.id}"])
    told = f.take(f.far).entries[0]
    b.expect("its end comes", (f.deliver(told, f.far), b.state(root.id)), ("ok", "pending"))
    with b.unchanged():
        b.expect("and again", f.deliver(told, f.far), "again")
    b.expect("as it was", f.told(root.id, "0"), ("completed", "1", "", job.id))
    f.complete(b.take())
    with b.unchanged():
        b.expect("when nobody waits", f.deliver(told, f.far), "gone")


@scenario("a subtree goes to another queue with all that is below it, and from there on to others", 15)
def subtree(b: Bench) -> None:
    f = Flows(b)
    root, middle, low, back = (NewJob() for _ in range(4))
    home = Flows(f.far)
    top = LocalNode(job=middle, parent=f"{root.id} proof", name="0", kids=True)
    below = LocalNode(job=low, parent=1, name="l")
    again = LocalNode(job=back, parent=f"{middle.id} {FAR}", name="b")
    returns = ForeignNode(queue="proof", id=back.id, parent=1, name="b", nodes=[again])
    whole = ForeignNode(queue=FAR, id=middle.id, parent=1, name="0", nodes=[top, below, returns])
    b.expect("added", f.add(LocalNode(job=root, kids=True), whole), ["admitted"] * 2)
    b.expect("delivered", f.pump(), [f"add:{middle.id}", f"add:{back.id}"])
    b.expect("the middle waits", (f.far.state(middle.id), sorted(home.children(middle.id))), ("waiting", ["b", "l"]))
    f.complete(b.take())
    f.complete(f.far.take(), b=f.far)
    b.expect("told", f.pump(), [f"tell:{back.id}"])
    f.complete(f.far.take(), b=f.far)
    f.pump()
    b.expect("the root's turn", b.take().id, root.id)


@scenario(
    "a child sent to another queue whose dedup key is taken there has ended by that, and its parent is told", 15, 22
)
def duplicate_abroad(b: Bench) -> None:
    f = Flows(b)
    holder = f.far.add(dedup="k")
    root = NewJob()
    f.add(
        LocalNode(job=root, kids=True),
        f.abroad(
            NewJob(dedup="k"), root.id, policy=Policy.IGNORE, below=(LocalNode(job=NewJob(), parent=1, name="z"),)
        ),
    )
    f.pump()
    b.expect("settled", (f.told(root.id, "0")[2], b.state(root.id)), (f"its dedup key is held by {holder}", "pending"))
    b.expect("only the holder", [id for id, _ in f.far.look().rows()], [holder])
    plain = NewJob(dedup="k")
    b.expect("one without a parent", f.add(f.abroad(plain)), ["admitted"])
    b.expect("it just stays out", (f.pump(), f.owed(f.far), f.far.state(plain.id)), ([f"add:{plain.id}"], [], ""))


@scenario("news that come before a child, or in another order, change nothing that is settled", 15)
def reordered(b: Bench) -> None:
    f = Flows(b)
    it = f.family("0", "1", abroad=True, policy=Policy.IGNORE)
    jobs = f.claim(*it.kids.values(), b=f.far)
    f.complete(jobs[it["0"]], b=f.far), f.die(jobs[it["1"]], b=f.far)
    first, second = f.take(f.far).entries
    b.expect(
        "the later first",
        [f.deliver(entry, f.far) for entry in (second, first, second, first)],
        ["ok", "ok", "again", "again"],
    )
    b.expect("settled once", (f.ended(it.parent), b.state(it.parent)), ({"0": "completed", "1": "dead"}, "pending"))
    b.expect("how it died", f.told(it.parent, "1")[3], '{"type":"E"}')
    stranger = Delivery("tell", it.parent, it["0"], "none", b"completed 1 1 \n")
    with b.unchanged():
        b.expect("a name that is none", b.on("flow_deliver", stranger), ["gone"])
        wrong = Delivery("tell", it.parent, it["1"], "0", b"dead 1 1 \n")
        b.expect("a child of another name", b.on("flow_deliver", wrong), ["gone"])


@scenario("a child that arrives after its parent was cancelled does not run", 15)
def late_add(b: Bench) -> None:
    f = Flows(b)
    root, job = NewJob(), NewJob()
    f.add(LocalNode(job=root, kids=True), f.abroad(job, root.id))
    late = f.take().entries[0]
    b.expect("cancelled", b.on("cancel", CancelRequest(root.id, "why")), ["cancelled why"])
    b.expect("told to stop", f.pump(), [f"sweep:{root.id}", f"cancel:{job.id}"])
    with f.far.unchanged():
        b.expect("it comes", f.deliver(late), "admitted")
    b.expect("the mark", f.far.look().entries[f"delivered:add:{job.id}"].ttl, True)
