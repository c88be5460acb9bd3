"""A client that does nothing but ask the server whether it is there: what others feel while something heavy goes on.

It runs in a process of its own until its standard output's reader has gone or it is told to end (SIGTERM), and then tells
when each ping was sent, on the machine's monotonic clock, and how long its answer took.
"""

from __future__ import annotations

import signal
import sys
import time

import orjson
import redis

EVERY = 0.002
"""Seconds between two pings: often enough to meet a script of a few ms."""


def run(role: str, url: str) -> None:
    """Ping until SIGTERM."""
    assert role == "ping"
    over = False

    def end(*_: object) -> None:
        nonlocal over
        over = True

    signal.signal(signal.SIGTERM, end)
    found: list[tuple[float, float]] = []
    with redis.Redis.from_url(url) as client:
        client.ping()
        sys.stdout.write("true\n")
        sys.stdout.flush()
        while not over:
            sent = time.monotonic()
            client.ping()
            took = time.monotonic() - sent
            found.append((sent, took))
            time.sleep(max(0.0, EVERY - took))
    sys.stdout.buffer.write(orjson.dumps(found) + b"\n")
    sys.stdout.flush()
