"""Draws the pictures of `echomq top` and `echomq stats` that the documentation shows, from a real run.

`python tools/draw_commands.py` starts a private server and two workers with tasks that fail now and then, looks as the
commands do, and writes docs/_static/top.svg and stats.svg. Numbers, ids and times are those of the run; the server's
address and the workers' names are said the same each time.
"""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import attrs
import orjson
import rich.console
from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI

from echomq import Rate, open_client
from echomq.cli.output import table_of
from echomq.cli.samples import NUMBERS, sample_all, table_of_samples
from echomq.cli.top import Watch, screen, slow_of
from echomq.embedded import open_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from echomq import Client

STATIC = Path(__file__).parents[1] / "docs" / "_static"
SHOWN_URL = "valkey://queue.example:6379"
WIDTH = 118
FONTS = re.compile(r"@font-face \{\{.*?\}\}\s*", re.DOTALL)
"""What rich would have the reader's browser fetch."""
JOBS = """
import random
import anyio
import echomq

app = echomq.App()

@app.task(queue="mails", max_attempts=2, backoff=echomq.Fixed(3), result_ttl=60)
async def send(number: int) -> None:
    await anyio.sleep(random.uniform(0.05, 0.4))
    if number % 20 == 0:
        raise ConnectionError("no mail server")

@app.task(queue="reports")
async def render(number: int) -> None:
    await anyio.sleep(60)
"""


@contextmanager
def working(url: str, directory: str) -> Iterator[None]:
    """Run two workers for the length of the block."""
    Path(directory, "jobs.py").write_text(JOBS, encoding="utf-8")
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", "echomq.worker", "jobs:app", "--concurrency", "12", "--name", name],
            env={**os.environ, "ECHOMQ_URL": url},
            cwd=directory,
            stderr=subprocess.DEVNULL,
        )
        for name in ("web-1", "web-2")
    ]
    try:
        yield
    finally:
        for worker in workers:
            for _ in range(2):  # at once: what they run is nobody's
                worker.send_signal(signal.SIGTERM)
        for worker in workers:
            worker.wait()


async def enqueue(client: Client) -> None:
    """Make work of some kinds."""
    mails, reports = client.queue("mails"), client.queue("reports")
    for lane, count in {"acme": 900, "globex": 400, "initech": 150}.items():
        payloads = [orjson.dumps({"args": [number]}) for number in range(count)]
        await mails.enqueue_many(payloads, task="send", lane=lane)
    await mails.lane("acme").configure(weight=3)
    await mails.lane("initech").configure(rate=Rate(5))
    await reports.enqueue_many([b'{"args":[0]}'] * 4, task="render")
    await reports.enqueue_many([b'{"args":[0]}'] * 3, task="render", delay=600)


def draw(name: str, title: str, shown: RenderableType) -> None:
    """Write a picture."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(shown)
    form = FONTS.sub("", rich.console.CONSOLE_SVG_FORMAT)  # type: ignore[attr-defined] # the default of what is called below
    svg = console.export_svg(title=title, theme=DIMMED_MONOKAI, code_format=form, unique_id=f"echomq-{name}")
    (STATIC / f"{name}.svg").write_text("\n".join(map(str.rstrip, svg.splitlines())) + "\n", encoding="utf-8")


async def look(url: str) -> None:
    """Draw both."""
    async with open_client(url) as client:
        await enqueue(client)
        watch = Watch(client, ())
        with anyio.fail_after(40):
            while not slow_of(await sample_all(client, ())):  # noqa: ASYNC110 - workers say every ten seconds what they run
                await anyio.sleep(0.5)
        await watch.look()
        before = await sample_all(client, ())
        await anyio.sleep(2)
        draw("top", "echomq top", screen(attrs.evolve(await watch.look(), url=SHOWN_URL), WIDTH))
        samples = await sample_all(client, ())
        rates = [(now, now.rates(then)) for then, now in zip(before, samples, strict=True)]
        shown = table_of(*table_of_samples(rates, rates=True, width=WIDTH), right=NUMBERS)
        draw("stats", "echomq stats --over 2", shown)


def main() -> None:
    """Do it."""
    with ExitStack() as stack:
        server = stack.enter_context(open_server())
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        stack.enter_context(working(server.url, directory))
        anyio.run(look, server.url, backend="trio")


if __name__ == "__main__":
    main()
