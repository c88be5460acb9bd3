"""One round of a queue's outbox: what is due is taken, delivered, and struck off or put back (Protocol, section 7).

If you change this
    Each delivery may have happened before, and may happen again: this one may be cut off at any await.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, final

import anyio
import attrs

from echomq._logs import Told, get_logger
from echomq.errors import DecodeError, EchoMQError, JobStateError
from echomq.protocol.kin import Outcome
from echomq.protocol.refusals import COLLISION
from echomq.protocol.times import to_ms
from echomq.transitions import Call, Delivery, Entry, flow_done, flow_receive, flow_take, flow_walk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from echomq.protocol.keys import QueueKeys
    from echomq.protocol.refusals import Verdict
    from echomq.transitions import Transition
    from echomq.worker.calls import QueueCalls

LATER: float = 10.0
"""Seconds after which an entry that could not be delivered is tried again, longer or shorter by up to a fifth."""

_log = get_logger("echomq.worker")


@final
class Round:
    """Delivers what is due in one queue's outbox, once."""

    def __init__(self, calls: QueueCalls, told: Told) -> None:
        """Make it.

        Args:
            calls: The queue.
            told: What was logged of it before.
        """
        self._calls = calls
        self._told = told
        self._done: list[str] = []
        self._later: list[str] = []

    async def run(self) -> tuple[int, float]:
        """Do it. Answers how many entries were due, and when the next one is, on anyio's clock.

        Raises:
            EchoMQError: The queue refuses, or is away. What was taken is there again half a minute later.

        **Cancellation**: at any moment, as for an error.
        """
        calls = self._calls
        taken = await calls.wire.run(flow_take(calls.keys, self._call()), route="bulk")
        next_at = anyio.current_time() + taken.next_ms / 1000
        queues: dict[str, list[Entry]] = {}
        for entry in taken.entries:
            if entry.is_walk:
                await self._walk(entry)
            else:
                queues.setdefault(entry.queue or calls.queue, []).append(entry)
        for name, entries in queues.items():
            await self._send(name, entries)
        if self._done or self._later:
            delay_ms = to_ms(LATER * random.uniform(0.8, 1.2))
            await calls.wire.run(
                flow_done(
                    calls.keys, self._call(), till=taken.till, done=self._done, later=self._later, delay_ms=delay_ms
                ),
                route="bulk",
            )
            if self._later:
                next_at = min(next_at, anyio.current_time() + delay_ms / 1000)
        return len(taken.entries), next_at

    def _call(self) -> Call:
        return Call(self._calls.wire.tag)

    async def _walk(self, entry: Entry) -> None:
        """Take the steps of a walk in the queue itself, which strikes itself off."""
        calls = self._calls
        while (await calls.wire.run(flow_walk(calls.keys, self._call(), entry=entry.name), route="bulk")).more:
            pass

    async def _send(self, name: str, entries: Sequence[Entry]) -> None:
        """Deliver to one queue. Once it has failed, the rest is not tried."""
        there = attrs.evolve(self._calls.keys, queue=name)
        try:
            for entry in (each for each in entries if each.kind == "add"):
                await self._add(there, entry)
                self._done.append(entry.name)
            await self._deliver(there, [entry for entry in entries if entry.kind != "add"])
            self._told.over(name)
        except (EchoMQError, ValueError) as error:
            known = {*self._done, *self._later}
            self._later += [entry.name for entry in entries if entry.name not in known]
            if self._told.is_new(str(error), name):
                _log.warning("delivery_failed", queue=self._calls.queue, to=name, error=str(error))

    async def _add(self, there: QueueKeys, entry: Entry) -> None:
        def build(call: Call) -> Transition[list[Verdict]]:
            return flow_receive(there, call, entry=entry.name, nodes=entry.words[0])

        if not entry.words:
            raise DecodeError(f"expected jobs in the outbox, got {entry.name!r} without any")
        try:
            await self._calls.wire.remembered(there, build, verb="flow_add", route="bulk")
        except JobStateError as error:
            # It is there, of a delivery so old that its mark is gone; or its id is another job's, which its parent hears of
            # when it asks.
            if not error.actual.startswith(COLLISION):
                raise

    async def _deliver(self, there: QueueKeys, entries: Sequence[Entry]) -> None:
        """Deliver outcomes, requests and questions, in one call or a few."""
        if not entries:
            return
        items: list[Delivery] = []
        readable: list[Entry] = []
        for entry in entries:
            try:
                items.append(Delivery.of(entry))
                readable.append(entry)
            except (EchoMQError, ValueError) as error:
                self._put_back(entry, there.queue, error)
        outcomes = await self._calls.wire.group(there, "flow_deliver").many(items)
        for entry, item, outcome in zip(readable, items, outcomes, strict=True):
            problem = outcome if isinstance(outcome, EchoMQError) else outcome.error(id=item.id, queue=there.queue)
            if problem is not None:
                self._put_back(entry, there.queue, problem)
                continue
            if not isinstance(outcome, EchoMQError) and outcome.code == "lost" and item.kind in ("ask", "redrive"):
                await self._lose(entry, item)
            self._done.append(entry.name)

    def _put_back(self, entry: Entry, name: str, error: Exception) -> None:
        self._later.append(entry.name)
        if self._told.is_new(str(error), name):
            _log.warning("delivery_failed", queue=self._calls.queue, to=name, error=str(error), entry=entry.name)

    async def _lose(self, entry: Entry, item: Delivery) -> None:
        """Tell a parent of this queue that nobody knows its child any more."""
        calls = self._calls
        text = Outcome("lost", round(time.time() * 1000), 0, "nobody knows it", None).spell()
        name = item.body.decode("utf-8", "replace")
        verdict = await calls.wire.group(calls.keys, "flow_deliver")(Delivery("tell", item.other, item.id, name, text))
        _log.warning(
            "child_lost",
            queue=calls.queue,
            job=item.other,
            child=item.id,
            child_queue=entry.queue,
            verdict=verdict.code,
        )
