"""The wire: the only package that knows sockets and the driver (Runtime, sections 1 and 3).

`open_wire` opens a client that runs transitions; everything else here serves it.
"""

from __future__ import annotations

from echomq.wire.client import WireClient, open_wire
from echomq.wire.group import Group, Outcome
from echomq.wire.park import Park
from echomq.wire.statistics import Statistics
from echomq.wire.subscription import Message, Reconnected, Subscription

__all__ = [
    "Group",
    "Message",
    "Outcome",
    "Park",
    "Reconnected",
    "Statistics",
    "Subscription",
    "WireClient",
    "open_wire",
]
