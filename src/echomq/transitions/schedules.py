"""A recurring schedule as it stands on the server: what `schedule_put` writes and `read_schedules` reads.

The server knows slots and templates. What a slot is (cron, time zone, interval, end, limit) is the client's affair: it
stands in `spec`, which no script reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, final

import attrs

from echomq.protocol.payloads import join_payload

if TYPE_CHECKING:
    from collections.abc import Mapping

Overlap = Literal["allow", "skip", "queue"]
"""What a slot does whose schedule's last job is not over: `allow`: makes a job all the same; `skip`: makes none;
`queue`: makes one if none waits yet, so that at most one waits beside one that runs."""
OVERLAPS: Final = ("allow", "skip", "queue")
ENDED: Final = 0
"""The slot of a schedule that fires no more."""


@final
@attrs.frozen(kw_only=True)
class ScheduleState:
    """A schedule as the server has it."""

    name: str
    """Its name."""
    spec: bytes
    """What its slots are, as the client spelled it."""
    digest: str
    """Of spec and template: the same digest means the same schedule."""
    origin: str
    """Who defined it: the name of an app, or "" for a person."""
    overlap: Overlap
    """See `Overlap`."""
    slot_ms: int
    """The next slot, Unix ms; `ENDED` when there is none."""
    count: int
    """How many slots have made a job."""
    skipped: int
    """How many made none, for overlap."""
    paused_ms: int
    """When it was paused, Unix ms; 0 when it is not."""
    last_id: str
    """The latest job it made; "" before."""
    last_slot_ms: int
    """The slot of that job, Unix ms; 0 before."""
    open_ids: tuple[str, ...]
    """The jobs it has made that were not over when it was fired last; kept for `skip` and `queue`."""
    priority: int
    """Of its jobs."""
    lane: str
    """Of its jobs; "" when none."""
    ends: str
    """`expires` and `deadline` of its jobs, each `0`, `+ms` or Unix ms; "" when none."""
    row: Mapping[bytes, bytes]
    """The row fields of its jobs: payload, task, and so on."""
    moved_ms: int = 0
    """By how much a test has moved it (`echomq.testing.advance`): its rule's slot is so much after `slot_ms`."""

    @property
    def task(self) -> str:
        """The task of its jobs; "" when none is named."""
        return self.row.get(b"task", b"").decode("utf-8", "replace")

    @property
    def payload(self) -> bytes:
        """The payload of its jobs."""
        return join_payload(dict(self.row))

    @classmethod
    def parse(cls, name: str, flat: list[bytes]) -> ScheduleState:
        """Read the hash of a schedule. A field that is missing reads as its default: a torn one is still listed."""
        words = iter(flat)
        fields = dict(zip(words, words, strict=True))

        def text(field: bytes) -> str:
            return fields.get(field, b"").decode("utf-8", "replace")

        def number(field: bytes) -> int:
            value = fields.get(field, b"0")
            return int(value) if value.isdigit() else 0

        overlap: Any = text(b"overlap")
        priority = text(b"priority")
        return cls(
            name=name, spec=fields.get(b"spec", b""), digest=text(b"digest"), origin=text(b"origin"),
            overlap=overlap if overlap in OVERLAPS else "allow",
            slot_ms=number(b"slot"), count=number(b"count"), skipped=number(b"skipped"), paused_ms=number(b"paused"),
            last_id=text(b"last_id"), last_slot_ms=number(b"last_slot"), open_ids=tuple(text(b"open").split()),
            moved_ms=number(b"moved"),
            priority=int(priority) if priority.lstrip("-").isdigit() else 0, lane=text(b"lane"), ends=text(b"ends"),
            row={name[2:]: value for name, value in fields.items() if name.startswith(b"f:")},
        )  # fmt: skip
