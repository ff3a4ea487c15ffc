"""`tessella bench`."""

from __future__ import annotations

import argparse
import importlib
import json
from typing import Any

from rich.console import Console

from tessella.bench.benchmark import record
from tessella.cli.main import BENCHES
from tessella.report.wording import number
from tessella.runs.device import checked_device
from tessella.runs.folder import checked_file, write_json


def run(options: argparse.Namespace) -> int:
    device = checked_device(options.device)
    to_stdout = options.json is not None and str(options.json) == "-"
    if options.json is not None and not to_stdout:
        checked_file(options.json)
    if options.picture is not None:
        if options.picture.suffix not in (".png", ".svg", ".pdf"):
            raise ValueError(f"picture: got {options.picture}, expected a name that ends in .png, .svg or .pdf")
        checked_file(options.picture)
    module = importlib.import_module(f"tessella.bench.{BENCHES[options.name]}")
    command = f"tessella bench {options.name}" + (f" --device {device}" if device != "cpu" else "")
    result = record(options.name, module.cases(device), command)
    if options.picture is not None:
        # Drawn only where it is asked for: matplotlib takes a second to import.
        from tessella.report.figures import save
        from tessella.report.speed import speed

        save(speed(result), options.picture)
    if to_stdout:
        print(json.dumps(result, indent=2, allow_nan=False))
        return 0
    if options.json is not None:
        write_json(options.json, result)
    _print(result)
    return 0


def _print(result: dict[str, Any]) -> None:
    console = Console(highlight=False)
    known = {"case", "ours_ms", "peer", "peer_ms", "ratio", "floor_ms", "share_of_floor"}
    for case in result["cases"]:
        console.print(f"[bold]{case['case']}[/]")
        parts = ["not run" if case["ours_ms"] is None else f"{number(case['ours_ms'])} ms"]
        if "ratio" in case:
            parts.append(f"{number(case['peer_ms'])} ms for {case['peer']}, {number(case['ratio'])} times ours")
        if "share_of_floor" in case:
            parts.append(f"floor {number(case['floor_ms'])} ms, {100 * case['share_of_floor']:.0f} % of it reached")
        console.print("  " + "; ".join(parts))
        more = [f"{name} {_short(value)}" for name, value in case.items() if name not in known]
        if more:
            console.print("  " + ", ".join(more), style="dim")
    place = result["environment"]
    console.print(f"{place['accelerator'] or place['processor']}, {result['threads']} threads, torch {place['torch']}")


def _short(value: object) -> str:
    return number(value) if isinstance(value, float) else str(value)
