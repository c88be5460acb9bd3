"""What the rota promises, by bare calls of the scripts: turns, shares, full claims, and a claim's cost by lanes.

Theory of operation
    Everything but the cost is counted: claims are made one after the other, and what they answer is what happened.

    The cost is the server's own time in scripts (INFO, `cmdstat_evalsha`), of claims alone. Each number of lanes has a
    server of its own, with the same number of jobs in all; they are measured in turn, a few hundred jobs at a time, in
    an order that changes, so that all see the same machine in the same seconds. The ratio is the median of the ratios
    of the rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from itertools import chain, cycle, islice
from statistics import median
from typing import Any, final

import redis

from benchmarks.ceiling_side import TAG, Link, Template, connect
from benchmarks.workload import KEYS
from echomq import transitions
from echomq.embedded import open_server
from echomq.transitions import Call, RateLimit, claim
from echomq.transitions.scripts import load

PER_CALL = 100
CHUNK = {1: 200, 10: 500, 100: 500}
"""Jobs that a measurement of cost claims, by how many a call."""
LEASE_MS = 600_000
Advance = Callable[[int], object]
Job = tuple[str, int, str]
"""Id, token, nonce."""


@final
class Rota:
    """A queue on a server of its own, driven by bare calls."""

    def __init__(self, link: Link, client: redis.Redis) -> None:
        self._link = link
        self._client = client
        self._template = Template()
        self._claim_tail = claim(KEYS, Call(TAG), count=1, lease_ms=LEASE_MS).argv[3:]
        self._number = 0
        self.lane_of: dict[str, str] = {}

    def _command(self, verb: str, *arguments: Any) -> tuple[Any, ...]:
        self._number += 1
        return ("EVALSHA", load(verb).sha, 2, KEYS.meta, KEYS.void, TAG, self._number, *arguments)

    def set_lane(self, lane: str, **settings: str) -> None:
        transition = transitions.set_lane(KEYS, Call("bench"), lane=lane, settings=settings)
        self._client.script_load(transition.script.source)
        self._client.execute_command(*transition.command())

    async def put(self, lanes: Iterable[str]) -> None:
        """Enqueue a job for each of these lanes, in this order."""
        names = iter(lanes)
        number = 0
        while some := list(islice(names, PER_CALL)):
            items: list[Any] = []
            for lane in some:
                item = self._template.make(number, lane)
                self.lane_of[item[0]] = lane
                items += item
                number += 1
            await self._link.call(*self._command("enqueue", *items))

    async def claim(self, counts: Sequence[int]) -> list[tuple[int, list[Job]]]:
        """Make one claim after the other; answer the `next` and the jobs of each."""
        nonces = []
        commands = []
        for count in counts:
            commands.append(self._command("claim", count, *self._claim_tail))
            nonces.append(f"{TAG}.{self._number}")
        await self._link.send(*commands)
        found = []
        for nonce in nonces:
            reply = await self._link.reply()
            found.append((reply[1], [(id.decode(), int(token), nonce) for id, token, _row in reply[3:]]))
        return found

    async def complete(self, jobs: Sequence[Job]) -> None:
        for first in range(0, len(jobs), PER_CALL):
            items = [
                part for id, token, nonce in jobs[first : first + PER_CALL] for part in (id, token, nonce, b"", b"")
            ]
            await self._link.call(*self._command("complete", *items))

    async def turns(self, jobs: int, per_call: int) -> list[str]:
        """Claim and complete so many; answer their lanes in the order in which they were dispatched."""
        order: list[str] = []
        while len(order) < jobs:
            [(_, claimed)] = await self.claim([per_call])
            order += [self.lane_of[id] for id, *_ in claimed]
            await self.complete(claimed)
        return order

    def scripts_us(self) -> float:
        stats: Any = self._client.info("commandstats")
        return float(stats["cmdstat_evalsha"]["usec"])

    async def cost(self, jobs: int, per_call: int) -> float:
        """Claim so many, and complete them; answer the server's time for one's claim, us."""
        began = self.scripts_us()
        claimed = [job for _, some in await self.claim([per_call] * (jobs // per_call)) for job in some]
        spent = self.scripts_us() - began
        if len(claimed) != jobs:
            raise RuntimeError(f"claims of {per_call} answered {len(claimed)} jobs, not {jobs}")
        await self.complete(claimed)
        return spent / jobs


async def _open(stack: ExitStack) -> Rota:
    url = stack.enter_context(open_server()).url
    return Rota(await connect(url), stack.enter_context(redis.Redis.from_url(url)))


async def fill(url: str, lanes: Iterable[str]) -> None:
    """Enqueue a job for each of these lanes, in this order."""
    with redis.Redis.from_url(url) as client:
        await Rota(await connect(url), client).put(lanes)


def tenants(lanes: int, jobs: int) -> Iterable[str]:
    """Answer the lane of each of so many jobs: so many lanes by turns; 0: none."""
    names = [f"tenant-{number}" for number in range(lanes)]
    return islice(cycle(names or [""]), jobs)


async def costs(
    numbers: Sequence[int], jobs: int, rounds: int, advance: Advance
) -> dict[str, dict[str, dict[str, float]]]:
    """Answer the server's us for a claimed job and its ratio to that with one lane, by jobs a claim and by lanes.

    0 lanes: a queue that never met one.
    """
    found = {}
    with ExitStack() as stack:
        queues: dict[int, Rota] = {}
        for lanes in numbers:
            queues[lanes] = await _open(stack)
            await queues[lanes].put(tenants(lanes, jobs))
            advance(jobs)
        for per_call, chunk in CHUNK.items():
            seen: dict[int, list[float]] = {lanes: [] for lanes in numbers}
            for number in range(rounds):
                at = number % len(numbers)
                for lanes in (*numbers[at:], *numbers[:at]):
                    seen[lanes].append(await queues[lanes].cost(chunk, per_call))
                    advance(chunk)
            found[str(per_call)] = {
                str(lanes): {
                    "us": median(seen[lanes]),
                    "ratio": median(one / base for one, base in zip(seen[lanes], seen[1], strict=True)),
                }
                for lanes in numbers
            }
    return found


async def first_turn(backlog: int, lanes: int, per_call: int) -> int:
    """Fill some lanes, let their jobs run, then add one job in a lane of its own; answer which dispatch after that it is."""
    with ExitStack() as stack:
        rota = await _open(stack)
        await rota.put(tenants(lanes, backlog))
        await rota.turns(2 * lanes + 5, per_call)
        await rota.put(["single"])
        return (await rota.turns(lanes + per_call + 1, per_call)).index("single") + 1


async def shares(backlog: int, jobs: int, per_call: int) -> float:
    """Answer by how much the heavier of two lanes, with weights 3 and 1, had more or less than its share: 0.1 is 10 %."""
    with ExitStack() as stack:
        rota = await _open(stack)
        rota.set_lane("heavy", weight="3")
        await rota.put(chain(["heavy"] * backlog, ["light"] * backlog))
        turns = await rota.turns(jobs, per_call)
        return turns.count("heavy") / len(turns) / 0.75 - 1


async def idle_slots(lanes: int) -> int:
    """Claim from lanes of which most cannot be served; answer how many slots stayed empty while some job could start.

    A tenth of the lanes is paused, limited to one, or at a rate of one an hour, each.
    """
    with ExitStack() as stack:
        rota = await _open(stack)
        may: dict[str, int] = {}
        each = 5
        for number, lane in enumerate(tenants(lanes, lanes)):
            settings = {
                0: {"paused": "1"},
                1: {"limit": "1"},
                2: {"rate": RateLimit(count=1, per_ms=3_600_000).spell()},
            }
            if chosen := settings.get(number % 10):
                rota.set_lane(lane, **chosen)
            may[lane] = {0: 0, 1: 1, 2: 1}.get(number % 10, each)
        await rota.put(tenants(lanes, each * lanes))
        empty = 0
        for per_call in cycle((1, 7, 50)):
            startable = sum(may.values())
            if not startable:
                return empty
            [(next_ms, claimed)] = await rota.claim([per_call])
            for id, *_ in claimed:
                may[rota.lane_of[id]] -= 1
            # One that says "ask again at once" leaves nothing empty: nobody sleeps on it.
            if next_ms:
                empty += max(0, min(per_call, startable) - len(claimed))
                if not claimed:
                    return empty
        raise AssertionError
