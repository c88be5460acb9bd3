"""`echomq flow`: the picture of made trees, text for text; and of real ones, in each form."""

from __future__ import annotations

import datetime as dt
import io
import json
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from echomq import App, JobCall, child, flow, sync
from echomq.cli import main
from echomq.cli.flow import DEEPEST, as_mermaid, as_values, draw, spell
from echomq.flow_tree import FlowTree
from echomq.protocol.ids import mint
from echomq.protocol.kin import Policy

NOW = dt.datetime(2026, 1, 2, 12, tzinfo=dt.UTC)


def node(number: int, state: str, *, since: float | None = None, **fields: Any) -> FlowTree:
    """Make a job of a tree; `since` is seconds ago."""
    moment = None if since is None else NOW - dt.timedelta(seconds=since)
    fields = {"queue": "books", "task": "count", "since": moment, **fields}
    return FlowTree(id=f"JOB{number:011d}", state=state, **fields)


TREE = node(
    1, "waiting", since=75, task="total",
    children=(
        node(2, "completed", since=61, name="0", attempts=1),
        node(3, "dead", since=2.5, name="1", attempts=3, policy=Policy.IGNORE, reason="failed 3 times", error="OSError: no disk"),
        node(
            4, "active", since=7300, name="shelf [b]", queue="shelves", attempts=2,
            children=(node(5, "schedule", since=3 * 86400, name="a\nb", queue="shelves"),),
            more={"open": 27, "completed": 9873},
        ),
        node(6, "lost", name="3", task="", policy=Policy.RUN_PARENT, reason="nobody knows it"),
    ),
)  # fmt: skip


def drawn(tree: FlowTree, **options: Any) -> str:
    """Draw a tree where there are no colours."""
    file = io.StringIO()
    draw(Console(file=file, width=1000, highlight=False), tree, now=NOW, **options)
    return file.getvalue()


def test_picture_tells_names_states_times_and_errors() -> None:
    """Of each job what differs from its parent's, and from what is usual; the one that was asked for is marked."""
    assert (
        drawn(TREE, asked="JOB00000000004")
        == """\
total waiting 1 min JOB00000000001
├── 0 count completed 1 min ago JOB00000000002
├── 1 count dead 2.5 s ago attempt 3 (ignore) JOB00000000003 OSError: no disk
├── > shelf [b] count active 2 h attempt 2 in shelves JOB00000000004
│   ├── a?b count schedule 3 d JOB00000000005
│   └── and 9,900 more: 9,873 completed, 27 not over
└── 3 lost (run_parent) JOB00000000006 nobody knows it
"""
    )


def test_picture_has_colours_on_a_terminal_only() -> None:
    """And a long error is cut there as elsewhere."""
    file = io.StringIO()
    draw(Console(file=file, width=80, force_terminal=True, color_system="standard"), TREE, asked="", now=NOW)
    assert "\x1b[1;31mdead\x1b[0m" in file.getvalue()
    assert "\x1b" not in drawn(node(1, "dead", error="x\x1b[2J" * 100), asked="")
    assert drawn(node(1, "dead", error="x" * 201), asked="").endswith(f" {'x' * 200}...\n")


def test_mermaid_is_a_flowchart_whose_labels_cannot_break_it() -> None:
    """Children point to their parents, states are classes, and what Mermaid would read is spelled as entities."""
    tree = node(
        1, "dead", task="total",
        children=(node(2, "completed", name='"a" <b> #1; `c` & ]', task="count"), node(3, "removed", name="1.", task="- x")),
        more={"completed": 1200},
    )  # fmt: skip
    assert (
        "\n".join(as_mermaid(tree, asked="JOB00000000001"))
        == """\
flowchart TD
    JOB00000000001["total<br/>dead<br/>books"]:::dead
    style JOB00000000001 stroke-width:3px
    JOB00000000002 --> JOB00000000001
    JOB00000000003 --> JOB00000000001
    moreJOB00000000001["1,200 more: 1,200 completed"] --> JOB00000000001
    JOB00000000002["#quot;a#quot; #lt;b#gt; #35;1; #96;c#96; #amp; ] count<br/>completed<br/>books"]:::completed
    JOB00000000003["1#46; - x<br/>removed<br/>books"]:::removed
    classDef dead fill:#f8cecc,stroke:#666666,color:#222222
    classDef completed fill:#d5e8d4,stroke:#666666,color:#222222
    classDef removed fill:#eeeeee,stroke:#666666,color:#222222"""
    )


def test_values_are_a_list_however_deep_the_flow_is() -> None:
    """Parents first; a chain of a thousand links is no deeper than a group."""
    tree = node(0, "pending")
    for number in range(1, 1000):
        tree = node(number, "waiting", children=(tree,), name="0")
    values = list(as_values(tree))
    assert [each["id"] for each in values[:2]] == ["JOB00000000999", "JOB00000000998"]
    assert [each["parent"] for each in values[:2]] == [None, "JOB00000000999"]
    assert (values[0]["policy"], values[1]["policy"], len(values)) == (None, "fail_parent", 1000)


@pytest.mark.parametrize(
    ("seconds", "said"), [(-5, "0.0 s"), (0.04, "0.0 s"), (59.9, "59.9 s"), (60, "1 min"), (7199, "1 h"), (2e5, "2 d")]
)
def test_span_is_spelled_by_its_largest_unit(seconds: float, said: str) -> None:
    """A clock that is behind makes no negative times."""
    assert spell(dt.timedelta(seconds=seconds)) == said


@pytest.fixture
def run(server_url: str) -> Any:
    """Run the command on the test's server."""

    def call(*words: str) -> Result:
        return CliRunner().invoke(main, ["flow", *words, "--url", server_url])

    return call


@pytest.fixture
def client(server_url: str) -> sync.Client:
    """A client of the test's server."""
    return sync.Client(server_url)


def call(queue: str, task: str, **options: Any) -> JobCall[Any]:
    """Make a call."""
    return App().task_stub(task, queue=queue).options(**options).call()


def test_flow_draws_what_is_there(run: Any, client: sync.Client, queue_name: str) -> None:
    """From the job that is named, or from the top; across queues; cut by --depth and --breadth."""
    other = f"{queue_name}-other"
    handle = client.flows.add(
        flow(
            call(queue_name, "total"),
            [
                child(flow(call(other, "shelf"), [call(other, "count", delay=60)]), name="far"),
                *(child(call(queue_name, "count"), name=f"n{n}", on_failure="ignore") for n in range(3)),
            ],
        )
    )
    far = handle.children["far"]
    shown = run(queue_name, handle.id)
    assert shown.exit_code == 0, shown.output
    top, shelf, count, *near = shown.stdout.splitlines()
    assert top.startswith("> total waiting ")
    assert top.endswith(f" s {handle.id}")
    assert shelf.startswith("├── far shelf waiting ")
    assert shelf.endswith(f" in {other} {far.id}")
    assert count.startswith("│   └── 0 count schedule ")
    assert [line.split()[1:4] for line in near] == [[f"n{n}", "count", "pending"] for n in range(3)]
    assert near[0].endswith(f" (ignore) {handle.children['n0'].id}")

    below = run(other, far.id).stdout
    assert below.startswith("> shelf waiting ")
    whole = run(other, far.id, "--whole").stdout.splitlines()
    assert whole[0].startswith("total waiting ")
    assert whole[1].startswith("├── > far shelf waiting ")

    cut = run(queue_name, handle.id, "--depth", "1", "--breadth", "2").stdout.splitlines()
    assert [line.strip("│├└─ ") for line in cut if "more" in line] == [
        "and 1 more: 1 not over",
        "and 2 more: 2 not over",
    ]


def test_flow_in_other_forms(run: Any, client: sync.Client, queue_name: str) -> None:
    """Mermaid for a page, JSON for a program."""
    handle = client.flows.add(flow(call(queue_name, "total"), {"a": call(queue_name, "count")}))
    mermaid = run(queue_name, handle.id, "--mermaid").stdout.splitlines()
    assert mermaid[0] == "flowchart TD"
    assert f"    {handle.children['a'].id} --> {handle.id}" in mermaid
    top, below = json.loads(run(queue_name, handle.id, "--json").stdout)
    assert (top["state"], top["parent"], top["more"]) == ("waiting", None, {})
    assert (below["name"], below["parent"], below["state"], below["queue"]) == ("a", handle.id, "pending", queue_name)
    assert dt.datetime.fromisoformat(below["since"]).tzinfo is not None


def test_flow_refuses_what_it_cannot_draw(run: Any, queue_name: str) -> None:
    """2 for bad arguments, 1 for a job that is not there."""
    gone = run(queue_name, mint())
    assert (gone.exit_code, gone.stdout) == (1, "")
    assert gone.stderr.startswith("error: ")
    for words in (
        ("a{b", mint()),
        (queue_name, "nothing"),
        (queue_name,),
        (queue_name, mint(), "--depth", str(DEEPEST + 1)),
    ):
        assert run(*words).exit_code == 2
    both = run(queue_name, mint(), "--mermaid", "--json")
    assert (both.exit_code, "either --mermaid or --json" in both.stderr) == (2, True)


def test_flow_shows_children_in_the_order_in_which_their_parent_reads_them(
    run: Any, client: sync.Client, queue_name: str
) -> None:
    """Numbers within names count as such."""
    names = ["page 10", "page 9", "cover"]
    handle = client.flows.add(flow(call(queue_name, "total"), {name: call(queue_name, "count") for name in names}))
    shown = json.loads(run(queue_name, handle.id, "--json").stdout)
    assert [each["name"] for each in shown[1:]] == ["cover", "page 9", "page 10"]
