"""The tests notice a runtime that is broken on purpose."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest

from tests.worker.mutants import ALL, ROOT, Mutant, change, changed, node, run

# Quick ones, of the rules that the whole design hangs on: deadlines, settling, the wire. `make prove` runs all.
CHOSEN = (
    "the first deadline counts from the claim's reply",
    "a lease is given back before its handler has ended",
    "a group call draws a new number when it is sent again",
)


@pytest.mark.parametrize("mutant", ALL, ids=str)
def test_mutant_is_up_to_date(mutant: Mutant) -> None:
    """Each change finds its text, once, and what it makes is Python."""
    assert changed(mutant)


def test_mutants_name_tests_that_are_there() -> None:
    """A test that was renamed, or whose parameters have changed, would notice nothing any more."""
    nodes = sorted({node(test) for mutant in ALL for test in mutant.tests})
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "", "-p", "no:cacheprovider", *nodes],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, [line for line in (done.stdout + done.stderr).splitlines() if "not found" in line]


def test_mutants_have_names_of_their_own() -> None:
    """The table names each once."""
    assert [name for name, count in Counter(map(str, ALL)).items() if count > 1] == []


def test_mutant_out_of_date_says_so() -> None:
    """A text that is gone, or that stands there twice, is an error and not a mutant that was caught."""
    for source in ("b", "a a"):
        with pytest.raises(LookupError, match=r"echomq/x\.py has this .* up to date"):
            change(source, "x.py", "a", "c")


@pytest.mark.timeout(120)
def test_mutants_copy_is_what_runs() -> None:
    """The changed copy is imported, and not the package that is installed; unchanged, its tests pass."""
    test = "wire/pipeline::pipeline_hands_replies_out_in_order"
    broken = Mutant("", (("wire/line.py", "_REBUILD_AT: Final = 64", "raise SystemExit('of the copy')"),), (test,))
    with pytest.raises(AssertionError, match="of the copy"):
        run(broken)
    assert run(Mutant("", (), (test,))).by == ""


@pytest.mark.mutants
@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", CHOSEN)
def test_mutant_is_caught(name: str) -> None:
    """What would hurt most cannot go unnoticed."""
    (mutant,) = [each for each in ALL if each.name == name]
    caught = run(mutant)
    assert caught.by, f"nobody noticed: {mutant}\n{caught.output}"


@pytest.mark.prove
@pytest.mark.mutants
@pytest.mark.timeout(3600)
def test_mutants_are_all_caught(capsys: pytest.CaptureFixture[str]) -> None:
    """Every mutant is noticed by a test that is named with it."""
    survivors: list[str] = []
    with capsys.disabled():
        print(f"\n{'mutant':70} {'caught by':76} seconds")
        for mutant in ALL:
            caught = run(mutant)
            print(f"{mutant.name:70.70} {caught.by or 'SURVIVED':76.76} {caught.seconds:7.1f}", flush=True)
            if not caught.by:
                survivors.append(mutant.name)
        print(f"{len(ALL)} mutants, {len(ALL) - len(survivors)} caught")
    assert survivors == []
