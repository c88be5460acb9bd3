"""The synchronous client, for Django, Flask, scripts and the interactive prompt: redis-py, the same transitions.

With a task of an app, whose handler some worker runs::

    with echomq.sync.Client("valkey://localhost:6379") as client:
        handle = client.enqueue(thumbnail.call(Path("a.png"), size=64))
        nbytes = handle.result(timeout=10)
"""

from __future__ import annotations

from echomq.sync.client import Client
from echomq.sync.events import EventStream
from echomq.sync.flows import FlowHandle, GroupHandle
from echomq.sync.handles import JobHandle
from echomq.sync.lanes import Lane
from echomq.sync.queue import Queue

__all__ = ["Client", "EventStream", "FlowHandle", "GroupHandle", "JobHandle", "Lane", "Queue"]
