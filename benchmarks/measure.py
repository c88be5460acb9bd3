"""Rounds of measurements: each in a fresh process, both sides in turn, the server's counters read before and after."""

from __future__ import annotations

import os
import platform
import signal
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
import click
import orjson
import redis
from rich.console import Console

from benchmarks.report import markdown, print_tables
from benchmarks.workload import KEYS
from echomq.embedded import open_server

ROOT = Path(__file__).resolve().parent.parent
RESULTS = Path(__file__).resolve().parent / "results"
SIDES = ("echomq", "ceiling")
TOP_LEVEL = ("evalsha", "blpop", "script|load", "ping", "hello", "subscribe", "client|setname", "client|setinfo")
PATIENCE = 300.0
LATENCY_WARM = 10


@attrs.frozen
class Sizes:
    """How much of each."""

    drain: int
    single: int
    bulk: int
    latency: int
    concurrency: int


@attrs.frozen
class Counters:
    """What the server has counted at one moment."""

    cpu: float
    memory: int
    reads: int
    received: int
    sent: int
    commands: dict[str, int]

    @staticmethod
    def read(client: redis.Redis) -> Counters:
        info: dict[str, Any] = client.info("everything")
        calls = {name[8:]: value["calls"] for name, value in info.items() if name.startswith("cmdstat_")}
        cpu = info["used_cpu_user"] + info["used_cpu_sys"]
        return Counters(
            cpu=cpu,
            memory=info["used_memory"],
            reads=info["total_reads_processed"],
            received=info["total_net_input_bytes"],
            sent=info["total_net_output_bytes"],
            commands=calls,
        )

    def asked(self, before: Counters) -> dict[str, int]:
        """How often each command was called between two moments, by clients or by scripts."""
        both = {name: n - before.commands.get(name, 0) for name, n in self.commands.items() if name != "info"}
        return {name: n for name, n in both.items() if n}

    def since(self, before: Counters, jobs: int) -> dict[str, float]:
        """What one job has cost between two moments."""
        asked = self.asked(before)
        top = sum(asked.get(name, 0) for name in TOP_LEVEL)
        return {
            "server_cpu_us": (self.cpu - before.cpu) / jobs * 1e6,
            "bytes": (self.memory - before.memory) / jobs,
            "reads": (self.reads - before.reads) / jobs,
            "received": (self.received - before.received) / jobs,
            "sent": (self.sent - before.sent) / jobs,
            "calls": top / jobs,
            "inner": (sum(asked.values()) - top) / jobs,
        }


def _flush(client: redis.Redis) -> None:
    # At once: freed in the background, the last run's jobs would be subtracted from the memory of the next one's.
    client.execute_command("FLUSHALL", "SYNC")


@contextmanager
def start_side(*arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    """Run one measurement's process for the length of the block."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    }
    command = [sys.executable, "-m", "benchmarks.side", *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def read_line(process: subprocess.Popen[bytes]) -> Any:
    """Read what it tells next."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise click.ClickException(f"{process.args!r} ended with code {process.wait()}")
    return orjson.loads(line)


def ask(*arguments: object) -> Any:
    """Run one measurement's process to its end, and answer what it tells."""
    with start_side(*arguments) as process:
        answer = read_line(process)
        process.wait(PATIENCE)
        return answer


def _round(client: redis.Redis, url: str, side: str, sizes: Sizes) -> dict[str, dict[str, float]]:
    """Take every measurement of one side once."""
    found: dict[str, dict[str, float]] = {}

    def take(role: str, jobs: int, *more: int) -> None:
        before = Counters.read(client)
        answer = ask(side, role, url, jobs, *more)
        found[role] = answer | Counters.read(client).since(before, jobs)

    for role, jobs in (("enqueue_single", sizes.single), ("enqueue_tasks", sizes.single)):
        _flush(client)
        take(role, jobs)
    _flush(client)
    take("enqueue_bulk", sizes.bulk)
    if sizes.drain != sizes.bulk:
        _flush(client)
        ask(side, "enqueue_bulk", url, sizes.drain)
    jobs = client.zcard(KEYS.pending)
    take("drain", int(jobs), sizes.concurrency)
    left = client.zcard(KEYS.pending), client.zcard(KEYS.active), int(client.hget(KEYS.counts, "completed") or 0)
    if left != (0, 0, jobs):
        raise click.ClickException(f"{side}: (pending, active, completed) is {left} after a drain of {jobs}")
    _flush(client)
    found["latency"] = _latency(side, url, sizes.latency + LATENCY_WARM)
    return found


def _latency(side: str, url: str, jobs: int) -> dict[str, float]:
    with start_side(side, "latency_worker", url, jobs) as worker:
        read_line(worker)
        asked = ask(side, "latency_producer", url, jobs)
        ran = read_line(worker)
        worker.wait(PATIENCE)
    waits = sorted((b - a) / 1e6 for a, b in zip(asked[LATENCY_WARM:], ran[LATENCY_WARM:], strict=True))
    return {"p50_ms": statistics.median(waits), "p99_ms": waits[min(len(waits) - 1, int(len(waits) * 0.99))]}


def _measure(url: str, rounds: int, sizes: Sizes, say: Console) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    with redis.Redis.from_url(url) as client:
        for number in range(rounds):
            both: dict[str, Any] = {}
            # The order changes each round: what one side leaves behind (caches, clock rates) must not favour the other.
            for side in SIDES if number % 2 == 0 else SIDES[::-1]:
                say.print(f"round {number + 1} of {rounds}: {side}")
                both[side] = _round(client, url, side, sizes)
            found.append(both)
    return found


def describe(url: str) -> dict[str, Any]:
    """Tell what is measured here: when, and with which programs on which machine."""
    with redis.Redis.from_url(url) as client:
        version: Any = client.info("server")
        memory: Any = client.info("memory")
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "server": f"{version.get('server_name', 'redis')} {version.get('valkey_version', version['redis_version'])}",
        "allocator": str(memory["mem_allocator"]),
        "machine": f"{platform.machine()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}",
    }


def save(result: dict[str, Any], path: Path) -> Path:
    """Write what was found, as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(orjson.dumps(result, option=orjson.OPT_INDENT_2))
    return path


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option("--rounds", default=5, type=click.IntRange(1), help="Rounds, both sides in each.")
@click.option("--drain", default=20_000, type=click.IntRange(100), help="Jobs that one worker drains.")
@click.option("--single", default=5_000, type=click.IntRange(100), help="Jobs enqueued one at a time.")
@click.option("--bulk", default=20_000, type=click.IntRange(100), help="Jobs enqueued in bulk.")
@click.option("--latency", default=200, type=click.IntRange(10), help="Jobs whose pick-up is timed, 20 ms each.")
@click.option("--concurrency", default=100, type=click.IntRange(1), help="Handlers at once.")
@click.option("--quick", is_flag=True, help="One round, small sizes: whether it works, not how fast.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print the tables as Markdown, and nothing else.")
@click.option("--output", type=click.Path(path_type=Path), help="The JSON file; benchmarks/results/TIME.json else.")
def main(rounds: int, *, quick: bool, as_markdown: bool, output: Path | None, **numbers: int) -> None:
    """Measure echomq against the raw ceiling on a private server."""
    sizes = Sizes(**numbers)
    if quick:
        rounds, sizes = 1, Sizes(drain=500, single=100, bulk=500, latency=10, concurrency=sizes.concurrency)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 130)
    with open_server() as server:
        about = describe(server.url)
        found = _measure(server.url, rounds, sizes, Console(stderr=True, highlight=False))
    result = about | {"sizes": attrs.asdict(sizes), "rounds": found}
    path = save(result, output or RESULTS / f"{datetime.now(UTC):%Y%m%dT%H%M%S}.json")
    if as_markdown:
        print(markdown(result))
    else:
        print_tables(console, result)
        console.print(f"written: {path}", soft_wrap=True)
