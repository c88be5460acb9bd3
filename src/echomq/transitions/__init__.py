"""The Python half of each verb: pure values that say what a call sends and how its reply reads.

No await, no clock, no driver: the same `Transition` is run by the asynchronous client, the synchronous one, the tests
and the conformance kit. One module a verb, named as its script in `echomq/lua/`.
"""

from __future__ import annotations

from echomq.transitions.age import Head, Heads, age
from echomq.transitions.base import MAX_CALL_BYTES, MAX_ITEMS, MAX_ROUND, Call, Multi, Transition
from echomq.transitions.beat import Pulse, Running, beat
from echomq.transitions.browse import Page, browse
from echomq.transitions.cancel import CancelRequest, cancel
from echomq.transitions.checkpoint import Checkpoint, checkpoint
from echomq.transitions.claim import ClaimReply, claim
from echomq.transitions.complete import Completion, complete
from echomq.transitions.configure import configure
from echomq.transitions.counts import Counts, counts
from echomq.transitions.drain import drain
from echomq.transitions.end import Ending, end
from echomq.transitions.enqueue import enqueue
from echomq.transitions.extend import Renewal, extend
from echomq.transitions.fail import Failure, fail
from echomq.transitions.find import Found, find
from echomq.transitions.flow_add import MAX_NODES, flow_add, flow_receive
from echomq.transitions.log import LogLine, log
from echomq.transitions.nodes import SPAWNER, ForeignNode, LocalNode, Node, pack_nodes
from echomq.transitions.obliterate import Obliteration, obliterate
from echomq.transitions.outbox import (
    Delivery,
    Entry,
    Taken,
    Walked,
    flow_deliver,
    flow_done,
    flow_take,
    flow_walk,
)
from echomq.transitions.pause import pause
from echomq.transitions.progress import Progress, progress
from echomq.transitions.promote import promote
from echomq.transitions.rate_limited import Closing, rate_limited
from echomq.transitions.read_events import EventPage, read_events
from echomq.transitions.read_flow import Child, ChildrenPage, read_flow
from echomq.transitions.read_job import JobInFull, read_job
from echomq.transitions.read_lanes import LanePage, LaneState, read_lanes
from echomq.transitions.read_schedules import SchedulePage, read_schedules
from echomq.transitions.read_settings import Settings, read_settings
from echomq.transitions.read_workers import WorkerPage, read_workers
from echomq.transitions.reap import reap
from echomq.transitions.reassign import Reassignment, reassign
from echomq.transitions.redrive import redrive
from echomq.transitions.release import Release, release
from echomq.transitions.remove import remove
from echomq.transitions.repair import Look, repair
from echomq.transitions.reprioritise import NewPriority, reprioritise
from echomq.transitions.reschedule import NewTime, reschedule
from echomq.transitions.resume import resume
from echomq.transitions.ring import ring
from echomq.transitions.schedule_fire import Firing, schedule_fire
from echomq.transitions.schedule_pause import schedule_pause
from echomq.transitions.schedule_put import PutReply, schedule_put
from echomq.transitions.schedule_remove import schedule_remove
from echomq.transitions.schedules import ScheduleState
from echomq.transitions.scripts import ALL_VERBS, Script, load
from echomq.transitions.set_lane import set_lane
from echomq.transitions.settings import Limits, RateLimit
from echomq.transitions.snooze import Snoozed, snooze
from echomq.transitions.spawn import spawn
from echomq.transitions.suspend import Suspension, suspend
from echomq.transitions.trim import trim
from echomq.transitions.update import NewPayload, update

MULTI: dict[str, Multi] = {
    "enqueue": enqueue,
    "extend": extend,
    "complete": complete,
    "fail": fail,
    "release": release,
    "snooze": snooze,
    "end": end,
    "rate_limited": rate_limited,
    "progress": progress,
    "checkpoint": checkpoint,
    "log": log,
    "cancel": cancel,
    "remove": remove,
    "redrive": redrive,
    "reassign": reassign,
    "reschedule": reschedule,
    "reprioritise": reprioritise,
    "update": update,
    "repair": repair,
    "suspend": suspend,
    "flow_deliver": flow_deliver,
}
"""The verbs whose calls carry many items and answer a verdict for each: those that group commit gathers."""

__all__ = [
    "ALL_VERBS",
    "MAX_CALL_BYTES",
    "MAX_ITEMS",
    "MAX_NODES",
    "MAX_ROUND",
    "MULTI",
    "SPAWNER",
    "Call",
    "CancelRequest",
    "Checkpoint",
    "Child",
    "ChildrenPage",
    "ClaimReply",
    "Closing",
    "Completion",
    "Counts",
    "Delivery",
    "Ending",
    "Entry",
    "EventPage",
    "Failure",
    "Firing",
    "ForeignNode",
    "Found",
    "Head",
    "Heads",
    "JobInFull",
    "LanePage",
    "LaneState",
    "Limits",
    "LocalNode",
    "LogLine",
    "Look",
    "Multi",
    "NewPayload",
    "NewPriority",
    "NewTime",
    "Node",
    "Obliteration",
    "Page",
    "Progress",
    "Pulse",
    "PutReply",
    "RateLimit",
    "Reassignment",
    "Release",
    "Renewal",
    "Running",
    "SchedulePage",
    "ScheduleState",
    "Script",
    "Settings",
    "Snoozed",
    "Suspension",
    "Taken",
    "Transition",
    "Walked",
    "WorkerPage",
    "age",
    "beat",
    "browse",
    "cancel",
    "checkpoint",
    "claim",
    "complete",
    "configure",
    "counts",
    "drain",
    "end",
    "enqueue",
    "extend",
    "fail",
    "find",
    "flow_add",
    "flow_deliver",
    "flow_done",
    "flow_receive",
    "flow_take",
    "flow_walk",
    "load",
    "log",
    "obliterate",
    "pack_nodes",
    "pause",
    "progress",
    "promote",
    "rate_limited",
    "read_events",
    "read_flow",
    "read_job",
    "read_lanes",
    "read_schedules",
    "read_settings",
    "read_workers",
    "reap",
    "reassign",
    "redrive",
    "release",
    "remove",
    "repair",
    "reprioritise",
    "reschedule",
    "resume",
    "ring",
    "schedule_fire",
    "schedule_pause",
    "schedule_put",
    "schedule_remove",
    "set_lane",
    "snooze",
    "spawn",
    "suspend",
    "trim",
    "update",
]
