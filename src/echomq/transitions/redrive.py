"""`redrive`: begin a new life for dead jobs (Protocol, section 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from echomq.transitions.base import Call, Transition, multi

if TYPE_CHECKING:
    from collections.abc import Sequence

    from echomq.protocol.keys import QueueKeys
    from echomq.protocol.refusals import Verdict


def redrive(keys: QueueKeys, call: Call, items: Sequence[str], /) -> Transition[list[Verdict]]:
    """Begin a new life for dead jobs. Verdicts: `ok`, `duplicate ID` (that job took the dedup key meanwhile), `EMQSTATE pending`, `EMQGONE`."""
    return multi("redrive", keys, call, items)
