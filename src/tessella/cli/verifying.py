"""`tessella verify`: claims run, with a line for each as it ends, and JSON and pages where asked for."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tessella.claims.catalogue import load
from tessella.claims.claim import Verdict
from tessella.claims.verify import Request, check_needs, verify_all
from tessella.cli.fields import changed
from tessella.cli.progress import Bars
from tessella.dynamics.descent import DivergenceError
from tessella.report.wording import number
from tessella.runs.device import checked_device
from tessella.runs.folder import checked_file, checked_folder, write_json

_WIDTH = 120
"""Columns of what is printed where there is no terminal."""


def run(options: argparse.Namespace) -> int:
    data, fields = _data(options.data), list(options.fields)
    if data is not None and data[0] is not None:
        fields.insert(0, f"data={data[0]}")  # first, since a set-up's recipe may follow its data
    request = Request(
        tuple(options.ids),
        options.seeds,
        options.full,
        checked_device(options.device),
        options.folder,
        None if data is None else data[1],
        _configs(options, fields),
    )
    check_needs(request.ids)
    to_stdout = options.json is not None and str(options.json) == "-"
    for folder in (options.page, options.folder, options.save):
        if folder is not None:
            checked_folder(folder)
    if options.json is not None and not to_stdout:
        checked_file(options.json)
    # A pipe or a file has no width of its own, and rich would take it for 80 columns.
    width = None if sys.stdout.isatty() else _WIDTH
    console = Console(stderr=to_stdout, highlight=False, width=width)
    verdicts: dict[str, Verdict] = {}
    try:
        with Bars(shown=not to_stdout) as bars:
            for verdict in verify_all(request, options.jobs, bars.tell):
                bars.done(verdict.claim.id)
                verdicts[verdict.claim.id] = verdict
                if options.save is not None:
                    _save(verdict, options, fields)
                if not to_stdout:
                    bars.say(_line(verdict), console)
    except DivergenceError as error:
        print(f"tessella: {error}", file=sys.stderr)
        return 1
    ordered = [verdicts[claim_id] for claim_id in options.ids]
    if to_stdout:
        print(json.dumps([verdict.as_json() for verdict in ordered], indent=2, allow_nan=False))
    elif options.json is not None:
        write_json(options.json, [verdict.as_json() for verdict in ordered])
    if not to_stdout:
        _summary(console, ordered)
    if options.page is not None:
        from tessella.report.page import write_pages

        index = write_pages(ordered, options.page, options.command_line)
        print(f"page: {index.resolve()}", file=sys.stderr if to_stdout else sys.stdout)
    return 0 if all(verdict.holds for verdict in ordered) else 1


def _data(text: str | None) -> tuple[str | None, Path] | None:
    """NAME=PATH or PATH; a path that is there is never taken apart."""
    if text is None:
        return None
    named = re.fullmatch(r"([a-z][a-z0-9_-]*)=(.+)", text)
    return (None, Path(text)) if named is None or Path(text).exists() else (named[1], Path(named[2]))


def _configs(options: argparse.Namespace, fields: list[str]) -> dict[str, Any]:
    """The set-ups that --set and --data change, by claim."""
    configs: dict[str, Any] = {}
    for claim_id in options.ids:
        claim = load(claim_id)
        config = claim.full if options.full else claim.default
        if options.data is not None and not hasattr(config, "data"):
            raise ValueError(f"data: got {options.data!r}, but {claim_id} reads no images; name the claims that do")
        try:
            configs[claim_id] = changed(config, fields)
        except ValueError as error:
            raise ValueError(f"{claim_id}: {error}") from error
    return configs


def _line(verdict: Verdict) -> str:
    mark = "[bold blue]✓ holds[/]" if verdict.holds else "[bold dark_orange]✗ does not hold[/]"
    seeds = "1 seed" if verdict.seeds == 1 else f"{verdict.seeds} seeds"
    return f"{mark}  [bold]{verdict.claim.id}[/]  ({seeds}, {verdict.seconds:.1f} s)"


def _summary(console: Console, verdicts: list[Verdict]) -> None:
    shown = Table("claim", box=None, pad_edge=False, header_style="bold")
    shown.add_column("measured", overflow="fold")
    for heading in ("mean", "95 % interval", "bar", ""):
        shown.add_column(heading)
    for verdict in verdicts:
        texts = verdict.as_json()["bar"]
        missed = {bar.measurement for bar in verdict.missed}
        for place, (name, interval) in enumerate(verdict.intervals.items()):
            spread = f"{number(interval.low)} to {number(interval.high)}" if interval.low != interval.high else ""
            met = "" if name not in texts else "[dark_orange]missed[/]" if name in missed else "[blue]met[/]"
            claim = verdict.claim.id if place == 0 else ""
            bar = texts.get(name, "").replace(" (mean)", "")
            shown.add_row(claim, name, number(interval.mean), spread, bar, met)
    console.print()
    console.print(shown)
    for verdict in verdicts:
        for reason in verdict.reasons:
            console.print(f"[dark_orange]{verdict.claim.id}[/]: {reason}")
    held = sum(verdict.holds for verdict in verdicts)
    console.print(f"\n{held} of {len(verdicts)} claims hold. {verdicts[0].environment if verdicts else ''}")


def _save(verdict: Verdict, options: argparse.Namespace, fields: list[str]) -> None:
    """Writes a verdict as soon as it is there, so that nothing of a long command is lost when it is stopped."""
    claim = verdict.claim
    own = claim.full if options.full else claim.default
    changes = [each for each in fields if changed(own, [each]) != own]
    command = f"tessella verify {claim.id}{' --full' if options.full else ''} --seeds {verdict.seeds}"
    if options.device != "cpu":
        command += f" --device {options.device}"
    if options.data is not None:  # where it lay is nobody else's business
        command += " --data PATH"
    command += "".join(f" --set {shlex.quote(each)}" for each in changes)
    # A changed set-up never takes the place of the claim's own.
    suffix = "".join("-" + re.sub(r"[^\w.=,]+", "", each) for each in changes)
    name = f"{claim.id}{'-full' if options.full else ''}{suffix}.json"
    write_json(options.save / name, {"command": command, **verdict.as_json()})
