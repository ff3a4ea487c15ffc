"""`tessella data`: images brought into the form that training reads, checked, and looked at."""

from __future__ import annotations

import argparse
import contextlib
import time
from pathlib import Path

from tessella.cli.progress import Bars
from tessella.runs.folder import checked_file


def run(options: argparse.Namespace) -> int:
    done: int = {"prepare": _prepare, "check": _check, "show": _show}[options.action](options)
    return done


def _prepare(options: argparse.Namespace) -> int:
    from tessella.images.preparing import prepare

    to = options.to or Path("data") / options.name
    started = time.perf_counter()
    with Bars() as bars:
        manifest = prepare(
            options.name,
            options.source,
            to,
            options.size,
            options.workers,
            lambda fraction, detail: bars.tell(options.name, fraction, detail),
        )
    seconds = time.perf_counter() - started
    number = sum(shape[0] for shape in manifest.shapes.values())
    for split, shape in manifest.shapes.items():
        print(f"{split}: {shape[0]:,} images of {shape[2]} x {shape[1]} pixels, {len(manifest.classes):,} classes")
    print(f"{seconds:.1f} s, {number / seconds:,.0f} images/s; kept in {to}: --data {to}")
    return 0


def _check(options: argparse.Namespace) -> int:
    from tessella.images.cache import is_cache, verify
    from tessella.images.found import found

    if not is_cache(options.path):
        raise ValueError(f"data: looked for a prepared folder, found {found(options.path)}")
    with Bars() as bars:
        manifest = verify(options.path, lambda fraction: bars.tell("checksums", fraction, ""))
    for kept in manifest.files:
        print(f"{kept.name}: {kept.bytes:,} bytes, as they were prepared")
    return 0


def _show(options: argparse.Namespace) -> int:
    from tessella.images.catalogue import open_split
    from tessella.images.examples import examples
    from tessella.images.found import MissingSplitError
    from tessella.report.contact_sheet import MOST_CLASSES, contact_sheet, described, each_of
    from tessella.report.figures import save

    to = options.to or Path(f"{options.name}.png")
    if to.suffix not in (".png", ".svg", ".pdf"):
        raise ValueError(f"to: got {to}, expected a name that ends in .png, .svg or .pdf")
    checked_file(to)
    train = open_split(options.name, "train", options.source)
    shown = [examples(train, each_of(len(train.classes)), MOST_CLASSES)]
    with contextlib.suppress(MissingSplitError):
        shown.append(examples(open_split(options.name, "test", options.source), 1, 1))
    save(contact_sheet(shown[0], shown[1:]), to)
    for split in shown:
        print(f"{described(split)}; {split.counts.sum():,} in all")
    print(f"drawn in {to}")
    return 0
