"""`browse`: the whole keyspace before and after."""

from __future__ import annotations

import pytest

from echomq.conformance.bench import Bench
from echomq.conformance.driver import CallRefusedError
from tests.lua.watching import changes


def test_browse_changes_nothing(bench: Bench) -> None:
    """A page of rows with scores, in the set's order."""
    ids = [bench.add(priority=n) for n in range(3)]
    page, changed = changes(bench, lambda: bench.worker.plain("browse", state="pending", count=2))
    assert [(job.id, score) for job, score in page.jobs] == [(ids[2], -2.0), (ids[1], -1.0)]  # type: ignore[attr-defined]
    assert changed == set()


@pytest.mark.parametrize(
    ("options", "refusal"),
    [
        ({"state": "waiting room"}, "EMQKIND state waiting room"),
        ({"state": "pending", "count": 0}, "EMQKIND offset or count is out of range"),
        ({"state": "pending", "count": 257}, "EMQKIND offset or count is out of range"),
        ({"state": "pending", "offset": -1}, "EMQKIND offset or count is out of range"),
    ],
)
def test_browse_refuses_what_it_cannot_show(bench: Bench, options: dict[str, object], refusal: str) -> None:
    """A page beyond its bound, or of no set."""
    with pytest.raises(CallRefusedError, match=refusal):
        bench.worker.plain("browse", **options)
