"""`tessella inspect`: what models have learnt about space, as a table, as JSON and as a page."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table
from torch import Tensor

from tessella.cli.progress import Bars
from tessella.probe.inspecting import Extent, inspect
from tessella.probe.inspection import Encodings, Inspection
from tessella.probe.named_models import named
from tessella.probe.pictures import pictures
from tessella.probe.run_folders import snapshots
from tessella.probe.subject import Subject
from tessella.report.wording import number
from tessella.runs.device import checked_device
from tessella.runs.folder import checked_file, checked_folder, write_json
from tessella.structure.partition import Partition


def run(options: argparse.Namespace) -> int:
    device = checked_device(options.device)
    to_stdout = options.json is not None and str(options.json) == "-"
    if options.page is not None:
        checked_folder(options.page)
    if options.json is not None and not to_stdout:
        checked_file(options.json)
    extent = Extent(options.layers, options.examples, batch=options.batch)
    partition = None if options.partition is None else _partition(options.partition)
    found = []
    with Bars(shown=not to_stdout) as bars:
        for subject in _subjects(options):
            shown = _shown(subject)
            found.append(
                inspect(
                    subject,
                    pictures(options.images, subject.sight).at_most(options.count),
                    partition=partition,
                    extent=extent,
                    device=device,
                    seed=options.seed,
                    tell=lambda share, what, shown=shown: bars.tell(shown, share, what),  # type: ignore[misc]
                )
            )
            bars.done(shown)
    if to_stdout:
        print(json.dumps([each.as_json() for each in found], indent=2, allow_nan=False))
    else:
        for each in found:
            _print(each)
        if options.json is not None:
            write_json(options.json, [each.as_json() for each in found])
    if options.page is not None:
        from tessella.report.inspection_page import write_page

        path = write_page(found, options.page)
        print(f"page: {path.resolve()}", file=sys.stderr if to_stdout else sys.stdout)
    return 0


def _subjects(options: argparse.Namespace) -> Iterator[Subject]:
    """One model after the other, so that no two are in memory; those of one name are told apart by their weights."""
    models, weights = options.models, options.weights or [None]
    if len(weights) not in (1, len(models)):
        raise ValueError(f"weights: got {len(weights)} for {len(models)} models, expected one for all or one for each")
    weights = weights * len(models) if len(weights) == 1 else weights
    times = Counter(models)
    if any(times[model] > 1 and weights.count(file) > 1 for model, file in zip(models, weights, strict=True)):
        raise ValueError("model: got the same one twice, expected models or weights that differ")
    for model, file in zip(models, weights, strict=True):
        if options.steps:
            if not Path(model).is_dir():
                raise ValueError(f"steps: got {model!r}, expected a run folder, which is all that keeps steps")
            yield from snapshots(Path(model))
            continue
        subject = named(model, file, options.size)
        if times[model] > 1:
            subject = dataclasses.replace(subject, name=f"{subject.name}, {subject.details['weights']}")
        yield subject


def _shown(subject: Subject) -> str:
    return subject.name if subject.step is None else f"{subject.name}, step {subject.step}"


def _partition(path: Path) -> Partition:
    """Labels of the patches as JSON: a list, or a list of rows."""
    try:
        labels = json.loads(path.read_text())
        if not isinstance(labels, list):
            raise ValueError(f"it holds a {type(labels).__name__}")
        rows = [labels] if labels and not isinstance(labels[0], list) else labels
        flat = [label for row in rows for label in row]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ValueError(f"partition: {path} cannot be read ({error}), expected a JSON list of labels") from error
    return Partition.from_labels(flat)


def _print(inspection: Inspection) -> None:
    console = Console(highlight=False)
    grid, patch = inspection.grid, inspection.patch
    step = "" if inspection.step is None else f", step {inspection.step}"
    console.print(f"[bold]{inspection.name}[/]{step} ({inspection.library})", markup=True)
    tokens = f", {', '.join(inspection.prefix)}" if inspection.prefix else ""
    console.print(f"  {grid[0]} x {grid[1]} patches of {patch[0]} x {patch[1]} pixels{tokens}; {_details(inspection)}")
    for encodings in (inspection.encodings, *inspection.encodings.others):
        console.print(f"  {_encodings(encodings)}", markup=False)
    table = Table(box=None, header_style="bold")
    for title in ("", "mean", "first", "last", "random", ""):
        table.add_column(title, no_wrap=True)
    for name, measured in inspection.measures.items():
        values = measured.values
        means = (_mean(each) for each in (values, values[0], values[-1], measured.chance))
        table.add_row(name, *means, measured.unit)
    console.print(table)
    console.print("  Means over heads: of all layers, the first, the last, and with random weights.", style="dim")
    console.print("  The page and the JSON have every head, and say what is measured.\n", style="dim")


def _details(inspection: Inspection) -> str:
    return ", ".join(f"{name} {value}" for name, value in inspection.details.items())


def _encodings(encodings: Encodings) -> str:
    chance = {name: f" (random weights {number(value)})" for name, value in encodings.chance.items()}
    measures = [f"{name} {number(value)}{chance.get(name, '')}" for name, value in encodings.measures.items()]
    return f"encodings: {'; '.join([encodings.kind, encodings.note, *measures])}"


def _mean(values: Tensor) -> str:
    mean = float(values.nanmean())
    return number(mean) if mean == mean else ""
