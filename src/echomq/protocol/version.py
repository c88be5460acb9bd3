"""The protocol's version and who may speak to whom (Protocol, section 4: EMQVERSION)."""

from __future__ import annotations

import re
from typing import Final

from echomq.errors import ProtocolMismatchError

PROTOCOL: Final = "1.0"
"""What this library speaks: major, dot, minor. A queue's `meta` carries the version of whoever made it."""

_VERSION: Final = re.compile(r"(0|[1-9][0-9]{0,5})\.(0|[1-9][0-9]{0,5})")


def parse(version: str) -> tuple[int, int]:
    """Read a version as (major, minor).

    Raises:
        ValueError: Not two plain numbers with a dot between them.
    """
    match = _VERSION.fullmatch(version)
    if match is None:
        raise ValueError(f"a protocol version is major.minor, such as {PROTOCOL!r}, not {version!r}")
    return int(match[1]), int(match[2])


def compatible(theirs: str, ours: str = PROTOCOL) -> bool:
    """Tell whether the two may share a queue: the majors are equal.

    A newer minor may add row fields, verbs and refusals, and older code must leave alone what it does not know. A
    version that cannot be read is not compatible.
    """
    try:
        return parse(theirs)[0] == parse(ours)[0]
    except ValueError:
        return False


def check(theirs: str, ours: str = PROTOCOL, *, queue: str = "") -> None:
    """Refuse a queue of another major.

    Raises:
        ProtocolMismatchError: The two may not share a queue.
    """
    if not compatible(theirs, ours):
        raise ProtocolMismatchError(queue, theirs, ours)
