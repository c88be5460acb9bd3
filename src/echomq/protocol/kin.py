"""Parents and children as values: what ties them, and how a child ended (Protocol, section 7).

Theory of operation
    A parent's hash `job:<id>:children` holds, by name, its children: `<id> <policy> <queue>`, the queue being empty for
    the parent's own. Its hash `job:<id>:results` holds, by the same names, how those ended that have: so the open
    children are those of the first hash that the second does not name, and telling an ending twice changes nothing.
    A child's row names its parent: `<id> <queue> <name>`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final, final

import attrs

from echomq.errors import DecodeError
from echomq.protocol.failures import ErrorRecord

COMPLETED: Final = "completed"
DETACHED: Final = "detached"
MAX_CHILD_NAME: Final = 128
"""Bytes of a child's name as UTF-8."""


@final
class Policy(StrEnum):
    """What becomes of a parent when a child ends otherwise than by completing."""

    FAIL_PARENT = "fail_parent"
    """The parent is buried, and its other children are told to stop. The default."""
    IGNORE = "ignore"
    """It counts as settled, and the parent can read how it failed."""
    RUN_PARENT = "run_parent"
    """The parent runs now, and sees what failed and what is not over."""
    DETACH = "detach"
    """Only of children spawned by a running job: nobody waits for it, and nothing of it is told to the parent."""

    @property
    def letter(self) -> str:
        """Its letter on the wire: f, i, r or d."""
        return self.value[0]

    @classmethod
    def of(cls, letter: str) -> Policy:
        """Answer the policy of a letter.

        Raises:
            DecodeError: There is none.
        """
        for policy in cls:
            if policy.letter == letter:
                return policy
        raise DecodeError(f"expected a policy's letter, got {letter!r}")


@final
@attrs.frozen
class ChildRef:
    """A child as its parent knows it."""

    id: str
    """Its id."""
    policy: Policy
    """What its failure does."""
    queue: str
    """Its queue; "" is the parent's own."""

    @classmethod
    def parse(cls, data: bytes) -> ChildRef:
        """Read `<id> <policy> <queue>`.

        Raises:
            DecodeError: It is not that.
        """
        parts = data.decode("utf-8", "replace").split(" ", 2)
        if len(parts) != 3:  # noqa: PLR2004
            raise DecodeError(f"expected a child as its id, policy and queue, got {data[:80]!r}")
        return cls(parts[0], Policy.of(parts[1]), parts[2])


@final
@attrs.frozen
class ParentRef:
    """A parent as its child's row names it."""

    id: str
    """Its id."""
    queue: str
    """Its queue; "" is the child's own."""
    name: str
    """The child's name among its children."""

    @classmethod
    def parse(cls, data: bytes) -> ParentRef:
        """Read `<id> <queue> <name>`.

        Raises:
            DecodeError: It is not that.
        """
        parts = data.decode("utf-8", "replace").split(" ", 2)
        if len(parts) != 3:  # noqa: PLR2004
            raise DecodeError(f"expected a parent as its id, queue and the child's name, got {data[:80]!r}")
        return cls(*parts)

    def spell(self) -> str:
        """Write it as a row does."""
        return f"{self.id} {self.queue} {self.name}"


@final
@attrs.frozen
class Outcome:
    """How a child ended."""

    kind: str
    """completed, dead, cancelled, discarded, expired, removed, duplicate (its dedup key was held), lost (nobody knows it);
    detached: nobody waits for it."""
    ended_ms: int
    """When, Unix ms by its server's clock."""
    token: int
    """Its last attempt; 0: it was never claimed."""
    reason: str
    """Why, for people; "" when it completed."""
    body: bytes | None
    """Its encoded result if it completed, else its last error as an `ErrorRecord`'s bytes; None: not read."""

    @property
    def completed(self) -> bool:
        """Whether it completed."""
        return self.kind == COMPLETED

    @property
    def failed(self) -> bool:
        """Whether its parent's policy applies."""
        return self.kind not in (COMPLETED, DETACHED)

    @property
    def error(self) -> ErrorRecord | None:
        """Its last failure, if it had one.

        Raises:
            DecodeError: The record is torn.
        """
        return ErrorRecord.from_bytes(self.body) if self.failed and self.body else None

    @classmethod
    def parse(cls, data: bytes, *, whole: bool = True) -> Outcome:
        """Read `<kind> <ms> <token> <reason>`, a newline, and the body.

        Args:
            data: The bytes.
            whole: Whether the body is among them.

        Raises:
            DecodeError: It is not that.
        """
        head, _, body = data.partition(b"\n")
        parts: list[Any] = head.decode("utf-8", "replace").split(" ", 3)
        if len(parts) != 4 or not (parts[1].isdigit() and parts[2].isdigit()):  # noqa: PLR2004
            raise DecodeError(f"expected a child's outcome, got {data[:80]!r}")
        return cls(parts[0], int(parts[1]), int(parts[2]), parts[3], body if whole else None)

    def spell(self) -> bytes:
        """Write it as a script does."""
        reason = " ".join(self.reason.splitlines())
        return f"{self.kind} {self.ended_ms} {self.token} {reason}\n".encode() + (self.body or b"")
