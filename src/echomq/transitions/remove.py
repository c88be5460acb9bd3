"""`remove`: erase jobs that do not run (Protocol, section 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from echomq.transitions.base import Call, Transition, multi

if TYPE_CHECKING:
    from collections.abc import Sequence

    from echomq.protocol.keys import QueueKeys
    from echomq.protocol.refusals import Verdict


def remove(keys: QueueKeys, call: Call, items: Sequence[str], /) -> Transition[list[Verdict]]:
    """Erase jobs. Verdicts: `ok`, `EMQSTATE active` (cancel it instead), `EMQGONE`."""
    return multi("remove", keys, call, items)
