"""`checkpoint`: the whole keyspace before and after."""

from __future__ import annotations

import pytest

from echomq.conformance.bench import Bench
from echomq.transitions import Checkpoint
from tests.lua.watching import assert_fenced, changes, running


def test_checkpoint_writes_state_and_step(bench: Bench) -> None:
    """Nothing else changes; the same step again replaces the state."""
    job = running(bench)
    for state in (b"one", b"one more"):
        item = Checkpoint(job.id, job.token, job.nonce, 1, state)
        answer, changed = changes(bench, lambda item=item: bench.on("checkpoint", item), A=job.id)  # type: ignore[misc]
        assert answer == ["ok"]
        assert changed - {"job:A[step] = 1"} == {f"job:A[checkpoint] = {state.decode()}", "event checkpoint A"}
    assert bench.row(job.id)["step"] == "1"


def test_checkpoint_never_goes_back(bench: Bench) -> None:
    """A lower step is refused and names the one that is kept."""
    job = running(bench)
    bench.on("checkpoint", Checkpoint(job.id, job.token, job.nonce, 2, b"two"))
    item = Checkpoint(job.id, job.token, job.nonce, 1, b"one")
    assert changes(bench, lambda: bench.on("checkpoint", item)) == (["EMQSTATE step 2"], set())


@pytest.mark.parametrize("step", ["", "x", "-1", "1.5", "nan", "inf", "100000000000001"])
def test_checkpoint_refuses_a_step_that_is_none(bench: Bench, step: str) -> None:
    """Before any write."""
    job = running(bench)
    answer, changed = changes(bench, lambda: bench.worker.bare("checkpoint", job.id, 1, job.nonce, step, "state"))
    assert (answer, changed) == ([f"EMQKIND step {step}".encode()], set())


def test_checkpoint_is_fenced(bench: Bench) -> None:
    """Whoever does not hold the job changes nothing."""
    assert_fenced(bench, "checkpoint")
