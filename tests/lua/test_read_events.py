"""`read_events`: what it answers; it changes nothing."""

from __future__ import annotations

import pytest

from echomq.conformance.bench import Bench
from echomq.conformance.driver import CallRefusedError
from echomq.transitions import EventPage


def read(bench: Bench, **options: object) -> EventPage:
    """Read a page."""
    page = bench.worker.plain("read_events", **options)
    assert isinstance(page, EventPage)
    return page


def test_read_events_of_a_queue_without_events(bench: Bench) -> None:
    """There is no stream, and a position is answered as it came."""
    with bench.unchanged():
        page = read(bench, after="7-1")
    assert (page.position, page.examined, page.added, page.kept, page.entries) == ("7-1", 0, 0, 0, ())


def test_read_events_reads_on(bench: Bench) -> None:
    """By pages, behind a position, of a job, of some kinds; where the stream stands is told each time."""
    ids = [bench.add() for _ in range(5)]
    with bench.unchanged():
        page = read(bench, bound=3)
    assert [fields for _, fields in page.entries] == [{"event": "enqueued", "job": id} for id in ids[:3]]
    assert (page.examined, page.added, page.kept) == (3, 5, 5)
    rest = read(bench, after=page.position, bound=3)
    assert [fields["job"] for _, fields in rest.entries] == ids[3:]
    assert (rest.examined, rest.position) == (2, rest.last)
    of_one = read(bench, job=ids[4], kinds=["enqueued"])
    assert ([fields["job"] for _, fields in of_one.entries], of_one.examined) == ([ids[4]], 5)


def test_read_events_knows_what_was_trimmed(bench: Bench) -> None:
    """How many there were, and how many are kept, is of the same moment as the page."""
    ids = [bench.add() for _ in range(10)]
    bench.server.xtrim(bench.keys.events, maxlen=4, approximate=False)
    page = read(bench)
    assert (page.added, page.kept, [fields["job"] for _, fields in page.entries]) == (10, 4, ids[6:])
    assert page.first == page.entries[0][0]


def test_read_events_tells_when_the_queue_was_born(bench: Bench) -> None:
    """With a stream or without one; nothing, if it never had a setting."""
    born = bench.look().hash("meta")["born"]
    assert read(bench).born == born
    bench.add()
    assert (read(bench).born, read(bench, after="$").born) == (born, born)
    bench.configure(max_size="7")
    assert read(bench).born == born
    bench.server.hdel(bench.keys.meta, "born")
    assert read(bench).born == ""


@pytest.mark.parametrize(("after", "bound"), [("", 1), ("5", 1), ("a-b", 1), ("0-0", 0), ("0-0", 1001), ("0-0", "x")])
def test_read_events_refuses_what_is_no_position(bench: Bench, after: str, bound: object) -> None:
    """And a bound that is out of range."""
    with pytest.raises(CallRefusedError, match="EMQKIND read_events"):
        bench.worker.bare("read_events", after, bound, "", "")  # type: ignore[arg-type]
