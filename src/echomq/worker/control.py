"""Cancel requests by channel. A request whose token is not ours is somebody else's; the heartbeat is the fallback."""

from __future__ import annotations

from typing import TYPE_CHECKING

from echomq.errors import UnavailableError
from echomq.wire.subscription import Message
from echomq.worker.reasons import reason_of_request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from echomq.wire.client import WireClient
    from echomq.worker.calls import QueueCalls
    from echomq.worker.lease import Lease


def read_request(data: bytes) -> tuple[str, int, str] | None:
    """Read a cancel request, `ID TOKEN REASON`; None when it is none."""
    try:
        id, token, reason = data.decode("utf-8", "replace").split(" ", 2)
        return id, int(token), reason
    except ValueError:
        return None


async def run_control(
    queues: Mapping[str, QueueCalls], find: Callable[[str, str, int], Lease | None], wire: WireClient
) -> None:
    """Follow the cancel channels of the queues and stop the handlers that are meant. Runs until cancelled.

    Args:
        queues: The calls of each queue, by name.
        find: Finds the running lease of a queue, job id and token.
        wire: The wire client.
    """
    channels = {calls.keys.cancel_channel: name for name, calls in queues.items()}
    async with wire.open_subscription() as subscription:
        for channel in channels:
            while True:
                try:
                    await subscription.add(channel)
                except UnavailableError:
                    continue
                break
        async for message in subscription:
            if not isinstance(message, Message):
                continue  # what a lost connection swallowed comes by heartbeat
            request = read_request(message.data)
            if request is None:
                continue
            id, token, reason = request
            lease = find(channels[message.channel], id, token)
            if lease is not None:
                lease.stop(reason_of_request(reason), reason)
