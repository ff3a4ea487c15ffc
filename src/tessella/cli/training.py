"""`tessella train`: one run in a folder of its own, resumed where it was killed."""

from __future__ import annotations

import argparse
import sys

from rich.console import Console

from tessella.cli.fields import changed
from tessella.cli.progress import Bars
from tessella.dynamics.descent import DivergenceError
from tessella.dynamics.realistic import Realistic
from tessella.dynamics.realistic import run as solve
from tessella.report.wording import number
from tessella.runs.device import checked_device


def run(options: argparse.Namespace) -> int:
    problem = changed(Realistic(), options.fields)
    device = checked_device(options.device)
    try:
        with Bars() as bars:
            outcome = solve(
                problem,
                options.seed,
                device,
                options.folder,
                lambda fraction, detail: bars.tell("signal-sets", fraction, detail),
            )
    except DivergenceError as error:
        print(f"tessella: {error}", file=sys.stderr)
        return 1
    final, found = outcome.final, outcome.association
    console = Console(highlight=False)
    console.print(f"step {final.step}: loss {number(final.loss)}, test error {number(final.error)}")
    console.print(f"cos(v, w*) {number(final.cosine)}, rows associated {number(found.exact_rows)}")
    print(f"kept in {options.folder}")
    return 0
