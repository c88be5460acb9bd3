"""The table of moves."""

from __future__ import annotations

import re
from importlib import resources

import pytest

from echomq.protocol.states import MOVES, VERBS, Event, Level, State, sources

SCRIPTS = sorted(
    each.name for each in resources.files("echomq").joinpath("lua").iterdir() if each.name.endswith(".lua")
)


def header(script: str, name: str) -> str:
    """Read one line of a script's header."""
    text = resources.files("echomq").joinpath("lua", script).read_text()
    match = re.search(rf"^-- {name}: (.*)$", text, re.MULTILINE)
    return match[1] if match else ""


def test_moves_are_distinct() -> None:
    """No line of the table stands twice."""
    assert len(set(MOVES)) == len(MOVES)


def test_moves_lead_to_and_from_every_state_in_use() -> None:
    """Every state can be entered and left."""
    used = set(State)
    assert {state for move in MOVES for state in move.sources if state} == used
    assert {state for move in MOVES for state in move.targets if state} == used


def test_events_have_a_level() -> None:
    """By default the stream tells whoever is on call what went wrong, and what an operator stopped."""
    assert {event for event in Event if event.level is Level.FAILURES} == {
        Event.FAILED,
        Event.DEAD,
        Event.STALLED,
        Event.DROPPED,
        Event.TORN,
        Event.TRIMMED,
        Event.EXPIRED,
        Event.MENDED,
        Event.LOST,
        Event.PAUSED,
        Event.RESUMED,
    }
    assert all(move.level is None for move in MOVES if move.event is None)


def test_sources_answer_where_a_verb_works() -> None:
    """The model asks from which states a verb does anything; an unknown verb is an error."""
    assert sources("complete") == {State.ACTIVE, State.PENDING}
    assert sources("enqueue") == {None, State.PENDING, State.SCHEDULE}
    assert sources("pause") == set()
    with pytest.raises(KeyError):
        sources("sing")


@pytest.mark.parametrize("script", SCRIPTS)
def test_moves_hold_what_a_script_declares(script: str) -> None:
    """A script's header declares no move and no event that the table does not have (its rounds included)."""
    verb = header(script, "verb")
    verbs = {verb, "reap", "promote"} if verb == "claim" else {verb}
    if "shelf" in header(script, "include"):
        verbs.add("trim")  # whoever puts a job on a shelf takes others off it
    if "kin" in header(script, "flows"):
        verbs |= {"settle", "follow", "alert"}  # whoever ends a job may move its parent
    moves = [move for move in MOVES if move.verb in verbs]
    table = {(a or "nothing", b or "nothing") for move in moves for a in move.sources for b in move.targets}
    declared = {
        tuple(re.split(r"\s*->\s*", each.strip())) for each in header(script, "moves").split(";") if "->" in each
    }
    assert declared <= table
    if moves:
        assert verb in VERBS
    events = {each.strip() for each in header(script, "events").split(";")} - {"", "none"}
    assert events <= {move.event for move in moves} | {Event.DROPPED, Event.TORN}
