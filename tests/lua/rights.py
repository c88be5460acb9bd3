"""A user who lacks one right at a time, and what must hold whatever the server refused."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import redis

from echomq.conformance.driver import Driver, connect
from echomq.protocol.keys import QueueKeys
from echomq.protocol.records import NewJob
from echomq.transitions import Completion

COMMANDS = (
    "hget hgetall hmget",
    "hgetall",
    "hget",
    "hmget",
    "hset",
    "hdel",
    "zadd",
    "zrem",
    "zscore",
    "zmscore",
    "exists",
    "del",
    "set",
    "hincrby",
    "lpush",
)
LANES = (None, "a", "b")


class Ground:
    """A queue, an administrator who may do all, and a user who lacks one right at a time."""

    def __init__(self, url: str) -> None:
        self.admin = connect(url)
        self.keys = QueueKeys(queue="rights")
        self.able = Driver(self.admin, self.keys)
        scheme, _, where = url.partition("://")
        self._limited_url = f"{scheme}://limited:x@{where}"

    def lacking(self, command: str) -> Driver:
        """Make a client whose user may do all but one command."""
        self.admin.execute_command(
            "ACL",
            "SETUSER",
            "limited",
            "reset",
            "on",
            ">x",
            "~*",
            "&*",
            "+@all",
            *(f"-{each}" for each in command.split()),
        )
        return self.limited()

    def limited(self) -> Driver:
        """Make a client whose user may do what the last `lacking` left to it."""
        return Driver(connect(self._limited_url), self.keys)

    def attempt(self, run: Callable[[], object]) -> None:
        """Do what may be refused."""
        with contextlib.suppress(redis.ResponseError, redis.exceptions.NoPermissionError):
            run()

    def drain(self) -> set[str]:
        """Let every lease end, and complete whatever the queue still has; answer the ids."""
        done: set[str] = set()
        for _ in range(20):
            self.admin.execute_command("EVAL", EXPIRE, 1, self.keys.active)
            self.admin.execute_command("EVAL", EXPIRE, 1, self.keys.schedule)
            for lane in (*LANES, "c"):
                # A lane that was kept from the ring stands there again after the next word about it.
                for weight in ("2", ""):
                    self.able.plain("set_lane", lane=lane or "", settings={"paused": "", "weight": weight})
            jobs = self.able.claim(100).jobs
            assert len({job.id for job in jobs}) == len(jobs), "a job was leased twice in one claim"
            for job in jobs:
                self.able.items("complete", Completion(job.id, job.token, job.nonce, b""))
                done.add(job.id)
        return done


EXPIRE = "for _, id in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do redis.call('ZADD', KEYS[1], 1, id) end"


def add(ground: Ground, count: int = 3, lanes: tuple[str | None, ...] = (None,)) -> list[str]:
    """Enqueue jobs that survive many stalls, in each lane in turn."""
    jobs = [NewJob(max_stalls=100, lane=lanes[n % len(lanes)]) for n in range(count)]
    ground.able.items("enqueue", *jobs)
    return [job.id for job in jobs]
