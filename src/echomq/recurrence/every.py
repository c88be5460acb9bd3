"""Slots at a fixed interval, in UTC."""

from __future__ import annotations

from typing import Final, final

import attrs

from echomq.protocol._convert import shown
from echomq.protocol.times import MAX_AT_MS, to_seconds

MIN_INTERVAL_MS: Final = 100
"""The shortest interval, ms: each slot is a call of some worker's, and a job."""
MAX_INTERVAL_MS: Final = 10 * 366 * 86_400_000
"""The longest interval, ms: ten years."""


@final
@attrs.frozen
class Every:
    """Slots at multiples of an interval from an anchor, both ways. Daylight saving is nothing to it.

    Raises:
        ValueError: The interval is out of range.
    """

    interval_ms: int = attrs.field()
    """Between two slots, ms."""
    anchor_ms: int = 0
    """One of its slots, Unix ms."""

    @interval_ms.validator
    def _check(self, _: attrs.Attribute[int], value: int) -> None:
        if type(value) is not int or not MIN_INTERVAL_MS <= value <= MAX_INTERVAL_MS:
            raise ValueError(f"an interval is 0.1 seconds to ten years, not {shown(value)} ms")

    def __str__(self) -> str:
        return f"every {to_seconds(self.interval_ms):g} s"

    def next(self, after_ms: int) -> int | None:
        """Answer the first slot after a moment, both in Unix ms."""
        found = self.anchor_ms + ((after_ms - self.anchor_ms) // self.interval_ms + 1) * self.interval_ms
        return found if found <= MAX_AT_MS else None

    def previous(self, at_ms: int) -> int | None:
        """Answer the last slot that is not after a moment, both in Unix ms."""
        found = self.anchor_ms + (at_ms - self.anchor_ms) // self.interval_ms * self.interval_ms
        return found if found >= 0 else None
