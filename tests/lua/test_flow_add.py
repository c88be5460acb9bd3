"""`flow_add`: the whole keyspace before and after."""

from __future__ import annotations

from echomq.conformance.bench import Bench
from echomq.conformance.flowing import Flows
from echomq.protocol.records import NewJob
from echomq.transitions import LocalNode
from tests.lua.watching import changes


def test_flow_add_writes_rows_places_and_ties(bench: Bench) -> None:
    """And nothing else: a parent in `waiting`, a child that is ready, and who is whose."""
    parent, child = NewJob(), NewJob()
    nodes = [LocalNode(job=parent, kids=True), LocalNode(job=child, parent=1, name="0")]
    names = {"P": parent.id, "C": child.id}
    answer, changed = changes(bench, lambda: Flows(bench).add(*nodes), **names)
    assert answer == ["admitted", "admitted"]
    assert {line for line in changed if not line.startswith(("job:P[", "job:C["))} == {
        "meta[flows] = 1", "waiting[P] = T", "pending[C] = 0.0", "job:P:children[0] = C f ", "wake: 0 -> 1",
        "event enqueued P", "event enqueued C",
    }  # fmt: skip


def test_flow_add_held_writes_one_entry_more(bench: Bench) -> None:
    """The hold, and the list of what it holds; nobody is ready."""
    root = NewJob()
    bench.server.hset(bench.keys.meta, "flows", "1")
    node = LocalNode(job=root, kids=True)
    _, changed = changes(bench, lambda: Flows(bench).add(node, hold=root.id, last=False), P=root.id)
    touched = {line.partition("[")[0].partition(":")[0] for line in changed}
    assert touched == {"waiting", "job", "outbox", "event enqueued P", "wake"}
    assert bench.look().items(f"job:{root.id}:held") == (root.id,)
    assert bench.worker.claim(1).jobs == []
