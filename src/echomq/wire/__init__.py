"""The wire: the only package that knows sockets and the driver (Runtime, sections 1 and 3).

`open_wire` opens a client that runs transitions; everything else here serves it.
"""

from __future__ import annotations

from echomq.wire.client import Statistics, WireClient, open_wire
from echomq.wire.group import Group, Outcome

__all__ = ["Group", "Outcome", "Statistics", "WireClient", "open_wire"]
