"""How long a failed job waits for its next attempt: policies, each a frozen value or any callable like one.

A policy is called in the worker, and what it answers is sent as it stands. It draws jitter from the generator that it
is given, so that a test that seeds one knows what comes.
"""

from __future__ import annotations

from typing import Final

from echomq.backoff.by_error import ByError
from echomq.backoff.delays import Decorrelated, Exponential, Fixed, Linear, Sequence
from echomq.backoff.policy import NEVER, Backoff
from echomq.backoff.retry_after import RetryAfter

__all__ = [
    "DEFAULT_BACKOFF",
    "NEVER",
    "Backoff",
    "ByError",
    "Decorrelated",
    "Exponential",
    "Fixed",
    "Linear",
    "RetryAfter",
    "Sequence",
]

DEFAULT_BACKOFF: Final = Exponential()
"""What tasks use that name none: 1 s to 5 minutes, full jitter."""
