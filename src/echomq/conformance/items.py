"""Jobs and items made from small integers, so that Hypothesis can shrink them."""

from __future__ import annotations

from typing import Any, Final

from echomq.protocol.records import NewJob
from echomq.transitions import (
    Checkpoint,
    Closing,
    Completion,
    Ending,
    Failure,
    LogLine,
    Progress,
    Release,
    Renewal,
    Snoozed,
    Suspension,
)

Pick = tuple[int, int, int, int]

SETTLING: Final = ("complete", "fail", "release", "snooze", "end")
NOTES: Final = ("extend", "progress", "checkpoint", "log")
FORGERIES: Final = ("first", "before", "nonce", "token")
YEAR_MS: Final = 366 * 86_400_000
HALF_A_YEAR_MS: Final = YEAR_MS // 2
DAY_MS: Final = 86_400_000
LEASE_MS: Final = 600_000


def new_job(pick: Pick, known: list[str], lanes: tuple[str, ...] = ("",)) -> NewJob:
    """Make a job in one of the lanes; of 16, one has an id that was there before."""
    kind, time, dedup, more = pick
    options: dict[str, Any] = {"payload": f"{kind}".encode()}
    if known and kind % 16 == 15:
        options["id"] = known[more % len(known)]
    options["priority"] = (0, 0, 5, -3)[kind % 4]
    options["lane"] = lanes[kind // 16 % len(lanes)] or None
    match time % 8:
        case 5:
            options["delay_ms"] = YEAR_MS
        case 6:
            options["at_ms"] = 1
        case 7:
            options["at_ms"] = 99_999_999_999_999
    if dedup % 4 > 1:
        options["dedup"] = f"key {dedup % 8 // 4}"
        match dedup // 8 % 4:
            case 2:
                options["dedup_mode"] = "replace"
            case 3:
                options["dedup_mode"] = "debounce"
                options.pop("at_ms", None)
                options["delay_ms"] = YEAR_MS
            case _ if dedup % 4 == 3:
                options["dedup_window_ms"] = YEAR_MS
    if more % 3 == 1:
        options["result_ttl_ms"] = YEAR_MS
    if more % 4:
        options["max_stalls"] = more % 4 - 1
    # A moment of a proof is over, or half a year ahead.
    match more // 4 % 16:
        case 1:
            options["expires"] = "1"
        case 2:
            options["expires"] = f"+{HALF_A_YEAR_MS}"
        case 3:
            options["deadline"] = "1"
        case 4:
            options["deadline"] = f"+{HALF_A_YEAR_MS}"
        case 5:
            options |= {"expires": f"+{HALF_A_YEAR_MS}", "deadline": f"+{HALF_A_YEAR_MS}"}
    return NewJob(**options)


def forge(how: str, leases: list[tuple[int, str]], pick: int) -> tuple[int, str]:
    """Answer a token and a nonce for a job: of its latest lease, or of another, or of none that ever was."""
    token, nonce = leases[-1] if leases else (1, "nobody.1")
    match how:
        case "first" if leases:
            return leases[0]
        case "before" if len(leases) > 1:
            return leases[-2]
        case "nonce":
            return token, f"forged.{pick}"
        case "token":
            return token + (-1, 1)[pick % 2], nonce
    return token, nonce


def make_item(verb: str, id: str, token: int, nonce: str, pick: int = 0) -> Any:  # noqa: PLR0911 - a table
    """Make an item of a fenced verb."""
    far = 0 if pick % 3 == 0 else YEAR_MS
    match verb:
        case "complete":
            return Completion(id, token, nonce, f"result {pick}".encode())
        case "fail":
            return Failure(id, token, nonce, far, 1 + pick % 3, b'{"type":"E"}')
        case "release":
            return Release(id, token, nonce)
        case "snooze":
            return Snoozed(id, token, nonce, far, unfit=pick % 16 == 5)
        case "rate_limited":
            return Closing(id, token, nonce, DAY_MS - pick * 1000, "lane" if pick % 2 else "queue")
        case "end":
            return Ending(id, token, nonce, ("cancelled", "discarded")[pick % 2], f"reason {pick}")
        case "extend":
            return Renewal(id, token, nonce, LEASE_MS)
        case "progress":
            return Progress(id, token, nonce, f"{pick}".encode())
        case "checkpoint":
            return Checkpoint(id, token, nonce, pick % 8, f"state {pick}".encode())
        case "log":
            return LogLine(id, token, nonce, f"line {pick}".encode())
        case "suspend":
            return Suspension(id, token, nonce)
    raise ValueError(f"{verb!r} is no fenced verb")
