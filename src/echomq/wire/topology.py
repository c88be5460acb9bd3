"""Which server holds a queue: the seam behind which Sentinel and Cluster will stand.

A queue lives in one slot, so routing is per queue and never per key.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Protocol, final

import attrs
from redis.crc import key_slot

from echomq.protocol.keys import QueueKeys
from echomq.wire.urls import Address

ANY_NODE = ""
"""The node of commands that belong to no queue."""


class Topology(Protocol):
    """Names the nodes, and says where each one is."""

    def node(self, keys: QueueKeys | None) -> str:
        """Answer the name of the node that holds a queue; None asks for any node."""

    def address(self, node: str) -> Address:
        """Answer where a node is now; asked anew at each try to connect."""


@final
@attrs.frozen
class SingleServer:
    """One server holds everything."""

    server: Address
    """Where it is."""

    def node(self, keys: QueueKeys | None) -> str:
        """Answer the only node."""
        return ANY_NODE

    def address(self, node: str) -> Address:
        """Answer where it is."""
        return self.server


@lru_cache(maxsize=1024)
def slot(keys: QueueKeys) -> int:
    """Answer the cluster slot of a queue, 0 to 16383."""
    return int(key_slot(keys.meta.encode()))
