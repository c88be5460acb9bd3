"""The outbox: what one queue has to tell another, or itself in bounded steps (Protocol, section 7).

Theory of operation
    Whoever takes entries has them for half a minute; then they are there again. Each kind may be delivered any number
    of times: an added child leaves a marker, an outcome told again changes nothing, and so with the rest. An entry is
    struck off only if it still is as it was taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, final

import attrs

from echomq.errors import DecodeError
from echomq.protocol.keys import check_queue_name
from echomq.protocol.words import unpack_words
from echomq.transitions.base import MAX_ROUND, Argument, Call, Transition, multi

if TYPE_CHECKING:
    from collections.abc import Sequence

    from echomq.protocol.keys import QueueKeys
    from echomq.protocol.refusals import Verdict

TAKEN_MS = 30_000
"""For how long whoever takes an entry has it, ms."""

DeliveryKind = Literal["tell", "cancel", "ask", "redrive"]


@final
@attrs.frozen
class Entry:
    """An entry of a queue's outbox."""

    name: str
    """Its name in the outbox, `<kind>:<id>`."""
    kind: str
    """add (a child, or a follow-up), tell (an outcome), cancel, ask, redrive: for another queue (or, for `tell`, the same);
    sweep, hold, revive, reconcile: steps in the queue itself, taken by `flow_walk`. torn: nobody can read it."""
    queue: str
    """The queue it is for; "" is the outbox's own."""
    words: tuple[bytes, ...]
    """What it says, by its kind."""

    @property
    def is_walk(self) -> bool:
        """Whether it is a step in the queue itself."""
        return self.kind in ("sweep", "hold", "revive", "reconcile") and len(self.words) > 1

    @classmethod
    def read(cls, name: bytes, content: bytes) -> Entry:
        """Read an entry from its content.

        Raises:
            DecodeError: It is torn.
        """
        try:
            kind, queue, *words = unpack_words(content)
            return cls(name.decode(), kind.decode(), check_queue_name(queue.decode()) if queue else "", tuple(words))
        except ValueError as error:  # too few words, no text, no queue's name
            raise DecodeError(f"expected what {name!r} says in the outbox, got {content[:80]!r}: {error}") from None


@final
@attrs.frozen
class Taken:
    """What a `flow_take` answered."""

    next_ms: int
    """How long until the next entry is due, ms; `cap_ms` when none is."""
    till: str
    """The score the entries have while they are taken, to be presented with `flow_done`."""
    entries: tuple[Entry, ...]
    """The entries."""


def flow_take(keys: QueueKeys, call: Call, *, bound: int = MAX_ROUND, cap_ms: int = 60_000) -> Transition[Taken]:
    """Take entries of the outbox that are due, for half a minute. Parents that have waited for a minute get one, too.

    Args:
        keys: The queue.
        call: Who calls.
        bound: How many at most, 1 to 256; their contents together stay below 1 MiB, but for the first.
        cap_ms: The longest `next_ms` worth answering, ms.
    """

    def entry(name: bytes, content: bytes) -> Entry:
        try:
            return Entry.read(name, content)
        except DecodeError:  # which keeps no other from being delivered
            return Entry(name.decode("utf-8", "replace"), "torn", "", (content,))

    def read(reply: Any) -> Taken:
        flat = reply[2:]
        entries = tuple(entry(flat[at], flat[at + 1]) for at in range(0, len(flat), 2))
        return Taken(int(reply[0]), reply[1].decode(), entries)

    return Transition("flow_take", keys, (call.client, 0, bound, cap_ms), read)


@final
@attrs.frozen
class Delivery:
    """One item of `flow_deliver`: an entry of another queue's outbox, or of this one's."""

    kind: DeliveryKind
    """What it is."""
    id: str
    """tell: the parent; else the child."""
    other: str
    """tell: the child; else the parent."""
    name: str = ""
    """tell: the child's name; cancel: `dead` if the parent is dead, so that the child can be redriven with it, or `ended`;
    redrive: the token of the attempt at whose end it died."""
    body: bytes = b""
    """tell: the outcome; cancel: the reason."""

    @classmethod
    def of(cls, entry: Entry) -> Delivery:
        """Make the item of an entry.

        Raises:
            DecodeError: The entry is torn.
        """
        if entry.kind not in ("tell", "cancel", "ask", "redrive") or len(entry.words) != 4:  # noqa: PLR2004
            raise DecodeError(f"expected a delivery in the outbox, got {entry.name!r} with {len(entry.words)} words")
        id, other, name, body = entry.words
        try:
            return cls(entry.kind, id.decode(), other.decode(), name.decode(), body)  # type: ignore[arg-type]  # looked at
        except UnicodeDecodeError as error:
            raise DecodeError(f"expected text in {entry.name!r}, got {error.object[:80]!r}") from None

    def arguments(self) -> tuple[Argument, ...]:
        """Spell it in a call."""
        return (self.kind, self.id, self.other, self.name, self.body)


def flow_deliver(keys: QueueKeys, call: Call, items: Sequence[Delivery], /) -> Transition[list[Verdict]]:
    """Hand entries to the queue they are for.

    Verdicts: `ok`; `again` (it was known); `gone` (nobody waits for it: the parent is gone, or knows no such child);
    `asked TOKEN` and `cancelled` (cancel); `alive` (ask, redrive: its ending will be told); `lost` (ask, redrive: nobody
    knows the child; its parent must be told so).
    """
    return multi("flow_deliver", keys, call, items, remembered=False)


def flow_done(
    keys: QueueKeys, call: Call, *, till: str, done: Sequence[str], later: Sequence[str] = (), delay_ms: int = 0
) -> Transition[int]:
    """Strike entries off the outbox, or put them back; those that are no longer as they were taken stay as they are.

    Args:
        keys: The queue whose outbox it is.
        call: Who calls.
        till: What `flow_take` answered with them.
        done: The names of those that are delivered.
        later: The names of those that could not be.
        delay_ms: How long until these are due again, ms.

    Answers how many were as they were taken.
    """
    argv: tuple[Argument, ...] = (call.client, 0, till, delay_ms, len(done), *done, *later)
    return Transition("flow_done", keys, argv, int)


@final
@attrs.frozen
class Walked:
    """What a step of `flow_walk` did."""

    more: bool
    """Whether there is more to do."""
    cancelled: int
    """Children that were ended."""
    asked: int
    """Children that run, and were asked to stop."""
    sent: int
    """Children in other queues to which word was sent."""
    redriven: int
    """Children that began a new life."""
    lost: int
    """Children that nobody knew."""
    released: int
    """Jobs of a flow added in rounds that may run now; of one that was given up, that are gone."""


def flow_walk(keys: QueueKeys, call: Call, *, entry: str, bound: int = MAX_ROUND) -> Transition[Walked]:
    """Take a step of a walk over a parent's children: sweep, hold, revive, reconcile. Harmless when there is no such entry.

    Args:
        keys: The queue.
        call: Who calls.
        entry: Its name, `<kind>:<id>`.
        bound: How many children at most, 1 to 1,000.
    """

    def read(reply: Any) -> Walked:
        more, *counts = (int(number) for number in reply)
        return Walked(bool(more), *counts)

    return Transition("flow_walk", keys, (call.client, 0, entry, bound), read)
