"""Payloads in pieces."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from echomq.errors import DecodeError
from echomq.protocol.payloads import PIECE, PIECES, join_payload, payload_fields


def as_row(payload: bytes) -> dict[bytes, bytes]:
    """Spell the fields as the server has them."""
    fields = payload_fields(payload)
    flat = [each if isinstance(each, bytes) else each.encode() for each in fields]
    return dict(zip(flat[::2], flat[1::2], strict=True))


@given(st.binary(max_size=300))
@example(b"")
@example(bytes(PIECE))
@example(bytes(PIECE + 1))
@example(bytes(PIECE * PIECES))
@example(bytes(PIECE * PIECES + 1))
def test_payload_round_trips(payload: bytes) -> None:
    """Whatever the bytes and their number, they come back."""
    assert join_payload(as_row(payload)) == payload


@given(st.binary(max_size=300))
def test_payload_pieces_stay_compact(payload: bytes) -> None:
    """Up to 256 bytes no piece is longer than 64, and there are at most four; a larger one is a single field."""
    row = as_row(payload)
    if len(payload) <= PIECE * PIECES:
        assert max(map(len, row.values())) <= PIECE
        assert len(row) == max(1, -(-len(payload) // PIECE))
    else:
        assert row == {b"payload": payload}


def test_payload_absent_is_empty() -> None:
    """A row without a payload field has an empty payload."""
    assert join_payload({b"task": b"t"}) == b""


@pytest.mark.parametrize(
    "row",
    [
        {b"payload": bytes(64), b"payload.1": b"x", b"payload.2": b"y"},
        {b"payload": bytes(64), b"payload.2": b"y"},
        {b"payload": b"x", b"payload.1": b"y"},
        {b"payload.1": b"y"},
        {b"payload": bytes(300), b"payload.1": b"y"},
    ],
)
def test_payload_torn_is_refused(row: dict[bytes, bytes]) -> None:
    """Pieces that cannot be of one payload are an error, not a shorter payload."""
    with pytest.raises(DecodeError, match=r"payload\.[12]"):
        join_payload(row)
