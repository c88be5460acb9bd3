"""What a worker looks at before its first claim: a server that may evict jobs loses them (Protocol, section 4, rule 9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from echomq._logs import Told, get_logger
from echomq.errors import EchoMQError, EvictionPolicyError, UnavailableError

if TYPE_CHECKING:
    from echomq.wire.client import WireClient

_log = get_logger("echomq.worker")


async def check_server(wire: WireClient, *, allow_eviction: bool, stop: anyio.Event) -> None:
    """Read the server's eviction policy, for as long as it takes to reach the server or until `stop` is set.

    Raises:
        EvictionPolicyError: The policy is one of `allkeys-*`, and `allow_eviction` is not set.
    """
    policy = await _read_policy(wire, stop)
    if policy is None or policy == "noeviction":
        return
    if policy.startswith("allkeys") and not allow_eviction:
        raise EvictionPolicyError(policy)
    _log.warning("eviction_policy", policy=policy, hint="set maxmemory-policy noeviction: what it may evict is lost")


async def _read_policy(wire: WireClient, stop: anyio.Event) -> str | None:
    told = Told()
    while not stop.is_set():
        try:
            text = await wire.command("INFO", "memory")
        except UnavailableError as error:
            if told.is_new(str(error)):
                _log.warning("server_unavailable", error=str(error))
            continue
        except EchoMQError as error:
            _log.warning("eviction_policy_unknown", error=str(error), hint="allow INFO, or check maxmemory-policy")
            return None
        for line in bytes(text).decode("utf-8", "replace").splitlines():
            name, _, value = line.partition(":")
            if name == "maxmemory_policy":
                return value.strip()
        return None
    return None
