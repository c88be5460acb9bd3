"""Delivering an outbox: what a queue has to tell other queues, and what it has to do in bounded steps (Protocol, section 7).

Theory of operation
    Whoever has caused an entry delivers it at once, and the worker's pump is the fallback: all run this walk. Entries are
    taken for half a minute, handed over, and struck off; whoever dies in between leaves them to be taken again, and each
    may be handed over any number of times. What a queue refuses, or one that is away, is put back for some seconds, and
    keeps nothing back that is for others.

If you change this
    It may be left at any `yield`. First the other queue has it, then it is struck off: never the other way round.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, final

import attrs

from echomq._logs import get_logger
from echomq._walks import Ask, At, Each, Once, Outcomes, Rows, Walk
from echomq.errors import DecodeError, EchoMQError, InvalidJobError, JobStateError
from echomq.protocol.kin import Outcome
from echomq.protocol.refusals import Verdict
from echomq.protocol.words import unpack_words
from echomq.transitions import (
    Call,
    Delivery,
    Entry,
    JobInFull,
    Taken,
    Transition,
    Walked,
    flow_done,
    flow_receive,
    flow_take,
    flow_walk,
)

if TYPE_CHECKING:
    from echomq.protocol.keys import QueueKeys

ROUNDS: Final = 100
"""Times that one walk takes entries: what is left is due, and the next one goes on."""
STEPS: Final = 2000
"""Steps of a walk over children that are taken in one go; the rest is there again half a minute later."""
AGAIN: Final = (5.0, 10.0)
"""Seconds after which what could not be handed over is tried again, drawn from between the two."""

_log = get_logger("echomq.flows")


@final
@attrs.define(kw_only=True)
class Delivered:
    """What a delivery did."""

    entries: int = 0
    """Entries handed over, or walked to their end."""
    put_back: int = 0
    """Entries that could not be: their queue is away, or refuses them."""
    torn: int = 0
    """Entries that could not be read, and are gone."""
    cancelled: int = 0
    """Children ended, since their parent has."""
    asked: int = 0
    """Children that run and were asked to stop, for the same reason."""
    redriven: int = 0
    """Children that begin a new life with their parent."""
    lost: int = 0
    """Children that nobody knew any more."""
    released: int = 0
    """Jobs of flows that were added in rounds, and may run now."""
    next_ms: int = 0
    """How long until the next entry is due, ms."""

    def add(self, walked: Walked) -> None:
        """Count what a step did."""
        self.cancelled += walked.cancelled
        self.asked += walked.asked
        self.redriven += walked.redriven
        self.lost += walked.lost
        self.released += walked.released


def deliver_walk(keys: QueueKeys, *, rounds: int = ROUNDS) -> Walk[Delivered]:
    """Deliver what is due in a queue's outbox, and what comes due by that, there and in the queues it is for.

    Args:
        keys: The queue.
        rounds: How often entries are taken at most, in all queues together.

    Raises:
        EchoMQError: An outbox could not be read, or an entry not be struck off: it is delivered again later.
    """
    did = Delivered()
    todo, left = [keys.queue], rounds
    while todo and left > 0:
        here = attrs.evolve(keys, queue=todo.pop(0))
        while left > 0:
            taken: Taken = yield At(here.queue, Ask(lambda call, here=here: flow_take(here, call)))  # type: ignore[misc]
            if here.queue == keys.queue:
                did.next_ms = taken.next_ms
            if not taken.entries:
                break
            left -= 1
            batch = _Batch(here, did)
            yield from batch.hand_over(taken.entries)
            yield from batch.strike(taken.till)
            # What was handed over may have something to tell, too.
            todo += sorted(batch.reached - {here.queue, *todo})
    return did


def news_walk(keys: QueueKeys, *, rounds: int = ROUNDS) -> Walk[Delivered]:
    """Deliver what a verb may just have caused. The verb is done: what fails here is delivered later."""
    try:
        return (yield from deliver_walk(keys, rounds=rounds))
    except EchoMQError as error:
        _log.info("news_not_delivered", queue=keys.queue, error=str(error))
        return Delivered()


@final
class _Batch:
    """Entries that were taken together, and what becomes of each."""

    def __init__(self, keys: QueueKeys, did: Delivered) -> None:
        self._keys = keys
        self._did = did
        self.done: list[str] = []
        self.later: list[str] = []
        self.reached: set[str] = set()
        """Queues to which something was handed over."""

    def strike(self, till: str) -> Walk[None]:
        """Strike off what was handed over, and put back what could not be."""
        self._did.put_back += len(self.later)
        self._did.entries += len(self.done)
        if self.done or self.later:
            delay_ms = int(1000 * random.uniform(*AGAIN))
            yield self._here(
                lambda call: flow_done(self._keys, call, till=till, done=self.done, later=self.later, delay_ms=delay_ms)
            )

    def _here(self, build: Callable[[Call], Transition[Any]]) -> At:
        return At(self._keys.queue, Ask(build))

    def hand_over(self, entries: tuple[Entry, ...]) -> Walk[None]:
        """Hand all over: walks first, then those that add jobs, then news, by queue."""
        news: defaultdict[str, list[tuple[Entry, Delivery]]] = defaultdict(list)
        away: dict[str, EchoMQError] = {}
        for entry in entries:
            if entry.is_walk:
                yield from self.walk(entry)
            elif entry.kind == "add" and entry.words:
                yield from self.add(entry, away)
            else:
                try:
                    news[entry.queue or self._keys.queue].append((entry, Delivery.of(entry)))
                except DecodeError as error:
                    self.tear(entry, error)
        for queue, items in news.items():
            yield from self.tell(queue, items)

    def tear(self, entry: Entry, error: ValueError | EchoMQError) -> None:
        """An entry says nothing that could be done: it goes, and the log says so."""
        _log.error("outbox_entry_torn", queue=self._keys.queue, entry=entry.name, error=str(error))
        self._did.torn += 1
        self.done.append(entry.name)

    def put_back(self, entry: Entry, error: EchoMQError) -> None:
        """An entry could not be handed over now."""
        _log.info("outbox_entry_put_back", queue=self._keys.queue, entry=entry.name, to=entry.queue, error=str(error))
        self.later.append(entry.name)

    def walk(self, entry: Entry) -> Walk[None]:
        """Take the steps of a walk. The script strikes it off when it is over."""
        try:
            for _ in range(STEPS):
                walked: Walked = yield self._here(lambda call: flow_walk(self._keys, call, entry=entry.name))
                self._did.add(walked)
                if not walked.more:
                    self._did.entries += 1
                    return
        except EchoMQError as error:
            self.put_back(entry, error)

    def add(self, entry: Entry, away: dict[str, EchoMQError]) -> Walk[None]:
        """Add a child, or a follow-up, and what is below it, in its queue."""
        queue = entry.queue or self._keys.queue
        if queue in away:
            self.put_back(entry, away[queue])
            return
        there = attrs.evolve(self._keys, queue=queue)
        try:
            yield At(
                queue,
                Once("flow_add", lambda call: flow_receive(there, call, entry=entry.name, nodes=entry.words[0])),
            )
        except EchoMQError as error:
            if _is_for_ever(error):
                yield from self.refused(entry, error)
            else:
                away[queue] = error
                self.put_back(entry, error)
        else:
            self.reached.add(queue)
            self.done.append(entry.name)

    def refused(self, entry: Entry, error: EchoMQError) -> Walk[None]:
        """No other try will add it: its parent learns that it is lost, unless it is there."""
        try:
            above, name = (word.decode("utf-8", "replace") for word in unpack_words(entry.words[0])[:2])
        except ValueError as torn:
            self.tear(entry, torn)
            return
        parent, child, reason = above.partition(" ")[0], entry.name.partition(":")[2], str(error)
        if parent and isinstance(error, JobStateError):
            reason = "its id is another job's"
            # Perhaps it is itself that job: it was added so long ago that nothing else says so.
            rows: list[JobInFull | None] = yield At(entry.queue or self._keys.queue, Rows([child]))
            tie = None if rows[0] is None else rows[0].record.parent
            if tie is not None and (tie.id, tie.name) == (parent, name):
                self.done.append(entry.name)
                return
        _log.error("flow_job_refused", queue=entry.queue, entry=entry.name, error=str(error))
        if parent:
            yield from self.lose(parent, child, name, f"it could not be added: {reason}")
        self.done.append(entry.name)

    def lose(self, parent: str, child: str, name: str, reason: str) -> Walk[None]:
        """Tell a parent of this queue that a child is lost."""
        outcome = Outcome("lost", time.time_ns() // 1_000_000, 0, reason[:512], None)
        tell = Delivery("tell", parent, child, name, outcome.spell())
        outcomes: Outcomes = yield At(self._keys.queue, Each("flow_deliver", [tell]))
        if isinstance(outcomes[0], EchoMQError):
            raise outcomes[0]
        self._did.lost += outcomes[0].code == "ok"

    def tell(self, queue: str, items: list[tuple[Entry, Delivery]]) -> Walk[None]:
        """Hand news to a queue."""
        outcomes: Outcomes = yield At(queue, Each("flow_deliver", [item for _, item in items]))
        for (entry, item), outcome in zip(items, outcomes, strict=True):
            error = outcome.error(id=item.id, queue=queue) if isinstance(outcome, Verdict) else outcome
            if error is not None:
                self.put_back(entry, error)
                continue
            if isinstance(outcome, Verdict):
                self._did.cancelled += outcome.code == "cancelled"
                self._did.asked += outcome.code == "asked"
                if outcome.code == "lost":
                    name = item.body.decode("utf-8", "replace")
                    yield from self.lose(item.other, item.id, name, "nobody knows it")
            self.reached.add(queue)
            self.done.append(entry.name)


def _is_for_ever(error: EchoMQError) -> bool:
    """Tell a refusal of the jobs themselves from one by a queue that is closed, full or away."""
    return isinstance(error, InvalidJobError) or (
        isinstance(error, JobStateError) and error.actual.startswith("collision")
    )
