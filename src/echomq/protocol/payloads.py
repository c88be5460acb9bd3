"""A payload in its row: cut into pieces that the server keeps compact (Protocol, section 2).

The server keeps a hash compact only while each value is at most 64 bytes (`hash-max-listpack-value`), so payloads of up
to 256 bytes are written in pieces of 64: a queued job with a small argument then takes 336 instead of 517 bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from echomq.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Mapping

PIECE: Final = 64
"""Bytes of a payload's piece: the server's default `hash-max-listpack-value`."""
PIECES: Final = 4
"""Payloads of up to so many pieces are cut; a larger one spoils compactness anyway and stays whole."""

_PIECE_NAMES: Final = ("payload", *(f"payload.{n}" for n in range(1, PIECES)))
PIECE_KEYS: Final = tuple(name.encode() for name in _PIECE_NAMES)
"""The pieces' row fields, in order."""


def payload_fields(payload: bytes) -> tuple[str | bytes, ...]:
    """Cut a payload into row fields: alternating names and values.

    Args:
        payload: Any bytes; empty ones make one empty field.
    """
    size = len(payload)
    if size <= PIECE or size > PIECE * PIECES:
        return ("payload", payload)
    fields: list[str | bytes] = []
    for index in range(0, size, PIECE):
        fields += (_PIECE_NAMES[index // PIECE], payload[index : index + PIECE])
    return tuple(fields)


def join_payload(row: Mapping[bytes, bytes]) -> bytes:
    """Join the pieces that `payload_fields` cut; a row without a payload has an empty one.

    Raises:
        DecodeError: A piece is short or missing before another.
    """
    first = row.get(b"payload", b"")
    if not any(name in row for name in PIECE_KEYS[1:]):
        return first
    pieces = [first]
    for name in PIECE_KEYS[1:]:
        piece = row.get(name, b"")
        if piece and len(pieces[-1]) != PIECE:
            raise DecodeError(f"a piece is short or missing before {name.decode()}", "payload")
        pieces.append(piece)
    return b"".join(pieces)
