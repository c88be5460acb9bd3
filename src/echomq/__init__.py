"""echomq: a job queue on Valkey and Redis whose lease is a scope.

What a program needs stands here; what one rarely needs, in the modules named below.
"""

# The layers, from the bottom up; imports only go down (.importlinter holds it).
#
#   errors        every error raised on purpose
#   protocol/     the contract as values: ids, keys, states, rows, verdicts, codec, units of time
#   lua/          the scripts: the only implementation of the contract on the server
#   transitions/  the Python half of each script, same names
#   wire/         the connection: implicit pipelining, group commit, reconnects; knows sockets and the driver
#   recurrence/   when a recurring schedule has its slots: pure
#   client queue lanes limits flows schedules results following events finding sweeps clearing morgue repairs waits workers tasks app
#   batches verdicts backoff job instruments sync/
#                 what an application calls
#   worker/       the runtime: intake, leases, heartbeats, settling, shutdown
#   cli/ demo/    commands
#   embedded conformance/ testing/
#                 beside: a private server; the proof of the contract, for any server; what users' tests need

from __future__ import annotations

from echomq import sync
from echomq._bulk import EnqueueStream
from echomq._options import EnqueueOptions
from echomq.app import App
from echomq.backoff import (
    NEVER,
    Backoff,
    ByError,
    Decorrelated,
    Exponential,
    Fixed,
    Linear,
    RetryAfter,
    Sequence,
)
from echomq.batches import Batch, BatchItem, JobBatch
from echomq.client import Client, open_client
from echomq.errors import (
    ArgumentsError,
    AuthenticationError,
    BusyScriptError,
    DecodeError,
    EchoMQError,
    EncodeError,
    EvictionPolicyError,
    HealthPortError,
    InvalidJobError,
    JobCancelledError,
    JobExpiredError,
    JobFailedError,
    JobNotFoundError,
    JobStateError,
    LeaseLostError,
    LoadingError,
    NoReplicasError,
    NotPersistedError,
    OutOfMemoryError,
    PermissionDeniedError,
    ProcessDiedError,
    ProtocolMismatchError,
    QueueFullError,
    ReadOnlyError,
    ResultNotKeptError,
    ScheduleNotFoundError,
    ServerError,
    TooManyClientsError,
    UnavailableError,
)
from echomq.events import Event, EventStream, Gap
from echomq.finding import JobFilters
from echomq.flow_handles import FlowHandle, Flows, GroupHandle
from echomq.flow_tree import FlowTree, TreeLimits
from echomq.flows import Chain, Child, Flow, FlowLimits, Group, chain, child, flow, group
from echomq.following import Followed, MissedLines, Progress
from echomq.instruments import Instrument
from echomq.job import Job, SyncJob
from echomq.lanes import Lane, LaneInfo
from echomq.limits import QueueSettings, Rate
from echomq.middleware import HandlerCall
from echomq.morgue import DeadJob, Morgue
from echomq.protocol.codec import Codec, JsonCodec
from echomq.protocol.states import State
from echomq.queue import Queue
from echomq.recurrence import Recurrence
from echomq.repairs import RepairReport
from echomq.resources import INJECTED
from echomq.results import JobHandle, Results
from echomq.schedules import ScheduleInfo
from echomq.sweeps import CancelReport
from echomq.tasks import JobCall, Task, TaskCaller
from echomq.transitions import JobInFull
from echomq.verdicts import Discard, RateLimited, Retry, Snooze
from echomq.waits import StateWait, Waits
from echomq.worker.entry import run_worker
from echomq.worker.options import WorkerOptions
from echomq.workers import KnownQueue, RunningJob, WorkerInfo

__all__ = [
    "INJECTED",
    "NEVER",
    "App",
    "ArgumentsError",
    "AuthenticationError",
    "Backoff",
    "Batch",
    "BatchItem",
    "BusyScriptError",
    "ByError",
    "CancelReport",
    "Chain",
    "Child",
    "Client",
    "Codec",
    "DeadJob",
    "DecodeError",
    "Decorrelated",
    "Discard",
    "EchoMQError",
    "EncodeError",
    "EnqueueOptions",
    "EnqueueStream",
    "Event",
    "EventStream",
    "EvictionPolicyError",
    "Exponential",
    "Fixed",
    "Flow",
    "FlowHandle",
    "FlowLimits",
    "FlowTree",
    "Flows",
    "Followed",
    "Gap",
    "Group",
    "GroupHandle",
    "HandlerCall",
    "HealthPortError",
    "Instrument",
    "InvalidJobError",
    "Job",
    "JobBatch",
    "JobCall",
    "JobCancelledError",
    "JobExpiredError",
    "JobFailedError",
    "JobFilters",
    "JobHandle",
    "JobInFull",
    "JobNotFoundError",
    "JobStateError",
    "JsonCodec",
    "KnownQueue",
    "Lane",
    "LaneInfo",
    "LeaseLostError",
    "Linear",
    "LoadingError",
    "MissedLines",
    "Morgue",
    "NoReplicasError",
    "NotPersistedError",
    "OutOfMemoryError",
    "PermissionDeniedError",
    "ProcessDiedError",
    "Progress",
    "ProtocolMismatchError",
    "Queue",
    "QueueFullError",
    "QueueSettings",
    "Rate",
    "RateLimited",
    "ReadOnlyError",
    "Recurrence",
    "RepairReport",
    "ResultNotKeptError",
    "Results",
    "Retry",
    "RetryAfter",
    "RunningJob",
    "ScheduleInfo",
    "ScheduleNotFoundError",
    "Sequence",
    "ServerError",
    "Snooze",
    "State",
    "StateWait",
    "SyncJob",
    "Task",
    "TaskCaller",
    "TooManyClientsError",
    "TreeLimits",
    "UnavailableError",
    "Waits",
    "WorkerInfo",
    "WorkerOptions",
    "chain",
    "child",
    "flow",
    "group",
    "open_client",
    "run_worker",
    "sync",
]
