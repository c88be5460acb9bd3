"""A pump for proofs: delivers what queues owe each other, as a worker does, and ends all there is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from echomq.conformance.driver import Driver
from echomq.conformance.invariants_kin import entries
from echomq.conformance.keyspace import Playground
from echomq.protocol.kin import Outcome
from echomq.transitions import Delivery, Entry

_ROUNDS: Final = 64
_STEPS: Final = 64


def deliver(entry: Entry, source: Driver, targets: Mapping[str, Driver]) -> str:
    """Deliver an entry that was taken, and answer the verdict; of a walk: "walked".

    Args:
        entry: The entry.
        source: A client of the queue whose outbox it is.
        targets: A client of each queue, by its name.

    Raises:
        AssertionError: A walk never ends.
    """
    if entry.is_walk:
        for _ in range(_STEPS):
            if not source.plain("flow_walk", entry=entry.name).more:
                return "walked"
        raise AssertionError(f"{entry.name} never ends")
    target = targets[entry.queue] if entry.queue else source
    if entry.kind == "add":
        return str(target.plain("flow_receive", entry=entry.name, nodes=entry.words[0])[0].code)
    sent = Delivery.of(entry)
    verdict = target.items("flow_deliver", sent)[0]
    if verdict.code == "lost":
        body = Outcome("lost", 1, 0, "nobody knows it", b"").spell()
        source.items("flow_deliver", Delivery("tell", sent.other, sent.id, sent.body.decode(), body))
    return verdict.code


def pump(drivers: Mapping[str, Driver]) -> list[str]:
    """Deliver what the queues owe, and what that makes them owe; answers the names of the entries, in their order.

    Args:
        drivers: A client of each queue, by its name; what is owed to others is put back.

    Raises:
        AssertionError: It never ends.
    """
    names: list[str] = []
    for _ in range(_ROUNDS):
        seen = len(names)
        for driver in drivers.values():
            taken = driver.plain("flow_take")
            done, later = [], []
            for entry in taken.entries:
                if entry.queue and entry.queue not in drivers:
                    later.append(entry.name)
                    continue
                verdict = deliver(entry, driver, drivers)
                names.append(entry.name)
                if verdict == "EMQSTATE":
                    later.append(entry.name)
                elif not entry.is_walk:
                    done.append(entry.name)
            if done or later:
                driver.plain("flow_done", till=taken.till, done=done, later=later, delay_ms=10_000)
        if len(names) == seen:
            return names
    raise AssertionError(f"the queues still owe each other something: {names[-9:]}")


def end_all(grounds: Mapping[str, Playground]) -> None:
    """End every job of these queues by the verbs, and deliver all they owe: parents end when their children have.

    Raises:
        AssertionError: Something is left.
    """
    drivers = {name: ground.client() for name, ground in grounds.items()}
    for _ in range(_ROUNDS):
        left = 0
        for name, ground in grounds.items():
            ground.server.hdel(ground.keys.meta, "closing")
            ground.end_all()
            snap = ground.look()
            for entry, score in snap.zset("outbox").items():
                if score != math.inf:
                    ground.server.zadd(ground.keys.outbox, {entry: 1})
            abroad = {it.name for it in entries(snap).values() if it.queue and it.queue not in grounds}
            if abroad:
                drivers[name].plain("flow_done", till="1", done=sorted(abroad))
        pump(drivers)
        for ground in grounds.values():
            snap = ground.look()
            left += len(list(snap.rows())) + len(snap.zset("outbox"))
        if not left:
            return
    raise AssertionError("jobs, or what they owe, are left, and go no further")
