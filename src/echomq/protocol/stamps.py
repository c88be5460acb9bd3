"""Many jobs that differ only in their arguments: what they share is checked and spelled once.

A bulk producer makes sixty thousand jobs a second and more. `NewJob` checks fourteen fields of each; a stamp checks one
`NewJob` and then makes jobs that carry an id, a payload and the rest as it goes into the call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from echomq.errors import InvalidJobError
from echomq.protocol.ids import mint
from echomq.protocol.payloads import payload_fields

if TYPE_CHECKING:
    from echomq.protocol.newjob import FieldValue, NewJob


@final
class StampedJob:
    """A job made by a stamp. To `enqueue` it is what a `NewJob` is."""

    __slots__ = ("id", "payload", "size", "stamp")

    def __init__(self, id: str, payload: bytes, size: int, stamp: JobStamp) -> None:
        self.id = id
        """Its id."""
        self.payload = payload
        """Its arguments, encoded."""
        self.size = size
        """About how many bytes it takes in a call, for cutting calls."""
        self.stamp = stamp
        """What it shares with others."""

    def arguments(self) -> tuple[FieldValue, ...]:
        """Spell its arguments in a call of `enqueue`."""
        stamp = self.stamp
        fields = payload_fields(self.payload)
        return (self.id, *stamp.head, stamp.count + len(fields) // 2, *fields, *stamp.tail)

    def again(self) -> StampedJob:
        """Make the same job under another id."""
        return StampedJob(mint(), self.payload, self.size, self.stamp)


@final
class JobStamp:
    """Makes jobs that share everything but id and payload."""

    __slots__ = ("_limit", "_overhead", "count", "head", "packed", "tail")

    def __init__(self, model: NewJob) -> None:
        """Take what is shared from a job with an empty payload."""
        arguments = model.arguments()
        self.head = arguments[1:7]
        """What stands between the id and the number of row fields."""
        self.tail = arguments[10:]
        """The row fields after the payload."""
        self.count = len(self.tail) // 2
        """How many these are."""
        self.packed: dict[int, tuple[int, bytes, bytes]] = {}
        """Room for whoever packs its jobs, to pack what they share once."""
        self._overhead = model.size
        self._limit = model.payload_limit

    def make(self, payload: bytes) -> StampedJob:
        """Make a job with a fresh id.

        Raises:
            TypeError: The payload is not bytes.
            InvalidJobError: It is too large.
        """
        if type(payload) is not bytes:
            raise TypeError(f"payload: expected bytes, got {type(payload).__name__}")
        size = len(payload)
        if size > self._limit:
            raise InvalidJobError(f"payload: {size} bytes are more than the limit of {self._limit}")
        return StampedJob(mint(), payload, self._overhead + size, self)
