"""Commands as bytes: whole ones, and the parts that group commit joins.

Everything is packed by hiredis, but for one thing that a bulk producer makes sixty thousand of a second: a job made by a
stamp. What it shares with others is packed once, and the rest is put in between.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import hiredis

from echomq.protocol.payloads import PIECE, payload_fields
from echomq.protocol.stamps import JobStamp, StampedJob
from echomq.transitions.base import Item, spell


def pack(args: tuple[Any, ...]) -> bytes:
    """Write a command in the server's protocol.

    The packer takes exact types only, and an int of more than 4,300 digits crashes the process. A look at each argument
    would cost more than the packing, so that no such value comes here is the duty of whoever makes a transition (see
    `transitions.base`).

    Raises:
        TypeError: An argument is neither bytes, str, int nor float.
    """
    packed: bytes = hiredis.pack_command(args)
    return packed


def pack_part(args: tuple[Any, ...]) -> bytes:
    """Write a part of a command: its arguments, without the count that begins the whole.

    Raises:
        TypeError: As `pack`.
    """
    packed = pack(args)
    return packed[packed.index(b"\n") + 1 :]


def join_parts(arguments: int, parts: Iterable[bytes]) -> bytes:
    """Make a command of so many arguments from its parts."""
    return b"".join((b"*%d\r\n" % arguments, *parts))


def pack_item(item: Item | str) -> tuple[int, bytes]:
    """Write an item of a call: how many arguments it is, and these.

    Raises:
        TypeError: As `pack`.
    """
    if type(item) is StampedJob:
        return _pack_stamped(item)
    arguments = spell(item)
    return len(arguments), pack_part(arguments)


_ONE: Final = 2
_TWO: Final = 4
"""Words of a payload in one piece, and in two: its fields' names and values."""


def _pack_stamped(job: StampedJob) -> tuple[int, bytes]:
    """Write what `pack_part(job.arguments())` would, in a third of the time for a payload of one or two pieces."""
    payload = job.payload
    size = len(payload)
    if size <= PIECE:
        words, fields = _ONE, b"$7\r\npayload\r\n$%d\r\n%b\r\n" % (size, payload)
    elif size <= 2 * PIECE:
        fields = b"$7\r\npayload\r\n$%d\r\n%b\r\n$9\r\npayload.1\r\n$%d\r\n%b\r\n" % (
            PIECE, payload[:PIECE], size - PIECE, payload[PIECE:],
        )  # fmt: skip
        words = _TWO
    else:
        cut = payload_fields(payload)
        words, fields = len(cut), pack_part(cut)
    shared = job.stamp.packed.get(words)
    arguments, head, tail = shared if shared is not None else _pack_shared(job.stamp, words)
    return arguments, b"$14\r\n%b\r\n%b%b%b" % (job.id.encode(), head, fields, tail)


def _pack_shared(stamp: JobStamp, words: int) -> tuple[int, bytes, bytes]:
    """Write what a stamp's jobs share, for payloads of so many words; once."""
    head = (*stamp.head, stamp.count + words // 2)
    shared = (1 + len(head) + words + len(stamp.tail), pack_part(head), pack_part(stamp.tail))
    stamp.packed[words] = shared
    return shared
