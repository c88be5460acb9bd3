"""The list of scenarios, and how one is run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, final

import attrs
import redis

from echomq.conformance.bench import Bench, UnexpectedError
from echomq.conformance.invariants import violations
from echomq.conformance.invariants_kin import kin_violations
from echomq.conformance.pumping import end_all
from echomq.transitions import Script

Story = Callable[[Bench], None]


@final
@attrs.frozen
class Scenario:
    """A named story with a known end."""

    name: str
    """What is shown, as a sentence."""
    pitfalls: tuple[int, ...]
    """The pitfalls of the design that it closes, by number."""
    story: Story
    """The story; it raises when something is not as expected."""


@final
@attrs.frozen
class Outcome:
    """How a scenario went."""

    scenario: Scenario
    error: Exception | None
    """None: it passed."""
    verbs: frozenset[str]
    """The verbs that were run."""
    checks: int
    """How many answers were as expected."""


SCENARIOS: Final[list[Scenario]] = []
"""All scenarios, in the order of their modules."""


def scenario(name: str, *pitfalls: int) -> Callable[[Story], Story]:
    """Register a story under a name; names are unique."""

    def register(story: Story) -> Story:
        if any(known.name == name for known in SCENARIOS):
            raise ValueError(f"two scenarios are named {name!r}")
        SCENARIOS.append(Scenario(name, pitfalls, story))
        return story

    return register


def run(
    it: Scenario, server: redis.Redis, *, prefix: str = "emq-proof", scripts: Mapping[str, Script] | None = None
) -> Outcome:
    """Run a scenario on a queue of its own, of which nothing is left behind.

    At its end the invariants must hold, and when all jobs are ended then, nothing but the queue's own keys may remain.
    """
    bench = Bench(server, prefix=prefix, scripts=scripts)
    error: Exception | None = None
    try:
        it.story(bench)
        if not any(each.torn for each in bench.queues.values()):
            _hold_at_the_end(bench)
    except Exception as caught:  # noqa: BLE001 - whatever goes wrong is this scenario's outcome, not the run's
        error = caught
    finally:
        verbs = frozenset(bench.verbs)
        for each in bench.queues.values():
            each.ground.clear()
    return Outcome(it, error, verbs, sum(each.checks for each in bench.queues.values()))


def _hold_at_the_end(bench: Bench) -> None:
    snaps = {name: each.look() for name, each in bench.queues.items()}
    broken = [line for snap in snaps.values() for line in violations(snap)] + kin_violations(snaps)
    if broken:
        raise UnexpectedError("invariants at the end", [], broken)
    end_all({name: each.ground for name, each in bench.queues.items()})
    for each in bench.queues.values():
        each.ground.expect_empty()
