"""Identifiers: 14 bytes whose byte order is the order of minting (Protocol, section 3).

Theory of operation
    An id is a three-letter kind and 11 base62 digits of a 63-bit number: 41 bits of milliseconds since 2024, 10 bits
    of node, 12 bits of sequence. The digits ascend as bytes do and are padded to one length, so comparing ids as bytes
    compares their numbers, and a sorted set whose members share one score is ordered by minting without a second index.

    A mint hands out max(now, last + 1): it never waits for the clock, so a burst beyond a millisecond's sequence, or a
    clock that steps back, borrows from the future. Each millisecond's sequence starts at a random offset below 2,048:
    two processes that drew one node number then rarely meet, and at least 2,048 ids remain in the millisecond.

If you change this
    The lock is re-entrant and the last step compares before it stores. A signal handler or a finaliser that enqueues
    may interrupt a mint in its own thread; a plain lock would then wait for itself for ever. A child process starts
    with fresh locks, because a lock that another thread held at the fork stays held in the child.
"""

from __future__ import annotations

import os
import re
import secrets
import threading
import time
import weakref
from typing import TYPE_CHECKING, Final, final

import attrs

from echomq.protocol._convert import shown

if TYPE_CHECKING:
    from collections.abc import Callable

EPOCH_MS: Final = 1_704_067_200_000
"""2024-01-01T00:00:00Z in Unix milliseconds: the zero of every id."""
MAX_VALUE: Final = (1 << 63) - 1
"""The largest number an id can carry."""
ID_LENGTH: Final = 14
"""Bytes of an id: three of kind, eleven of digits."""

_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_WIDTH: Final = 11
_PAIRS: Final = tuple(high + low for high in _DIGITS for low in _DIGITS)  # 3,844: encoding goes two digits at a time
_BASE2: Final = len(_PAIRS)
_VALUES: Final = {digit: value for value, digit in enumerate(_DIGITS)}
_SEQ_BITS: Final = 12
_NODE_BITS: Final = 10
_MAX_SEQ: Final = (1 << _SEQ_BITS) - 1
_MAX_NODE: Final = (1 << _NODE_BITS) - 1
_OFFSET_BITS: Final = 11
_ID: Final = re.compile(r"[A-Z]{3}[0-9A-Za-z]{11}")
_MAX_DIGITS: Final = "AzL8n0Y58m7"
_TAG_LENGTH: Final = 11


def encode(value: int) -> str:
    """Write a number as 11 base62 digits.

    Args:
        value: 0 to 2^63-1.

    Raises:
        ValueError: The number is out of range.
    """
    if not 0 <= value <= MAX_VALUE:
        raise ValueError(f"an id's number lies in 0..2^63-1, not {value!r}")
    rest, e = divmod(value, _BASE2)
    rest, d = divmod(rest, _BASE2)
    rest, c = divmod(rest, _BASE2)
    rest, b = divmod(rest, _BASE2)
    top, a = divmod(rest, _BASE2)
    return _DIGITS[top] + _PAIRS[a] + _PAIRS[b] + _PAIRS[c] + _PAIRS[d] + _PAIRS[e]


def decode(digits: str) -> int:
    """Read 11 base62 digits.

    Raises:
        ValueError: Not 11 digits of `0-9A-Za-z`, or above `AzL8n0Y58m7` (2^63-1).
    """
    if len(digits) != _WIDTH or digits > _MAX_DIGITS:
        raise ValueError(f"an id's digits are {_WIDTH} of 0-9A-Za-z, at most {_MAX_DIGITS!r}, not {digits!r}")
    value = 0
    try:
        for digit in digits:
            value = value * 62 + _VALUES[digit]
    except KeyError:
        raise ValueError(f"an id's digits are 0-9A-Za-z, not {digits!r}") from None
    return value


@final
@attrs.frozen(kw_only=True)
class ParsedId:
    """What an id says."""

    kind: str
    """`JOB` or `EVT`, or another three letters."""
    unix_ms: int
    """When it was minted, by its producer's clock, in Unix milliseconds."""
    node: int
    """The node number that its process drew, 0 to 1023."""
    seq: int
    """Its place in the millisecond, 0 to 4095."""


def check_id(id: str) -> str:
    """Answer the id itself if it is well formed.

    Raises:
        TypeError: Not a string.
        ValueError: Not three capital letters and 11 base62 digits of at most 2^63-1.
    """
    if not isinstance(id, str):
        raise TypeError(f"an id is a string, not {shown(id)}")
    if _ID.fullmatch(id) is None or id[3:] > _MAX_DIGITS:
        raise ValueError(
            f"an id is three capital letters and 11 digits of 0-9A-Za-z, at most {_MAX_DIGITS!r}, not {shown(id)}"
        )
    return id


def parse(id: str) -> ParsedId:
    """Take an id apart.

    Raises:
        ValueError: The id is not well formed.
    """
    value = decode(check_id(id)[3:])
    return ParsedId(
        kind=id[:3],
        unix_ms=(value >> (_NODE_BITS + _SEQ_BITS)) + EPOCH_MS,
        node=(value >> _SEQ_BITS) & _MAX_NODE,
        seq=value & _MAX_SEQ,
    )


@final
class IdMint:
    """Makes ids that never repeat and always grow, for one process; safe under threads, signals and forks."""

    __slots__ = ("__weakref__", "_clock", "_high", "_lock", "_ms", "_node", "_prefix", "_random", "_seq")

    def __init__(
        self, *, clock: Callable[[], int] = time.time_ns, random_bits: Callable[[int], int] = secrets.randbits
    ) -> None:
        """Prepare a mint; the node is drawn at the first id.

        Args:
            clock: Unix time in nanoseconds.
            random_bits: A random number of that many bits.
        """
        self._clock = clock
        self._random = random_bits
        self._redraw()
        _mints.add(self)

    def _redraw(self) -> None:
        """Forget node and place, as a new process must; it may run while a lock of the parent is still held."""
        self._lock = threading.RLock()
        self._node = -1
        self._ms = -1  # with a full sequence: the first id takes a new millisecond even before 2024
        self._seq = _MAX_SEQ
        self._high = -1
        self._prefix = ""

    def mint(self, kind: str = "JOB") -> str:
        """Make the next id: greater than every id this mint made before. Never waits.

        Args:
            kind: Three capital ASCII letters.

        Raises:
            ValueError: The kind is not three capital letters, or the clock stands outside 1970 to 2093.
        """
        if kind not in _kinds:
            _learn(kind)
        with self._lock:
            if self._node < 0:
                node = self._random(_NODE_BITS)
                if self._node < 0:  # still: an interrupting mint may have drawn it
                    self._node = node
            while True:
                last_ms, last_seq = self._ms, self._seq
                ms = self._clock() // 1_000_000 - EPOCH_MS
                if ms <= last_ms or ms < 0:
                    ms, seq = last_ms, last_seq + 1
                    if seq > _MAX_SEQ:
                        ms, seq = last_ms + 1, self._random(_OFFSET_BITS)
                else:
                    seq = self._random(_OFFSET_BITS)
                value = (ms << 22) | (self._node << 12) | seq
                high, low = divmod(value, _BASE2)
                # Nine of eleven digits change once or twice a millisecond.
                prefix = self._prefix if high == self._high else encode(value)[:-2]
                if self._seq != last_seq or self._ms != last_ms:
                    continue  # a signal handler or finaliser minted in the middle of this mint
                self._ms, self._seq = ms, seq
                self._high, self._prefix = high, prefix
                return kind + prefix + _PAIRS[low]


def new_tag() -> str:
    """Draw a fresh random tag: 11 base62 characters, 65 bits."""
    return "".join([secrets.choice(_DIGITS) for _ in range(_TAG_LENGTH)])


def client_tag() -> str:
    """Draw the tag of a new client (rule 6 of section 4): each call answers another one."""
    return new_tag()


def producer_tag() -> str:
    """Answer this process's tag, the `by` of the rows it writes; drawn at first use and anew after a fork."""
    tag = _producer.tag
    if not tag:
        with _producer.lock:
            tag = _producer.tag = _producer.tag or new_tag()
    return tag


class _Producer:
    """The process's tag and the lock under which it is drawn once."""

    __slots__ = ("lock", "tag")

    def __init__(self) -> None:
        self.redraw()

    def redraw(self) -> None:
        self.lock = threading.RLock()
        self.tag = ""


def _learn(kind: str) -> None:
    if not (len(kind) == 3 and kind.isascii() and kind.isalpha() and kind.isupper()):  # noqa: PLR2004
        raise ValueError(f"an id's kind is three capital letters A-Z, not {kind!r}")
    _kinds.add(kind)


def _after_fork_in_child() -> None:
    _producer.redraw()
    for each in list(_mints):
        each._redraw()  # noqa: SLF001 - same module


_kinds: Final = {"JOB", "EVT"}
_mints: Final[weakref.WeakSet[IdMint]] = weakref.WeakSet()
_producer: Final = _Producer()
mint: Final = IdMint().mint
"""Make the next id of this process: `mint()` a job's, `mint("EVT")` an event's. See `IdMint.mint`."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
