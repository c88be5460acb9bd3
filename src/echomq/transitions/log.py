"""`log`: append lines to jobs' logs (Protocol, section 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import attrs

from echomq.transitions.base import Argument, Call, Transition, multi

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

    def arguments(self) -> tuple[Argument, ...]:
        """Spell it in a call."""
        return (self.id, self.token, self.nonce, self.line)


def log(keys: QueueKeys, call: Call, items: Sequence[LogLine], /) -> Transition[list[Verdict]]:
    """Append lines to jobs' logs. Verdicts: `ok`, `EMQSTALE`, `EMQGONE`, `EMQKIND` (the line is too long)."""
    return multi("log", keys, call, items)
