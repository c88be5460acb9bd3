"""The table of events agrees with the scripts."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from echomq.protocol.states import Event
from echomq.transitions import ALL_VERBS, load

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| `(\w+)` \| (\w+) \|([^|]*)\|", re.MULTILINE)
CALL = re.compile(r"\bemit[(,] ?(?P<kind>[^,]+), (?P<rest>.*)\)")
BY_VARIABLE = {"kind": ("cancelled", "discarded")}
"""What `end` passes on: its item's kind, which it has checked."""


def fields_told() -> dict[str, set[str]]:
    """Read from the scripts which fields each kind of event is given."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for path in (ROOT / "src" / "echomq" / "lua").rglob("*.lua"):
        for line in path.read_text("utf-8").splitlines():
            match = CALL.search(line)
            if match is None or line.startswith(("--", "local function emit")):
                continue
            kinds = BY_VARIABLE.get(match["kind"]) or re.findall(r"'(\w+)'", match["kind"])
            assert kinds, line
            for kind in kinds:
                found[kind] |= set(re.findall(r"'(\w+)', [^']", match["rest"].partition(", ")[2]))
    return dict(found)


def test_table_of_events_is_that_of_the_scripts() -> None:
    """Each kind is there, at its level, with the fields that some script gives it, and no other."""
    rows = ROW.findall((ROOT / "docs" / "reference" / "events.md").read_text("utf-8"))
    assert len(rows) == len(Event)
    assert {kind: level for kind, level, _ in rows} == {str(event): str(event.level) for event in Event}
    told = fields_told()
    assert {kind: set(re.findall(r"`(\w+)`", cell)) for kind, _, cell in rows} == told


def test_events_of_the_headers_are_the_kinds_there_are() -> None:
    """Each kind is in some script's header, and no other word."""
    assert {event for verb in ALL_VERBS for event in load(verb).header.events} == {str(event) for event in Event}


def test_failures_are_those_of_the_include() -> None:
    """Which events the server keeps by default, and which the table of moves says it does."""
    text = (ROOT / "src" / "echomq" / "lua" / "include" / "emit.lua").read_text("utf-8")
    assert set(re.findall(r"(\w+) = true", text)) == {str(event) for event in Event if event.level == "failures"}
