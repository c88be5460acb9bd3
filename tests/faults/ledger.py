"""The books of jobs' attempts in a store that is not the queue's: SQLite, guarded by the fencing token."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path

import attrs


@attrs.frozen
class Entry:
    """One attempt of a job, as its handler wrote it. Times are CLOCK_MONOTONIC, one clock for all processes."""

    job: str
    token: int
    pid: int
    began: float
    ended: float | None
    """None: its process died in between."""
    accepted: bool
    """Whether the fence let its beginning in."""
    effective: bool
    """Whether the fence let its end in: the job's outside effect."""


class Ledger:
    """Books that several processes write."""

    def __init__(self, path: str | Path) -> None:
        # Each statement is a transaction; nothing has to survive a crash of the machine.
        self._db = sqlite3.connect(path, timeout=30, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=OFF")
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS fences (job TEXT PRIMARY KEY, fence INT NOT NULL, done INT NOT NULL)"
        )
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS attempts (job TEXT, token INT, pid INT, began REAL, ended REAL, accepted INT, "
            "effective INT NOT NULL DEFAULT 0, PRIMARY KEY (job, token, pid))"
        )

    def close(self) -> None:
        """Close them."""
        self._db.close()

    def begin(self, job: str, token: int) -> None:
        """Enter an attempt, and raise the job's fence to its token."""
        done = self._db.execute(
            "INSERT INTO fences VALUES (:job, :token, 0) "
            "ON CONFLICT (job) DO UPDATE SET fence = :token WHERE fence < :token",
            {"job": job, "token": token},
        )
        self._db.execute(
            "INSERT INTO attempts (job, token, pid, began, accepted) VALUES (?, ?, ?, ?, ?)",
            (job, token, os.getpid(), time.monotonic(), done.rowcount == 1),
        )

    def end(self, job: str, token: int) -> None:
        """Enter its end; the effect counts only if no later attempt has begun."""
        done = self._db.execute("UPDATE fences SET done = done + 1 WHERE job = ? AND fence = ?", (job, token))
        self._db.execute(
            "UPDATE attempts SET ended = ?, effective = ? WHERE job = ? AND token = ? AND pid = ?",
            (time.monotonic(), done.rowcount == 1, job, token, os.getpid()),
        )

    def entries(self) -> dict[str, list[Entry]]:
        """Answer all attempts by job, in the order of their beginning."""
        found: dict[str, list[Entry]] = {}
        for job, token, pid, began, ended, accepted, effective in self._db.execute(
            "SELECT job, token, pid, began, ended, accepted, effective FROM attempts ORDER BY job, began"
        ):
            found.setdefault(job, []).append(Entry(job, token, pid, began, ended, bool(accepted), bool(effective)))
        return found
