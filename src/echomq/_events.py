"""What happened in a queue, as values, and the reading of it: no I/O, so that both clients read alike.

Theory of operation
    A reader has a position, the id of the last event that it looked at, and asks for pages behind it. With each page the
    server tells, of the same moment, how many events were ever added and how many of them are kept. So once a reader
    knows how many came before its position (it began at an end of the stream, or has come to one), it knows to the one
    how many were trimmed before it read them. One that began at an id, or a moment, knows only that the oldest event
    kept comes after it: some *may* have been missed, and it says so.

    Ids are made of the server's clock and only grow, so a position is good for as long as the stream lives. A stream
    that has fewer events than were seen, or none as late as the position, or not as many behind the position as were
    added since, is another one: the queue was obliterated, or the server went back to an older state. Then all that is
    there is new. When all that was seen is trimmed, the streams look alike: then it goes by the queue's field `born`,
    which comes with its first setting. A queue without settings has none, and what it has trimmed has no number.

If you change this
    What is told as missed must never be less than what was; a gap that is none costs a reader a look at the queue.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, final

import attrs

from echomq._walks import Ask, Walk
from echomq.protocol._convert import shown
from echomq.protocol.ids import check_id
from echomq.protocol.states import Event as Kind
from echomq.protocol.times import from_unix_ms, unix_ms
from echomq.transitions import EventPage, read_events
from echomq.transitions.read_events import NOW, PAGE, START

if TYPE_CHECKING:
    from echomq.protocol.keys import QueueKeys
    from echomq.transitions import Call, Transition

Since = str | dt.datetime | None
"""From where to read: an event's id, "0", a moment, or None for what happens from now on."""

_ID: Final = re.compile(r"(0|[1-9][0-9]{0,19})-(0|[1-9][0-9]{0,19})")
_MOST: Final = 2**64 - 1
_LAST: Final = (_MOST, _MOST)
_HEAD: Final = frozenset({"event", "job"})


def _frozen(fields: Mapping[str, str]) -> Mapping[str, str]:
    return MappingProxyType(dict(fields))


@final
@attrs.frozen(kw_only=True)
class Event:
    """One thing that happened. The table of kinds in the reference says which fields each has."""

    id: str
    """Its id in the stream: `since=event.id` goes on behind it."""
    kind: str
    """What happened, in one word: `completed`, `failed`, ..."""
    queue: str
    """In which queue."""
    job: str | None
    """To which job; None: it is about the queue, or a schedule."""
    at: dt.datetime
    """When, by the server's clock, to the millisecond."""
    fields: Mapping[str, str] = attrs.field(converter=_frozen, hash=False)
    """What else it says, as it is told; also what this version does not know."""

    @property
    def attempt(self) -> int | None:
        """Which attempt it is about: its number, which is its token."""
        return self._number("token")

    @property
    def failures(self) -> int | None:
        """How often the job has failed in this life."""
        return self._number("failures")

    @property
    def stalls(self) -> int | None:
        """How often its lease has expired in this life."""
        return self._number("stalls")

    @property
    def step(self) -> int | None:
        """The step of a checkpoint."""
        return self._number("step")

    @property
    def due(self) -> dt.datetime | None:
        """Not before which moment it goes on."""
        return self._moment("due") or self._moment("until")

    @property
    def slot(self) -> dt.datetime | None:
        """The slot of the recurring schedule that it is about."""
        return self._moment("slot")

    @property
    def delay(self) -> float | None:
        """In how many seconds, from then, it goes on."""
        due = self.due
        return None if due is None else (due - self.at).total_seconds()

    @property
    def reason(self) -> str | None:
        """Why, for people."""
        return self.fields.get("reason") or None

    @property
    def error(self) -> str | None:
        """The type of the exception that the handler raised."""
        return self.fields.get("error") or None

    @property
    def lane(self) -> str | None:
        """The lane that the job is in now; "" is none."""
        return self.fields.get("lane")

    @property
    def schedule(self) -> str | None:
        """The recurring schedule that made the job, or did not."""
        return self.fields.get("schedule")

    def _number(self, name: str) -> int | None:
        text = self.fields.get(name, "")
        return int(text) if text.isdecimal() and len(text) <= len(str(_MOST)) else None

    def _moment(self, name: str) -> dt.datetime | None:
        ms = self._number(name)
        try:
            return None if not ms else from_unix_ms(ms)
        except OverflowError:
            return None

    @classmethod
    def of(cls, queue: str, id: str, fields: Mapping[str, str]) -> Event:
        """Make it of an entry of the stream."""
        return cls(
            id=id,
            kind=fields.get("event", ""),
            queue=queue,
            job=fields.get("job") or None,
            at=from_unix_ms(_place(id)[0]),
            fields={name: value for name, value in fields.items() if name not in _HEAD},
        )


@final
@attrs.frozen(kw_only=True)
class Gap:
    """Events may be missing here: the stream keeps the latest only, and some were gone before they were read."""

    queue: str
    """In which queue."""
    after: str
    """Behind this position."""
    before: str | None
    """Before this event, the oldest that was kept; None: none was."""
    missed: int | None
    """How many, of any kind and job; None: nobody knows, and it may be none. It is known while a reader lives that began with
    "0" or without `since`, or has once come to the end; not when it has just gone on from an id or a moment, nor in a
    queue that was obliterated meanwhile, or never had a setting."""


@final
class EventReader:
    """Reads a queue's events from a position on, page by page."""

    def __init__(
        self, keys: QueueKeys, *, since: Since, job: str | None = None, kinds: Iterable[str] | None = None
    ) -> None:
        """Check what is asked for.

        Raises:
            TypeError: An argument is of another type.
            ValueError: Neither an id nor a moment, or not a job's id, or there is no such kind; the message shows it.
        """
        self._keys = keys
        self._job = "" if job is None else check_id(job)
        self._kinds = _check_kinds(kinds)
        self.position = _position(since)
        """Up to where it has read."""
        self.behind = True
        """Whether there is more to be read at once."""
        self._until: str | None = None
        self._born = ""
        # How many events of the stream came up to the position, if that is known.
        self._seen: int | None = None
        # Whether the position was one in this stream, and not just a moment.
        self._was_there = not isinstance(since, dt.datetime)

    @property
    def done(self) -> bool:
        """Whether all is read that was there at the first look."""
        return self._until is not None and (not self.behind or _place(self.position) >= _place(self._until))

    def ask(self, call: Call) -> Transition[EventPage]:
        """Ask for the next page."""
        return read_events(self._keys, call, after=self.position, job=self._job, kinds=self._kinds)

    def take(self, page: EventPage) -> list[Event | Gap]:
        """Take it; answers what is new."""
        before, self._born = self._born, page.born
        if self._until is None:
            self._until, before = page.last, page.born
            if self.position == NOW:
                self.position, self._seen, self.behind = page.position, page.added, False
                return []
            if self.position == START:
                self._seen = page.added - page.kept
        if self._is_another(page, before):
            gap = self._gap(page, None)
            self.position, self._seen = START, page.added - page.kept
            self.behind, self._until = page.kept > 0, page.last
            return [gap]
        found: list[Event | Gap] = self._missed(page, before)
        found += [Event.of(self._keys.queue, id, fields) for id, fields in page.entries]
        if page.examined:
            self.position, self._was_there = page.position, True
        self.behind = page.examined >= PAGE
        if not self.behind:
            self._seen = page.added
        elif self._seen is not None:
            self._seen += page.examined
        return found

    def _is_another(self, page: EventPage, born: str) -> bool:
        """Whether the stream is not the one that was read until now."""
        if born and page.born != born and self._seen != 0:
            return True
        if self._was_there and _place(page.last) < _place(self.position):
            return True
        if self._seen is None:
            return False
        if page.added - page.kept >= self._seen:
            return page.added < self._seen
        # What is kept begins among what was seen: then the rest, and only that, comes behind the position.
        if _place(page.first) > _place(self.position):
            return True
        return self._was_there and page.examined < PAGE and self._seen + page.examined != page.added

    def _missed(self, page: EventPage, born: str) -> list[Event | Gap]:
        """Answer the gap between the position and the page, if there is one."""
        trimmed = page.added - page.kept
        if self._seen is not None:
            missed = trimmed - self._seen
            if missed <= 0:
                return []
            known = self._seen == 0 or (born and page.born == born)
            self._seen = trimmed
            return [self._gap(page, missed if known else None)]
        oldest = page.first if page.kept else page.last
        if _place(oldest) <= _place(self.position) or not (trimmed or self._was_there):
            return []
        self._seen = trimmed
        return [self._gap(page, None)]

    def _gap(self, page: EventPage, missed: int | None) -> Gap:
        before = page.first if page.kept else None
        return Gap(queue=self._keys.queue, after=self.position, before=before, missed=missed)


def new_reader(
    keys: QueueKeys, *, since: Since, follow: bool, job: str | None, kinds: Iterable[str] | None
) -> EventReader:
    """Make the reader of an iteration over events.

    Raises:
        TypeError, ValueError: As `EventReader`; or `follow` is no bool, or it would have nothing to read.
    """
    if not isinstance(follow, bool):
        raise TypeError(f"follow is True or False, not {shown(follow)}")
    if since is None and not follow:
        raise ValueError('follow=False ends at once without since: say since="0" for all events that are kept')
    return EventReader(keys, since=since, job=job, kinds=kinds)


def history_walk(keys: QueueKeys, id: str) -> Walk[list[Event]]:
    """Walk over what is kept, and answer what is about one job."""
    reader = EventReader(keys, since="0", job=id)
    found: list[Event] = []
    while not reader.done:
        page = yield Ask(reader.ask)
        found += [event for event in reader.take(page) if isinstance(event, Event)]
    return found


def _place(id: str) -> tuple[int, int]:
    ms, _, number = id.partition("-")
    return int(ms), int(number)


def is_position(text: str) -> bool:
    """Whether it is "0", or an id behind which there may be events."""
    return text == "0" or (_ID.fullmatch(text) is not None and max(_place(text)) <= _MOST and _place(text) != _LAST)


def _position(since: Since) -> str:
    if since is None:
        return NOW
    if isinstance(since, dt.datetime):
        try:
            ms = unix_ms(since)
        except ValueError as error:
            raise ValueError(f"since: {error}") from None
        return f"{ms - 1}-{_MOST}" if ms else START
    if not isinstance(since, str):
        raise TypeError(f'since is an event\'s id, "0", an aware datetime or None, not {shown(since)}')
    if since == "0":
        return START
    if not is_position(since):
        raise ValueError(
            'since is an event\'s id such as "1767225600000-0", "0" for all that are kept, or an aware datetime, '
            f"not {shown(since)}"
        )
    return str.__str__(since)


def _check_kinds(kinds: Iterable[str] | None) -> Collection[str]:
    if kinds is None:
        return ()
    if isinstance(kinds, str) or not isinstance(kinds, Iterable):
        raise TypeError(f"kinds is a list of kinds, such as ['dead', 'failed'], not {shown(kinds)}")
    chosen = list(kinds)
    known = sorted(kind.value for kind in Kind)  # a list, which also says no to what has no hash
    for kind in chosen:
        if kind not in known:
            raise ValueError(f"there is no kind of event {shown(kind)}; there are {', '.join(known)}")
    if not chosen:
        raise ValueError("kinds names none: leave it out for all")
    return [Kind(kind).value for kind in chosen]
