"""`tessella list`."""

from __future__ import annotations

import argparse

from rich.console import Console
from rich.table import Table

from tessella.claims import catalogue


def run(options: argparse.Namespace) -> int:
    shown = Table("claim", "statement", "source", box=None, pad_edge=False, header_style="bold")
    for claim_id in catalogue.MODULES:
        claim = catalogue.load(claim_id)
        shown.add_row(claim.id, claim.statement, claim.source)
    Console().print(shown)
    return 0
