"""Which jobs of a flow are added where, in which order, and in how many calls."""

from __future__ import annotations

from typing import Any

import pytest

from echomq import App, InvalidJobError, JobCall, chain, child, flow
from echomq._flow_plan import Planned, Segment, plan, segment, size_of
from echomq.flows import Node as FlowNode
from echomq.flows import trees_of
from echomq.protocol.words import unpack_words
from echomq.transitions import MAX_CALL_BYTES, MAX_NODES, ForeignNode, LocalNode


def call(name: str, queue: str = "q", payload: bytes = b"1", **options: Any) -> JobCall[Any]:
    """Make a call of a task of that name."""
    return App().task_stub(name, queue=queue).options(**options).call().with_payload(payload)


def planned(node: FlowNode) -> list[Planned]:
    """Plan the one tree of a node."""
    (tree,) = trees_of(node)
    return plan(tree)


def cut(node: FlowNode) -> tuple[list[Planned], Segment]:
    """Plan a node and cut it."""
    jobs = planned(node)
    return jobs, segment(jobs)


def tasks(nodes: Any) -> list[str]:
    """Answer the tasks of nodes; `>queue` for one that is sent."""
    return [node.job.task if isinstance(node, LocalNode) else f">{node.queue}" for node in nodes]


def ties(nodes: Any) -> list[Any]:
    """Answer the parents of nodes."""
    return [node.parent for node in nodes]


def test_parents_come_before_children_and_are_numbered() -> None:
    """The root is the first; a job with children says so."""
    jobs, part = cut(flow(call("p"), [flow(call("a"), [call("b")]), child(call("c"), name="x", on_failure="ignore")]))
    assert tasks(part.nodes) == ["p", "a", "b", "c"]
    whole = part.whole()
    assert ties(whole) == ["", 1, 2, 1]
    assert [node.name for node in whole] == ["", "0", "0", "x"]
    assert [node.kids for node in whole if isinstance(node, LocalNode)] == [True, True, False, False]
    assert [one.job.depth for one in jobs] == [0, 1, 2, 1]
    assert (part.sends, part.is_whole) == (False, True)
    assert len({one.job.id for one in jobs}) == 4


def test_each_job_keeps_its_own_options() -> None:
    """Lane, delay, priority, attempts, times, dedup key, result and headers are those of its call."""
    options: dict[str, Any] = {
        "lane": "l", "delay": 2.5, "priority": 7, "max_attempts": 9, "expires": 60, "deadline": 90, "dedup": "k",
        "result_ttl": 30, "headers": {"a": "b"}, "timeout": 1.5, "max_stalls": 4,
    }  # fmt: skip
    jobs, _ = cut(flow(call("p"), [call("c", **options)]))
    plain, job = jobs[0].job, jobs[1].job
    assert (plain.lane, plain.delay_ms, plain.result_ttl_ms) == (None, None, None)
    assert (job.lane, job.delay_ms, job.priority, job.max_attempts) == ("l", 2500, 7, 9)
    assert (job.expires, job.deadline, job.dedup) == ("+60000", "+90000", "k")
    assert (job.result_ttl_ms, job.headers, job.timeout_ms, job.max_stalls) == (30_000, {"a": "b"}, 1500, 4)


def test_what_is_of_another_queue_is_sent_with_all_that_is_below_it() -> None:
    """A segment is what hangs together in one queue; one that comes back to the first queue is sent from the second."""
    node = flow(call("p"), [flow(call("f", "r"), [call("g", "r"), flow(call("h"), [call("i")])]), call("c")])
    jobs, part = cut(node)
    assert tasks(part.nodes) == ["p", ">r", "c"]
    assert part.sends
    sent = part.nodes[1]
    assert isinstance(sent, ForeignNode)
    assert sent.id == jobs[1].job.id
    words = unpack_words(sent.nodes)
    assert words[:6] == [f"{jobs[0].job.id} q".encode(), b"0", b"f", b"1", b"", sent.id.encode()]
    assert [word for word in words if word in (b"f", b"g", b"h", b"i")].count(b"g") == 1
    (packed,) = (word for word in words if b"\x00\x00\x00\x04task\x00\x00\x00\x01h" in word)
    assert unpack_words(packed)[0] == f"{jobs[1].job.id} r".encode()


def test_small_flow_is_one_call_and_a_larger_one_comes_in_rounds() -> None:
    """Up to the script's bounds one call; then rounds, whose later ones name their parents by id."""
    _, part = cut(flow(call("p"), [call("c")] * (MAX_NODES - 1)))
    assert part.is_whole
    jobs, part = cut(flow(call("p"), [call("c")] * MAX_NODES))
    assert not part.is_whole
    rounds = list(part.rounds())
    assert [len(nodes) for nodes in rounds] == [64, 64, 64, 64, 1]
    assert ties(rounds[0])[:3] == ["", 1, 1]
    assert set(ties(rounds[1])) == {jobs[0].job.id}
    assert sorted(node.name for nodes in rounds for node in nodes) == sorted(["", *map(str, range(MAX_NODES))])


def test_large_payloads_are_spread_over_rounds() -> None:
    """A call keeps its bound of bytes; what is larger than that goes alone."""
    big = b'"' + b"x" * (MAX_CALL_BYTES // 3) + b'"'
    huge = b'"' + b"x" * (MAX_CALL_BYTES + 10) + b'"'
    _, part = cut(flow(call("p"), [call("c", payload=big)] * 4 + [call("h", payload=huge)] + [call("c")]))
    assert not part.is_whole
    rounds = list(part.rounds())
    assert [tasks(nodes) for nodes in rounds] == [["p", "c", "c"], ["c", "c"], ["h"], ["c"]]
    for nodes in rounds[:2]:
        assert sum(map(size_of, nodes)) <= MAX_CALL_BYTES


def test_size_of_a_node_is_never_less_than_what_it_takes() -> None:
    """Whatever stands in it; else a call could be larger than its bound."""
    options: dict[str, Any] = {
        "lane": "ö" * 64, "delay": 2.5, "priority": 7, "dedup": "ä" * 128, "headers": {"a": "b" * 999}, "max_attempts": 9,
        "expires": 60, "deadline": 90, "result_ttl": 30, "timeout": 1.5, "max_stalls": 4,
    }  # fmt: skip
    node = flow(call("p"), [child(call("t" * 128, **options), name="n" * 128), call("f", "other", **options)])
    _, part = cut(node)
    for each in part.whole():
        words = [word if isinstance(word, bytes) else str(word).encode() for word in each.arguments()]
        assert sum(map(len, words)) <= size_of(each)


@pytest.mark.parametrize("wide", [True, False])
def test_what_another_queue_gets_must_fit_one_call(wide: bool) -> None:
    """The error names the job, the queue, both numbers, and what can be done."""
    below = [call("c", "r")] * 300 if wide else [call("c", "r", payload=b'"' + b"x" * MAX_CALL_BYTES + b'"')]
    jobs = planned(flow(call("p"), [flow(call("f", "r"), below)]))
    with pytest.raises(ValueError, match=rf"'f' in queue 'r' is {len(below) + 1} jobs of \d+ bytes.*nursery"):
        segment(jobs)


def test_dedup_mode_by_which_the_last_wins_is_refused() -> None:
    """Such a job would give its content to a job of no flow."""
    with pytest.raises(ValueError, match="dedup_mode 'replace' of 'c'"):
        planned(flow(call("p"), [call("c", dedup="k", dedup_mode="replace")]))


def test_payload_that_is_too_large_is_refused() -> None:
    """Before anything is sent."""
    with pytest.raises(InvalidJobError, match="payload"):
        planned(flow(call("p"), [call("c", payload=b"x" * (1 << 21))]))


def test_middleware_sees_each_job_once() -> None:
    """And what it yields is what is added."""
    app = App()
    seen = []

    @app.around_enqueue
    def mark(made: JobCall[Any]) -> Any:
        seen.append(made.task)
        yield made.with_headers({"mark": made.task})

    stub = app.task_stub("t", queue="q")
    jobs = planned(flow(stub.call(), [stub.call(), app.task_stub("u", queue="q").call()]))
    assert seen == ["t", "t", "u"]
    assert [one.job.headers for one in jobs] == [{"mark": "t"}, {"mark": "t"}, {"mark": "u"}]


def test_chain_of_a_thousand_links_over_two_queues_needs_no_stack() -> None:
    """In one queue it comes in rounds; going to and fro it is packed within itself."""
    jobs, part = cut(chain(*(call(str(n)) for n in range(1000))))
    assert len(jobs) == len(part.nodes) == 1000
    assert ties(part.whole())[-1] == 999
    _, part = cut(chain(*(call(str(n), "qr"[n % 2]) for n in range(40))))
    assert tasks(part.nodes) == ["39", ">q"]
