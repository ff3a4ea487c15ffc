"""`tessella readme`."""

from __future__ import annotations

import argparse
import sys

from tessella.report.readme import update


def run(options: argparse.Namespace) -> int:
    differed = update(options.root, options.check)
    if differed and options.check:
        print(f"tessella: {' and '.join(differed)} differ from results/; run `tessella readme`", file=sys.stderr)
        return 1
    return 0
