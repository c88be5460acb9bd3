"""What is checked before a call."""

from __future__ import annotations

import pytest

from echomq._items import MAX_REASON, check_reason
from echomq.finding import find_walk
from echomq.protocol.keys import QueueKeys


def test_reason_is_text_of_some_length() -> None:
    """Up to 1,024 bytes of UTF-8; lone surrogates are not text, and are named."""
    assert check_reason("é" * (MAX_REASON // 2)) == "é" * (MAX_REASON // 2)
    with pytest.raises(ValueError, match="a reason has up to 1024 bytes"):
        check_reason("é" * (MAX_REASON // 2) + "x")
    with pytest.raises(ValueError, match=r"^a reason has lone surrogates, which are not text: 'a.ud800'$"):
        check_reason("a\ud800")


def test_error_filter_is_text() -> None:
    """Of the morgue: lone surrogates are named."""
    with pytest.raises(ValueError, match="error has lone surrogates, which are not text"):
        next(find_walk(QueueKeys(queue="q"), "dead", {"error": "\ud800"}))
