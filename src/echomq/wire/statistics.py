"""What a client's connections have done so far."""

from __future__ import annotations

from typing import final

import attrs


@final
@attrs.frozen(kw_only=True)
class Statistics:
    """What the client's connections have done so far, for people and tests."""

    connections: int
    """Connections that stand now."""
    connects: int
    """Connections made; those beyond the number of purposes are reconnects."""
    sent: int
    """Calls sent; a group call counts once."""
    resent: int
    """Calls sent again after a lost connection."""
    waiting: int
    """Calls not sent yet."""
    unanswered_bytes: int
    """Bytes whose replies have not come."""
