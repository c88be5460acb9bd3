"""One change, one event: the check itself notices what is left out, told twice, or made up."""

from __future__ import annotations

import attrs

from echomq.conformance.bench import Bench
from echomq.conformance.snapshot import Snapshot
from echomq.conformance.telling import LEADS, untold
from echomq.protocol.states import Event


def with_events(snap: Snapshot, events: tuple[object, ...]) -> Snapshot:
    """The same with other events."""
    return Snapshot(snap.entries | {"events": attrs.evolve(snap.entries["events"], value=events)})


def busy(bench: Bench) -> None:
    """Something of everything, with every event told."""
    ids = [bench.add(result_ttl_ms=60_000 if n == 0 else None) for n in range(6)]
    bench.settle("complete", bench.take())
    bench.bury(ids[1])
    bench.on("redrive", ids[1])
    taken = bench.take()
    bench.expire(taken.id)
    bench.worker.plain("reap", bound=10)
    bench.settle("release", bench.take())
    bench.settle("progress", bench.take())
    bench.on("remove", *ids[4:])


def test_what_is_left_out_or_told_twice_is_noticed(bench: Bench) -> None:
    """Of each event there must be exactly one; a note of a running job is the only one that leaves no trace."""
    before = bench.look()
    busy(bench)
    after = bench.look()
    events = after.items("events")
    assert list(untold(before, after)) == []
    assert {words[1] for _, words in events} == {
        "enqueued", "claimed", "completed", "dead", "redriven", "stalled", "released", "progress", "removed"
    }  # fmt: skip
    for at, (id, words) in enumerate(events):
        left_out = with_events(after, (*events[:at], *events[at + 1 :]))
        again = with_events(after, (*events[: at + 1], (f"{id}9", words), *events[at + 1 :]))
        for wrong in (left_out, again):
            assert (list(untold(before, wrong)) == []) is (words[1] == "progress"), words


def test_every_kind_of_event_leads_somewhere() -> None:
    """By the table of moves; those that are about no job, or take it nowhere, are known."""
    nowhere = {Event.PAUSED, Event.RESUMED, Event.SKIPPED, Event.LOST}
    by_repair = {Event.MENDED, Event.DROPPED, Event.TORN}
    assert {kind for kind, steps in LEADS.items() if not steps} == {str(kind) for kind in nowhere}
    assert LEADS.keys() == {str(kind) for kind in Event} - {str(kind) for kind in by_repair}
