"""The server that a proof is about."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import redis

from echomq.conformance.driver import connect
from echomq.embedded import EmbeddedServerError, open_server


class NoTargetError(Exception):
    """No server was reached."""


@contextmanager
def open_target(url: str | None) -> Iterator[tuple[redis.Redis, str]]:
    """Connect to a server, a private one without a URL, and learn its name and version.

    Raises:
        ValueError: Not a URL.
        NoTargetError: It was not reached, or none could be started.
    """
    with ExitStack() as stack:
        try:
            where = url if url is not None else stack.enter_context(open_server()).url
            server = stack.enter_context(connect(where))
            info: Any = server.info("server")
        except (EmbeddedServerError, redis.RedisError, OSError) as error:
            raise NoTargetError(str(error)) from None
        name = "Valkey" if "valkey_version" in info else "Redis"
        yield server, f"{name} {info.get('valkey_version', info['redis_version'])}"
