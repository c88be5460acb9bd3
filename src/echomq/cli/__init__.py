"""The command line: `echomq ...`, or `python -m echomq ...`.

Exit codes: 0 when it is done, 1 when the server or the queue refuses it, 2 for bad arguments, 3 when no server was
reached, 130 when it was interrupted. What is asked for goes to standard output, everything else to standard error.

Each group or command is a module here, which builds on `echomq.cli.frame` and is added below.
"""

from __future__ import annotations

import click

from echomq.cli.browse import ls
from echomq.cli.cancel import cancel
from echomq.cli.changing import reprioritise, update
from echomq.cli.clearing import drain, trim
from echomq.cli.completion import completion
from echomq.cli.conformance import conformance
from echomq.cli.doctor import doctor
from echomq.cli.enqueue import enqueue
from echomq.cli.events import events
from echomq.cli.fleet import queues, workers
from echomq.cli.flow import flow
from echomq.cli.going import pause, promote, reschedule, resume
from echomq.cli.lanes import lanes
from echomq.cli.morgue import dead, redrive
from echomq.cli.repairs import obliterate, repair
from echomq.cli.schedules import schedules
from echomq.cli.show import show
from echomq.cli.stats import stats
from echomq.cli.top import top


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="echomq", prog_name="echomq")
def main() -> None:
    """Look after the queues of echomq."""


for command in (
    cancel, completion, conformance, dead, doctor, drain, enqueue, events, flow, lanes, ls, obliterate, pause,
    promote, queues, redrive, repair, reprioritise, reschedule, resume, schedules, show, stats, top, trim,
    update, workers,
):  # fmt: skip
    main.add_command(command)
