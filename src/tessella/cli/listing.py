"""`tessella list`."""

from __future__ import annotations

import argparse

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from tessella.claims import catalogue


def run(options: argparse.Namespace) -> int:
    console = Console()
    for claim_id in catalogue.MODULES:
        claim = catalogue.load(claim_id)
        console.print(Text.assemble((claim.id, "bold"), "  ", (claim.source, "dim")), soft_wrap=not console.is_terminal)
        console.print(Padding(Text(claim.statement), (0, 0, 1, 4)))
    return 0
