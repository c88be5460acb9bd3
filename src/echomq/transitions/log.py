"""`log`: append lines to jobs' logs (Protocol, section 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import attrs

from echomq.transitions.base import ITEM_OVERHEAD, Call, Transition, multi

if TYPE_CHECKING:
    from collections.abc import Sequence

    from echomq.protocol.keys import QueueKeys
    from echomq.protocol.refusals import Verdict


@final
@attrs.frozen
class LogLine:
    """One item of `log`."""

    id: str
    """The job's id."""
    token: int
    """The claim's fencing token."""
    nonce: str
    """The claim's nonce."""
    line: bytes
    """The line, UTF-8; 64 KiB at most."""

    @property
    def size(self) -> int:
        """Bytes in a call, about."""
        return ITEM_OVERHEAD + len(self.line)


def log(keys: QueueKeys, call: Call, items: Sequence[LogLine], /) -> Transition[list[Verdict]]:
    """Append lines to jobs' logs. Verdicts: `ok`, `EMQSTALE`, `EMQGONE`, `EMQKIND` (the line is too long)."""
    arguments: list[bytes | str | int] = []
    for item in items:
        arguments += (item.id, item.token, item.nonce, item.line)
    return multi("log", keys, call, arguments)
