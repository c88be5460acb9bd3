"""Verdicts: what a script answers for each item, and the error a refusal becomes (Protocol, sections 4 and 5)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, final

import attrs

from echomq.errors import (
    InvalidJobError,
    JobNotFoundError,
    JobStateError,
    LeaseLostError,
    PermissionDeniedError,
    ProtocolMismatchError,
    QueueFullError,
    ServerError,
)
from echomq.protocol.version import PROTOCOL

if TYPE_CHECKING:
    from echomq.errors import EchoMQError

OK: Final = "ok"
ADMITTED: Final = "admitted"
"""Enqueue: the job is in the queue, now or since an earlier sending of the same call."""
DUPLICATE: Final = "duplicate"
"""Enqueue: the dedup key is held; the detail is the holder's id."""
REPLACED: Final = "replaced"
"""Enqueue: the dedup key's holder, whose id is the detail, waits and has the new content now."""
COLLISION: Final = "collision"
"""Enqueue: another producer's job has that id; mint again."""
ASKED: Final = "asked"
"""Cancel: the job is running and its worker has been asked to stop."""
ENDED: Final = "ended"
"""The verb ended the job."""
CANCEL: Final = "cancel"
"""Extend: the lease is renewed, and a cancel request waits; the detail is its reason."""

STALE: Final = "EMQSTALE"
"""The fence refused a write: another claim, or none, holds the job."""
GONE: Final = "EMQGONE"
"""There is no row: finished, or never existed."""
STATE: Final = "EMQSTATE"
"""Refused in this state, which is the detail."""
KIND: Final = "EMQKIND"
"""A value is not of its kind or out of range; the detail names it."""
FULL: Final = "EMQFULL"
"""The queue's `max_size` is reached."""
TORN: Final = "EMQTORN"
"""The script erred in the middle of the item; `repair` mends what it left (rule 1)."""
VERSION: Final = "EMQVERSION"
"""The queue speaks another major version, which is the detail."""


@final
@attrs.frozen
class Verdict:
    """One item's answer: a word of class, then a detail."""

    code: str
    """`ok`, `admitted`, `duplicate`, ... or a refusal's class word, which begins with `EMQ`."""
    detail: str = ""
    """What follows the class word; "" when nothing does."""

    @property
    def ok(self) -> bool:
        """Whether the verb did, or had done, what was asked: the code is not a refusal's, nor an error of the server's."""
        return not self.code.startswith(_REFUSED)

    @classmethod
    def parse(cls, text: bytes | str) -> Verdict:
        """Read a verdict string such as `EMQSTATE active`. A script's error text that begins with `EMQ` is one too."""
        if text in _COMMON:
            return _COMMON[text]
        if isinstance(text, bytes):
            text = text.decode("utf-8", "replace")
        code, _, detail = text.partition(" ")
        return cls(code, detail)

    def error(self, *, id: str = "", token: int = 0, queue: str = "", expected: str = "") -> EchoMQError | None:
        """Answer the error that this refusal is, or None when it is not one.

        Args:
            id: The job the item was about.
            token: The fencing token the item presented; 0 when the verb is not fenced.
            queue: The queue's name, for the message.
            expected: The states in which the verb would have worked, for the message.
        """
        match self.code:
            case _ if self.ok:
                return None
            case "EMQSTALE" if self.detail.startswith("call "):  # an old socket's late copy (rule 6)
                return ServerError(self.code, self.detail)
            case "EMQSTALE":
                return LeaseLostError(self.detail or "stale", id, token)
            case "EMQGONE":
                return LeaseLostError("gone", id, token) if token else JobNotFoundError(id)
            case "EMQSTATE":
                # "step 7": of a checkpoint that would go back. All else is a state.
                actual = f"at {self.detail}" if self.detail.startswith("step ") else self.detail
                whole = actual == "closing"  # that is the queue, whatever the job's state
                return JobStateError("" if whole else expected, actual, "" if whole else id, queue)
            case "EMQKIND":
                return InvalidJobError(f"{id or 'the call'}: the server refused a value: {self.detail or 'unknown'}")
            case "EMQFULL":
                return QueueFullError(queue, self.detail)
            case "EMQVERSION":
                return ProtocolMismatchError(queue, self.detail, PROTOCOL)
        denied = missing_right(f"{self.code} {self.detail}")
        if denied is not None:
            of = ", ".join([f"queue {queue!r}"] * bool(queue) + [id] * bool(id))
            return PermissionDeniedError("NOPERM", f"{denied} ({of})" if of else denied)
        return ServerError(self.code, self.detail)  # EMQTORN, or a refusal of a newer minor version


def raise_for(verdict: Verdict, *, id: str = "", token: int = 0, queue: str = "", expected: str = "") -> None:
    """Raise the error that the verdict is, if it is a refusal. See `Verdict.error` for the arguments.

    Raises:
        LeaseLostError: EMQSTALE, or EMQGONE for a fenced write.
        JobNotFoundError: EMQGONE otherwise.
        JobStateError: EMQSTATE.
        InvalidJobError: EMQKIND.
        QueueFullError: EMQFULL.
        ProtocolMismatchError: EMQVERSION.
        PermissionDeniedError: The server's ACL refused a command in the middle of the item.
        ServerError: EMQTORN, or a refusal that this version does not know.
    """
    error = verdict.error(id=id, token=token, queue=queue, expected=expected)
    if error is not None:
        raise error


def missing_right(text: str) -> str | None:
    """Answer what an ACL refused within a script, in the server's words; None when the text tells of something else.

    A script's own error reply and an item's verdict both tell it, each behind words of its own, and in front of where in
    the script it was.
    """
    found = _DENIED.search(text)
    if found is None:
        return None
    return _PLACE.sub("", text[found.start() :].removeprefix("NOPERM ")).strip()


_REFUSED: Final = ("EMQ", "NOPERM", "ACL", "ERR")
_DENIED: Final = re.compile(r"\bNOPERM\b|\bACL failure in script\b")
_PLACE: Final = re.compile(r" script: (?:\w+, )?on @user_script.*$", re.DOTALL)
_COMMON: Final[dict[bytes | str, Verdict]] = {
    form: Verdict(word) for word in (OK, ADMITTED, COLLISION, ASKED, ENDED) for form in (word, word.encode())
}
