"""The pipeline without a connection, and the line it is made of."""

from __future__ import annotations

from typing import Any

import hiredis
import pytest

from echomq.errors import PermissionDeniedError
from echomq.transitions import load
from echomq.wire.calls import Ignored, WireCall
from echomq.wire.line import Line
from echomq.wire.pipeline import ROOM, Pipeline, new_parser


class Driver:
    """Notes what the pipeline asks for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def wake(self) -> None:
        self.asked.append("wake")

    def flush(self) -> None:
        self.asked.append("flush")

    def hold(self, text: str) -> None:
        self.asked.append(f"hold {text}")

    def leave(self, text: str) -> None:
        self.asked.append(f"leave {text}")

    def push(self, message: list[Any]) -> None:
        self.asked.append(f"push {message}")


class Probe(WireCall):
    """A call that notes its fate."""

    def __init__(self, data: bytes = b"x", *, repeat: bool = False, wanted: bool = True) -> None:
        super().__init__()
        self.data = data
        self.repeat = repeat
        self.is_wanted = wanted
        self.fate: list[Any] = []

    def encode(self) -> bytes | None:
        return self.data or None

    def answered(self, reply: Any) -> None:
        self.fate.append(reply)

    def failed(self, make: Any) -> None:
        self.fate.append(make())

    def dropped(self) -> None:
        self.fate.append("dropped")

    @property
    def wanted(self) -> bool:
        return self.is_wanted

    def lost(self) -> bool:
        return self.repeat


@pytest.fixture
def driver() -> Driver:
    """What the pipeline drives."""
    return Driver()


@pytest.fixture
def pipeline(driver: Driver) -> Pipeline:
    """A pipeline with nothing in it."""
    return Pipeline(driver)


def test_pipeline_hands_replies_out_in_order(pipeline: Pipeline, driver: Driver) -> None:
    """Replies go to calls in the order they were sent, pushes to the driver, however the bytes are cut."""
    calls = [Probe(b"a"), Probe(b"b")]
    for call in calls:
        pipeline.submit(call)
    assert pipeline.gather() == b"ab"
    for byte in b"+one\r\n>2\r\n+message\r\n+x\r\n:2\r\n":
        pipeline.feed(bytes([byte]))
    assert [call.fate for call in calls] == [[b"one"], [2]]
    assert "push [b'message', b'x']" in driver.asked
    assert pipeline.unanswered_bytes == 0


def test_pipeline_stops_at_its_bound_and_goes_on(pipeline: Pipeline, driver: Driver) -> None:
    """Beyond the bound nothing is encoded; a reply makes room and wakes the writer."""
    for _ in range(5):
        pipeline.submit(Probe(b"x" * (ROOM // 2)))
    assert len(pipeline.gather()) == ROOM
    assert pipeline.gather() == b""
    driver.asked.clear()
    pipeline.feed(b"+OK\r\n")
    assert driver.asked == ["wake"]
    assert len(pipeline.gather()) == ROOM // 2


def test_pipeline_sorts_unanswered_calls_when_disconnected(pipeline: Pipeline) -> None:
    """What may run twice goes first, in its old order; the rest fails as perhaps run; the unwanted is dropped."""
    repeat, once, unwanted, new = (
        Probe(b"r", repeat=True),
        Probe(b"o"),
        Probe(b"u", repeat=True, wanted=False),
        Probe(b"n"),
    )
    second = Probe(b"s", repeat=True)
    for call in (repeat, once, unwanted, second):
        pipeline.submit(call)
    pipeline.gather()
    pipeline.submit(new)
    pipeline.disconnected("cut")
    assert once.fate[0].sent
    assert unwanted.fate == ["dropped"]
    pipeline.connected(new_parser(), [Ignored(b"first")])
    assert pipeline.gather() == b"firstrsn"
    assert pipeline.resent == 2
    assert repeat.ran_perhaps
    assert not new.ran_perhaps


@pytest.mark.parametrize(
    ("reply", "asked"),
    [(b"-LOADING x\r\n", "hold LOADING x"), (b"-READONLY x\r\n", "leave READONLY x")],
)
def test_pipeline_sends_refused_calls_again_unless_unwanted(
    pipeline: Pipeline, driver: Driver, reply: bytes, asked: str
) -> None:
    """A call that the server would not take now goes again; one that nobody waits for does not."""
    wanted, unwanted = Probe(b"w"), Probe(b"u", wanted=False)
    pipeline.submit(wanted)
    pipeline.submit(unwanted)
    pipeline.gather()
    pipeline.feed(reply * 2)
    assert asked in driver.asked
    assert pipeline.gather() == b"w"
    assert wanted.fate == []
    assert unwanted.fate == ["dropped"]


def scripted(data: bytes, *, wanted: bool = True) -> Probe:
    """Make a call of a script, which the server may not know."""
    call = Probe(data, repeat=True, wanted=wanted)
    call.script = load("counts")
    return call


def test_pipeline_asks_again_when_a_connection_breaks_under_a_script_load(pipeline: Pipeline) -> None:
    """A load that is lost says nothing: neither to the call behind it, nor to a later one, however often it happens."""
    call = scripted(b"call")
    pipeline.submit(call)
    for _ in range(5):
        assert pipeline.gather() == b"call"
        pipeline.feed(b"-NOSCRIPT x\r\n")
        sent = pipeline.gather()
        assert b"LOAD" in sent
        assert sent.endswith(b"call")
        pipeline.disconnected("cut")
        pipeline.connected(new_parser())
        assert call.fate == []
    pipeline.gather()
    pipeline.feed(b"-NOSCRIPT x\r\n")
    pipeline.gather()
    pipeline.feed(b"+sha\r\n+done\r\n")
    assert call.fate == [b"done"]


def test_pipeline_tells_a_refused_load_to_its_call_only(pipeline: Pipeline) -> None:
    """The call that it was for hears of it; one that comes later has a load of its own, which may be allowed by then."""
    unwanted, told, later = scripted(b"u"), scripted(b"t"), scripted(b"l")
    for first in (unwanted, told):
        pipeline.submit(first)
        pipeline.gather()
        pipeline.feed(b"-NOSCRIPT x\r\n")
        pipeline.gather()
        first.is_wanted = first is told
        pipeline.feed(b"-NOPERM script|load\r\n-NOSCRIPT x\r\n")
    assert unwanted.fate == ["dropped"]
    assert type(told.fate[0]) is PermissionDeniedError
    pipeline.submit(later)
    pipeline.gather()
    pipeline.feed(b"-NOSCRIPT x\r\n")
    assert b"LOAD" in pipeline.gather()
    pipeline.feed(b"+sha\r\n+done\r\n")
    assert later.fate == [b"done"]


def test_pipeline_forgets_a_refused_load_with_its_connection(pipeline: Pipeline) -> None:
    """The next server may allow what the last one refused."""
    call = scripted(b"c")
    pipeline.submit(call)
    pipeline.gather()
    pipeline.feed(b"-NOSCRIPT x\r\n")
    pipeline.gather()
    pipeline.feed(b"-NOPERM script|load\r\n")
    pipeline.disconnected("cut")
    pipeline.connected(new_parser())
    assert pipeline.gather() == b"c"
    pipeline.feed(b"-NOSCRIPT x\r\n")
    assert b"LOAD" in pipeline.gather()
    assert call.fate == []


def test_pipeline_refuses_an_answer_to_nothing(pipeline: Pipeline) -> None:
    """A reply that nothing was asked for means that the line of replies is out of step."""
    with pytest.raises(hiredis.ProtocolError, match="answer to nothing"):
        pipeline.feed(b"-ERR max number of clients reached\r\n")


def test_pipeline_fails_everything_when_closed(pipeline: Pipeline) -> None:
    """Calls that come later fail at once."""
    pipeline.close("over")
    late = Probe()
    pipeline.submit(late)
    assert not late.fate[0].sent


def test_line_lets_members_leave_and_does_not_grow() -> None:
    """Whoever leaves is passed over; the order of the others holds; the marked are cleared away."""
    line: Line[Probe] = Line()
    stays = [Probe() for _ in range(3)]
    line.append(stays[0])
    for _ in range(10_000):
        leaver = Probe()
        line.append(leaver)
        line.leave(leaver)
        line.leave(leaver)
    line.append(stays[1])
    line.append(stays[2])
    assert len(line._items) < 200
    assert len(line) == 3
    assert list(line) == stays
    assert [line.pop(), line.pop(), line.pop(), line.pop()] == [*stays, None]
    assert not line
