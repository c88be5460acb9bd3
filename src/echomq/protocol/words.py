"""Several words as one argument: each as four bytes of its length, big end first, then its bytes (Protocol, section 7).

The scripts write and read them with `struct`; an outbox entry and the follow-ups of a completion are such words.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from echomq.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Iterable

_LENGTH: Final = struct.Struct(">I")


def pack_words(words: Iterable[bytes | str | int]) -> bytes:
    """Write words as one; an int as its digits, text as UTF-8."""
    parts: list[bytes] = []
    for word in words:
        data = word if isinstance(word, bytes) else str(word).encode()
        parts += (_LENGTH.pack(len(data)), data)
    return b"".join(parts)


def unpack_words(packed: bytes) -> list[bytes]:
    """Read what `pack_words`, or a script, wrote.

    Raises:
        DecodeError: The bytes end in the middle of a word.
    """
    words: list[bytes] = []
    at = 0
    while at < len(packed):
        start = at + _LENGTH.size
        end = start + _LENGTH.unpack_from(packed, at)[0] if start <= len(packed) else len(packed) + 1
        if end > len(packed):
            raise DecodeError(f"expected whole words, got {len(packed)} bytes that end within one")
        words.append(packed[start:end])
        at = end
    return words
