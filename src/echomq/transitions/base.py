"""What a transition is, and what the verbs share.

A call is `EVALSHA <sha> 2 <meta> <void> <client> <number> <arguments>`. Two keys are always named: `meta`, which is
there, and `void`, which never is. While a slot of a cluster moves key by key, one present and one absent key make the
server refuse the whole call before its first line (Protocol, section 4, rule 11). All other keys are derived.

An argument is an exact `int` of at most 10^14, `bytes`, or text that UTF-8 can hold. Nobody looks at them again: a huge
int ends the process. So a value of a user's is checked, and made an exact one, where it comes in: by options, checks of
methods, and what a handler notes.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar, final

import attrs

from echomq.protocol.refusals import Verdict
from echomq.transitions.scripts import load

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from echomq.protocol.keys import QueueKeys
    from echomq.transitions.scripts import Script

T_co = TypeVar("T_co", covariant=True)

MAX_ITEMS: Final = 128
"""Items of one call at most. A script takes twice as many, but must not hold the server for long: 256 new jobs took it
up to 8 ms; half as many a call cost a bulk producer a twentieth of its rate."""
MAX_ROUND: Final = 128
"""Jobs that a round handles at most: with a million of them in the queue, 256 took the server up to 7 ms."""
MAX_CALL_BYTES: Final = 256 << 10
"""Bytes of one call's items at most; one larger item goes alone."""

Argument = bytes | str | int
"""An argument of a call."""


@final
@attrs.frozen
class Call:
    """Who calls, and which of its calls this is (Protocol, section 4, rule 6)."""

    client: str
    """The client's tag: 11 base62 characters."""
    number: int = 0
    """Counts the calls of one verb on one queue from 1; 0 means that the call is not remembered."""


@final
@attrs.frozen
class Transition(Generic[T_co]):
    """One call of one script: what it sends and how its reply reads. A value: running it is somebody else's part."""

    verb: str
    """The verb, which names the script."""
    keys: QueueKeys
    """The queue; its slot routes the call."""
    argv: tuple[Argument, ...]
    """Every argument, the client's tag and the call's number first."""
    read: Callable[[Any], T_co]
    """Reads the raw reply (bytes, int, list). A refusal of the whole call never comes here: it is an error reply."""
    remembered: bool = False
    """Whether a resend is answered from memory; if not, running it twice does no harm."""

    @property
    def script(self) -> Script:
        """The script to run."""
        return load(self.verb)

    def command(self) -> tuple[Argument, ...]:
        """Spell the command, ready to be packed."""
        return ("EVALSHA", load(self.verb).sha, 2, self.keys.meta, self.keys.void, *self.argv)


class Item(Protocol):
    """What a multi-item call carries: a new job, a verdict, ... An id stands for itself."""

    def arguments(self) -> tuple[Argument, ...]:
        """Spell it in a call."""


class Multi(Protocol):
    """A verb whose calls carry many items and answer a verdict for each, in order."""

    def __call__(self, keys: QueueKeys, call: Call, items: Sequence[Any], /) -> Transition[list[Verdict]]:
        """Make the call for the items, `MAX_ITEMS` and `MAX_CALL_BYTES` at most."""


def spell(item: Item | str) -> tuple[Argument, ...]:
    """Spell an item's arguments."""
    return (item,) if isinstance(item, str) else item.arguments()


_VERDICTS: Final = {word: Verdict(word.decode()) for word in (b"ok", b"admitted", b"dead", b"EMQGONE")}


def read_verdicts(reply: Any) -> list[Verdict]:
    """Read a reply that is a verdict an item."""
    known = _VERDICTS
    return [known.get(text) or Verdict.parse(text) for text in reply]


def multi(
    verb: str, keys: QueueKeys, call: Call, items: Sequence[Item | str], *, remembered: bool = True
) -> Transition[list[Verdict]]:
    """Make a multi-item call: its head, then the arguments of each item."""
    head = (call.client, call.number if remembered else 0)
    argv = (*head, *chain.from_iterable(map(spell, items)))
    return Transition(verb, keys, argv, read_verdicts, remembered and call.number > 0)
