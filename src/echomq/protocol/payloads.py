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
_FURTHER_KEYS: Final = PIECE_KEYS[1:]


def payload_fields(payload: bytes) -> tuple[str | bytes, ...]:
    """Cut a payload into row fields: alternating names and values.

    Args:
        payload: Any bytes; empty ones make one empty field.
    """
    size = len(payload)
    if size <= PIECE or size > PIECE * PIECES:
        return ("payload", payload)
    if size <= 2 * PIECE:  # most payloads that are cut at all; without a loop it takes half the time
        return ("payload", payload[:PIECE], "payload.1", payload[PIECE:])
    fields: list[str | bytes] = []
    for index in range(0, size, PIECE):
        fields += (_PIECE_NAMES[index // PIECE], payload[index : index + PIECE])
    return tuple(fields)


def join_payload(row: Mapping[bytes, bytes]) -> bytes:
    """Join the pieces that `payload_fields` cut; a row without a payload has an empty one.

    Raises:
        DecodeError: A piece is short or missing before another.
    """
    payload = last = row.get(b"payload", b"")
    for name in _FURTHER_KEYS:
        piece = row.get(name, b"")
        if piece:
            if len(last) != PIECE:
                raise DecodeError(f"a piece is short or missing before {name.decode()}", "payload")
            payload += piece
        last = piece
    return payload
