"""Why a handler is being stopped from outside, and how it ended."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, final

import attrs

if TYPE_CHECKING:
    from echomq.protocol.failures import ErrorRecord


@final
class Reason(StrEnum):
    """Why a handler is being stopped. Each has a verdict of its own."""

    TIMEOUT = "timeout"
    """It ran longer than it may: spends retry budget."""
    CANCELLED = "cancelled"
    """A person asked: the job ends as cancelled."""
    LEASE_LOST = "lease_lost"
    """The job may be somebody else's: nothing is written."""
    SHUTDOWN = "shutdown"
    """The worker stops: the job goes back, spending nothing."""
    PARENT_ENDED = "parent_ended"
    """The job above it in its flow is over: it ends as cancelled."""
    SUSPENDED = "suspended"
    """It waits for its children: the job gives its lease up, spending nothing, and its next attempt finds them."""


PARENTS_WORDS: Final = ("parent ended", "parent dead")
"""What the reason of a cancel request begins with that a parent's end has made, not a person."""


def reason_of_request(reason: str) -> Reason:
    """Tell who asks for a job to be cancelled, by the request's words: a person, or its parent's end."""
    return Reason.PARENT_ENDED if reason.startswith(PARENTS_WORDS) else Reason.CANCELLED


@final
@attrs.frozen
class Returned:
    """The handler returned. That counts, whatever it was asked to do meanwhile."""

    value: Any


@final
@attrs.frozen
class Raised:
    """The handler raised."""

    error: BaseException
    record: ErrorRecord | None = None
    """The error as it was described where it was raised, in another process; None: it was here."""


@final
@attrs.frozen
class Stopped:
    """The handler was stopped from outside and has ended."""

    reason: Reason


@final
@attrs.frozen
class Poison:
    """The payload can never be run: bytes that are not what the codec writes."""

    error: BaseException


@final
@attrs.frozen
class Unfit:
    """This worker cannot run it, another may: an unknown task, or arguments that do not fit."""

    error: BaseException


Outcome = Returned | Raised | Stopped | Poison | Unfit
