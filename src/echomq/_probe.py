"""What `echomq.embedded` needs to know of the network: a port nobody has, and who answers on a port."""

from __future__ import annotations

import contextlib
import random
import socket
from pathlib import Path

HOST = "127.0.0.1"
# Where the kernel's own choices begin: 32768 on Linux by default, 49152 by IANA; where it cannot be read, the lower.
EPHEMERAL_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")
EPHEMERAL_FIRST = 32768
# Above the well-known services.
FIRST, LAST = 12000, 65000
# With fewer ports than this below the ephemeral range, the danger of meeting a neighbour is the greater one.
ENOUGH = 2000
TRIES = 200


class NoFreePortError(Exception):
    """All ports that were tried are taken."""


def port_range() -> range:
    """Tell the ports to choose from: those below the kernel's ephemeral range (`echomq.embedded` says why)."""
    first = EPHEMERAL_FIRST
    with contextlib.suppress(OSError, ValueError, IndexError):
        first = int(EPHEMERAL_FILE.read_text().split()[0])
    return range(FIRST, first) if first >= FIRST + ENOUGH else range(FIRST, LAST)


def free_port() -> int:
    """Find a TCP port on 127.0.0.1 that nobody listens on at this moment.

    Raises:
        NoFreePortError: None was found.
    """
    ports = port_range()
    # A generator of its own: programs (and Hypothesis) seed the shared one, and then two would try the same ports.
    rng = random.SystemRandom()
    for _ in range(TRIES):
        port = rng.choice(ports)
        with socket.socket() as probe, contextlib.suppress(OSError):
            # As the server will: a port whose old connections are still in TIME_WAIT is free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((HOST, port))
            return port
    raise NoFreePortError(f"no free port in {TRIES} tries among {ports.start} to {ports.stop - 1} on {HOST}")


def ask_info(port: int, password: str) -> str:
    """Ask who is there, over a bare socket: the text of INFO, or the error line with its minus.

    Raises:
        OSError: Nobody answers, or not within a second.
    """
    return ask(port, password, "INFO", timeout=1.0)


def ask(port: int, password: str, *words: str, timeout: float) -> str:
    """Send one command over a bare socket: the text of its answer, the first line alone unless it is a bulk string.

    Args:
        port: Where the server listens on 127.0.0.1.
        password: "" for none.
        words: The command.
        timeout: Seconds until it must answer.

    Raises:
        OSError: Nobody answers, or not in time.
    """
    with socket.create_connection((HOST, port), timeout=timeout) as connection, connection.makefile("rb") as replies:
        if password:
            connection.sendall(_command("AUTH", password))
            answer = replies.readline().decode(errors="replace")
            if not answer.startswith("+"):
                return answer
        connection.sendall(_command(*words))
        head = replies.readline().decode(errors="replace")
        if not head.startswith("$"):
            return head
        return replies.read(int(head[1:])).decode(errors="replace")


def _command(*words: str) -> bytes:
    parts = [word.encode() for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)
