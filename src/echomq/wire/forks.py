"""What a forked child does with the clients it inherited: lets go of their sockets, refuses their use.

A child that spoke on an inherited socket would mix its bytes into the parent's stream, and both would
read each other's replies. The child makes clients of its own, whose tags are drawn anew.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Inherited(Protocol):
    """What is told of a fork."""

    def forked(self) -> None:
        """In the child, before anything else runs: must not fail, log or touch an event loop."""


_living: weakref.WeakSet[Inherited] = weakref.WeakSet()


def watch(client: Inherited) -> None:
    """Tell this client, for as long as it lives, that it was copied into a child."""
    _living.add(client)


def _after_in_child() -> None:
    for client in tuple(_living):
        client.forked()
    _living.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_in_child)
