"""Reading events: what a reader is told of a stream that is trimmed, goes away, or is another one."""

from __future__ import annotations

import datetime as dt
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from echomq import Event, Gap
from echomq._events import EventReader, new_reader
from echomq.protocol.ids import mint
from echomq.protocol.keys import QueueKeys
from echomq.transitions import Call, EventPage
from echomq.transitions.read_events import PAGE

KEYS = QueueKeys(queue="q")


class Stream:
    """A stream as the server has it: ids only grow, the oldest go."""

    def __init__(self, clock: int = 1000, born: str = "1") -> None:
        self.added, self.clock, self.born = 0, clock, born
        self.kept: list[int] = []

    def add(self, count: int) -> None:
        self.kept += range(self.clock, self.clock + count)
        self.clock += count
        self.added += count

    def trim(self, most: int) -> None:
        self.kept = self.kept[-most:] if most else []

    def page(self, reader: EventReader) -> EventPage:
        """Answer what the reader asks for, as the script does."""
        after = str(reader.ask(Call("t")).argv[2])
        ends: dict[str, Any] = {
            "added": self.added, "kept": len(self.kept),
            "first": f"{self.kept[0]}-0" if self.kept else "0-0",
            "born": self.born, "last": f"{self.clock - 1}-0" if self.added else "0-0",
        }  # fmt: skip
        if after == "$":
            return EventPage(position=ends["last"], examined=0, entries=(), **ends)
        behind = tuple(map(int, after.split("-")))
        found = [id for id in self.kept if (id, 0) > behind][:PAGE]
        position = f"{found[-1]}-0" if found else after
        entries = tuple((f"{id}-0", {"event": "claimed", "job": "JOB00000000001"}) for id in found)
        return EventPage(position=position, examined=len(found), entries=entries, **ends)

    def read(self, reader: EventReader) -> list[Event | Gap]:
        """Read to the end."""
        found = reader.take(self.page(reader))
        while reader.behind:
            found += reader.take(self.page(reader))
        return found


def reader(since: Any = "0") -> EventReader:
    """A reader from some position."""
    return EventReader(KEYS, since=since)


def gaps(found: list[Event | Gap]) -> list[int | None]:
    """How many each gap says are missing."""
    return [it.missed for it in found if isinstance(it, Gap)]


@hypothesis.settings(max_examples=60)
@hypothesis.given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 300)), max_size=6), st.booleans())
def test_what_is_read_and_what_is_told_as_missed_is_all(steps: list[tuple[int, int]], from_now: bool) -> None:
    """Whatever is added and trimmed between two looks, a reader that lives accounts for each event, once and in order."""
    stream = Stream()
    stream.add(300)
    stream.trim(100)
    one = reader(None if from_now else "0")
    at, read = (300 if from_now else 200), stream.read(one)
    for added, most in steps:
        stream.add(added)
        stream.trim(most)
        read += stream.read(one)
    for it in read:
        if isinstance(it, Gap):
            assert it.missed
            at += it.missed
        else:
            assert int(it.id.split("-")[0]) == 1000 + at
            at += 1
    assert at == stream.added


def test_gap_is_exact_while_pages_are_read() -> None:
    """Also when the bound overtakes a reader that is in the middle of the stream."""
    stream, one = Stream(), reader()
    stream.add(3 * PAGE)
    assert len(one.take(stream.page(one))) == PAGE
    stream.trim(PAGE + 10)
    found = stream.read(one)
    assert gaps(found) == [PAGE - 10]
    assert isinstance(found[0], Gap)
    assert (found[0].queue, found[0].after, found[0].before) == ("q", f"{999 + PAGE}-0", f"{990 + 2 * PAGE}-0")
    assert len(found) == 1 + PAGE + 10


def test_resumed_by_id_a_gap_may_be_none() -> None:
    """Whether something lay between the id and the oldest event that is kept, nobody knows; later gaps are exact."""
    stream = Stream()
    stream.add(20)
    stream.trim(10)
    assert gaps(stream.read(reader("1009-0"))) == [None]  # in truth there is none
    assert gaps(stream.read(reader("1005-0"))) == [None]
    assert gaps(stream.read(reader("1010-0"))) == []
    one = reader("1005-0")
    stream.read(one)
    stream.add(10)
    stream.trim(4)
    assert gaps(stream.read(one)) == [6]


def test_since_a_moment_tells_a_gap_only_if_something_was_trimmed() -> None:
    """A queue that is younger than the moment has no gap."""
    stream, moment = Stream(), dt.datetime.fromtimestamp(1, dt.UTC)
    assert stream.read(reader(moment)) == []
    stream.add(5)
    found = stream.read(reader(moment))
    assert (gaps(found), len(found)) == ([], 5)
    assert [it.id for it in stream.read(reader(moment + dt.timedelta(milliseconds=3))) if isinstance(it, Event)] == [
        "1003-0",
        "1004-0",
    ]
    stream.trim(2)
    assert gaps(stream.read(reader(moment))) == [None]
    assert gaps(stream.read(reader(moment + dt.timedelta(milliseconds=4)))) == []


def test_another_stream_in_its_place_is_read_whole() -> None:
    """The queue was obliterated and began anew, or the server went back: what is there is new, and a gap says so."""
    one, stream = reader(), Stream()
    stream.add(50)
    stream.read(one)
    young = Stream(clock=5000)
    young.add(3)
    assert [type(it) for it in young.read(one)] == [Gap, Event, Event, Event]
    assert gaps(Stream().read(one)) == [None]  # and now there is none
    assert Stream().read(one) == []
    later = Stream(clock=2000)  # its clock is behind
    later.add(2)
    assert [type(it) for it in later.read(one)] == [Event, Event]
    assert [type(it) for it in later.read(reader("7000-0"))] == [Gap, Event, Event]
    assert [type(it) for it in later.read(reader("1500-0"))] == [Gap, Event, Event]


@pytest.mark.parametrize(
    ("new", "most"), [(1050, 150), (1000, 256), (1000, 1000), (1500, 1000), (999, 10), (1000, 999)]
)
def test_another_stream_with_as_many_events_is_noticed(new: int, most: int) -> None:
    """Also when it has more than were seen: what it has trimmed is then less than that, and yet the position is gone."""
    one, stream = reader(), Stream(born="")
    stream.add(1000)
    stream.trim(100)
    stream.read(one)
    young = Stream(clock=5000, born="")
    young.add(new)
    young.trim(most)
    found = young.read(one)
    assert (gaps(found), len(found)) == ([None], 1 + most)
    young.add(7)
    assert (gaps(young.read(one)), young.read(one)) == ([], [])


@pytest.mark.parametrize(("was", "born"), [("1", "2"), ("1", ""), ("", "2"), ("", "")])
def test_number_is_told_only_of_the_same_queue(was: str, born: str) -> None:
    """When all that was seen is trimmed, nothing but its birth tells a queue from another in its place."""
    one, stream = reader(), Stream(born=was)
    stream.add(1000)
    stream.trim(100)
    stream.read(one)
    young = Stream(clock=5000, born=born)
    young.add(1500)
    young.trim(100)
    found = young.read(one)
    assert (gaps(found), len(found)) == ([None], 101)
    young.add(200)
    young.trim(50)
    assert gaps(young.read(one)) == ([150] if born else [None])


def test_what_was_read_of_nothing_is_known() -> None:
    """A queue that is born, or born anew, while nothing of it was read yet: what is trimmed is all that is missing."""
    one = reader()
    Stream(born="").read(one)
    for born in ("1", "2"):
        assert Stream(born=born).read(one) == []
    stream = Stream(born="3")
    stream.add(30)
    stream.trim(10)
    assert gaps(stream.read(one)) == [20]


def test_stream_that_went_back_and_on_is_noticed() -> None:
    """A server that lost its latest events, and wrote as many others, not all of them behind the position."""
    one, stream = reader(), Stream()
    stream.add(50)
    stream.read(one)
    stream.kept, stream.added, stream.clock = stream.kept[:40], 40, 1045
    stream.add(20)
    assert gaps(stream.read(one)) == [None]


def test_moment_ahead_is_no_gap() -> None:
    """Events before it are passed, and do not look like another stream."""
    stream, one = Stream(), reader(dt.datetime.fromtimestamp(1.03, dt.UTC))
    read: list[Event | Gap] = []
    for _ in range(4):
        stream.add(10)
        read += stream.read(one)
    assert (gaps(read), len(read)) == ([], 10)


def test_done_is_where_the_stream_was_at_first() -> None:
    """Whoever does not follow ends, however fast events come."""
    stream, one = Stream(), reader()
    stream.add(2 * PAGE)
    looks = 0
    while not one.done:
        one.take(stream.page(one))
        stream.add(PAGE)
        looks += 1
    assert looks == 2


def test_event_is_typed() -> None:
    """What it knows has a type; what it does not know, or is malformed, is kept as it is told."""
    fields = {
        "event": "failed", "job": "JOB00000000001", "token": "3", "failures": "2", "due": "4500", "error": "ValueError", "new": "x",
    }  # fmt: skip
    event = Event.of("q", "2000-7", fields)
    assert (event.id, event.kind, event.queue, event.job) == ("2000-7", "failed", "q", "JOB00000000001")
    assert event.at == dt.datetime.fromtimestamp(2, dt.UTC)
    assert (event.attempt, event.failures, event.delay, event.error, event.reason) == (3, 2, 2.5, "ValueError", None)
    assert event.due == dt.datetime.fromtimestamp(4.5, dt.UTC)
    assert event.fields["new"] == "x"
    assert {"event", "job"} & event.fields.keys() == set()
    assert Event.of("q", "1-0", {"event": "paused", "job": ""}).job is None
    odd = Event.of(
        "q", "1-0", {"event": "future", "job": "", "token": "x", "due": "9" * 20, "stalls": "-1", "step": "9" * 5000}
    )
    assert (odd.attempt, odd.due, odd.stalls, odd.step, odd.delay, odd.slot) == (None,) * 6
    limited = Event.of("q", "1-0", {"event": "rate_limited", "job": "", "until": "1001"})
    assert limited.delay == 1.0
    with pytest.raises(TypeError):
        event.fields["a"] = "b"  # type: ignore[index]
    assert hash(event) == hash(Event.of("q", "2000-7", fields))


@pytest.mark.parametrize(
    ("since", "error"),
    [
        ("", ValueError), ("$", ValueError), ("1", ValueError), ("1-", ValueError), ("01-1", ValueError), ("1-1 ", ValueError),
        ("18446744073709551616-0", ValueError), ("-1-0", ValueError), (f"{2**64 - 1}-{2**64 - 1}", ValueError), ("soon", ValueError), (0, TypeError), (b"0", TypeError),
        (1.5, TypeError), (dt.datetime(2026, 1, 1), ValueError), (dt.datetime(1960, 1, 1, tzinfo=dt.UTC), ValueError),  # noqa: DTZ001
    ],
)  # fmt: skip
def test_since_is_checked(since: Any, error: type[Exception]) -> None:
    """What is no position is refused, and shown."""
    with pytest.raises(error, match="since"):
        reader(since)


def test_arguments_are_checked() -> None:
    """Before anything is sent."""
    for kinds in (["died"], ["failed", ""], [], [1], [["dead"]]):
        with pytest.raises(ValueError, match="kind"):
            EventReader(KEYS, since="0", kinds=kinds)  # type: ignore[arg-type]
    for odd in ("failed", 5):
        with pytest.raises(TypeError, match="kinds is a list"):
            EventReader(KEYS, since="0", kinds=odd)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="an id is"):
        EventReader(KEYS, since="0", job="x")
    with pytest.raises(TypeError, match="an id is a string, not 3"):
        EventReader(KEYS, since="0", job=3)  # type: ignore[arg-type]
    for follow in ("no", 0, None):
        with pytest.raises(TypeError, match="follow is True or False"):
            new_reader(KEYS, since="0", follow=follow, job=None, kinds=None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="follow=False ends at once"):
        new_reader(KEYS, since=None, follow=False, job=None, kinds=None)
    assert EventReader(KEYS, since="0", job=mint(), kinds={"dead"}).ask(Call("t")).argv[-1] == "dead"
