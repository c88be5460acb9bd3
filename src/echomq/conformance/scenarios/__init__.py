"""Named scenarios: each verb's stories, and each pitfall of the design that can be shown on one queue."""

from __future__ import annotations

from echomq.conformance.scenarios import (  # noqa: F401 - importing them registers them
    alerts,
    alive,
    calls,
    changing,
    claiming,
    crossing,
    dedup,
    fencing,
    finding,
    firing,
    flows,
    forests,
    holding,
    kinship,
    lanes,
    limits,
    lives,
    mending,
    obliterating,
    operating,
    outbox,
    producing,
    recovery,
    reviving,
    rounds,
    schedules,
    settling,
    shelves,
    spawning,
    sweeping,
    telling,
    time,
)
from echomq.conformance.scenarios.registry import SCENARIOS, Outcome, Scenario, run, scenario

__all__ = ["SCENARIOS", "Outcome", "Scenario", "run", "scenario"]
