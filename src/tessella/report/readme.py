"""The tables of README.md and docs/results.md, rendered from the JSON files under results/: no figure there is typed.

The README has a row for each verdict, with the bars that were missed or else the first few; docs/results.md has every
measurement of every verdict.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tessella.claims.catalogue import MODULES
from tessella.report.wording import number
from tessella.runs.folder import write_text

BLOCK = re.compile(r"(<!-- results: (?P<name>[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
DOCUMENTS = ("README.md", "docs/results.md")
"""What has blocks to fill; the first must be there."""
SHOWN = 3
"""How many bars of a claim its row in the README spells out."""


def rendered(text: str, results: Path) -> str:
    """The text with every block `<!-- results: NAME -->` filled anew."""
    return BLOCK.sub(lambda found: found[1] + _render(found["name"], results) + found[3], text)


def update(root: Path, check: bool) -> list[str]:
    """Writes the documents whose tables differ from results/, unless only checking; names those that differed."""
    if not (root / DOCUMENTS[0]).exists():
        raise ValueError(f"root: got {root}, which has no {DOCUMENTS[0]}, expected the folder of the project")
    differed = []
    for name in DOCUMENTS:
        path = root / name
        if not path.exists():
            continue
        before = path.read_text()
        after = rendered(before, root / "results")
        if after != before:
            differed.append(name)
            if not check:
                write_text(path, after)
    return differed


def _render(name: str, results: Path) -> str:
    renderers = {"claims": _claims, "benches": _benches, "details": _details}
    if name not in renderers:
        raise ValueError(f"results: got the block {name!r}, expected one of {', '.join(renderers)}")
    return renderers[name](results)


def _claims(results: Path) -> str:
    """Larger set-ups of what also ran at its defaults stand in docs/results.md alone."""
    every = _verdicts(results)
    at_defaults = {record["claim"] for record in every if " --full" not in record["command"]}
    records = [record for record in every if " --full" not in record["command"] or record["claim"] not in at_defaults]
    lines = ["| claim | verdict | measured: mean [95 % interval] | n | command |", "| --- | --- | --- | --- | --- |"]
    for record in records:
        missed = record.get("missed", [])
        names = [*missed, *(name for name in record["bar"] if name not in missed)]
        cells = [f"{'✗ ' if name in missed else ''}{_against_bar(record, name)}" for name in names[:SHOWN]]
        if len(names) > SHOWN:
            unmet = max(len(missed) - SHOWN, 0)
            cells.append(f"and {len(names) - SHOWN} more, {f'{unmet} of them missed' if unmet else 'met'}")
        counts = sorted({record["measured"][name].get("n", record["seeds"]) for name in names[:SHOWN]})
        n = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        name = f"{record['claim']}{_images(record)}"
        lines.append(f"| {name} | {_verdict(record)} | {'<br>'.join(cells)} | {n} | `{record['command']}` |")
    return "\n".join([*lines, "", *_places(records), ""])


def _benches(results: Path) -> str:
    """A table for each machine, so that no row is read beside one that was measured elsewhere."""
    by_place: dict[str, list[dict[str, Any]]] = {}
    for record in _read_all(results):
        if "bench" in record:
            by_place.setdefault(_place(record["environment"]), []).append(record)
    return "\n".join(line for _, records in sorted(by_place.items()) for line in _bench_table(records))


def _bench_table(records: list[dict[str, Any]]) -> list[str]:
    lines = [
        "| benchmark | case | ours, ms | against | theirs, ms | ratio | share of the floor |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for record in records:
        threads = record.get("threads")
        name = record["bench"] if threads is None else f"{record['bench']}, {threads} thread{'s'[: threads != 1]}"
        for case in record["cases"]:
            share = case.get("share_of_floor")
            cells = (
                name,
                case["case"],
                "not run" if case["ours_ms"] is None else number(case["ours_ms"], 3),
                case.get("peer", ""),
                _number(case.get("peer_ms"), 3),
                _number(case.get("ratio"), 3),
                "" if share is None else f"{100 * share:.0f} %",
            )
            lines.append("| " + " | ".join(cells) + " |")
    return [*lines, "", *_places(records), ""]


def _details(results: Path) -> str:
    """A section for each verdict, with everything that it measured."""
    sections = []
    for record in _verdicts(results):
        full = " --full" if " --full" in record["command"] else ""
        made = record["environment"]
        time = f"{number(record['seconds'])} s"
        if record.get("cpu_seconds") is not None:
            time += f" ({number(record['cpu_seconds'])} s of processor time)"
        lines = [
            f"## {record['claim']}{full}{_images(record)}: {_verdict(record)}",
            "",
            record["statement"],
            "",
            f"`{record['command']}`; {time}; {_place(made)}; commit {made['commit']}.",
            "",
            *(f"- {reason}" for reason in record.get("reasons", [])),
            *([""] if record.get("reasons") else []),
            "| measured | mean | 95 % interval | n | bar | |",
            "| --- | --- | --- | --- | --- | --- |",
        ]
        for name, values in record["measured"].items():
            bar = record["bar"].get(name, "")
            met = "" if not bar else "✗ missed" if name in record.get("missed", []) else "met"
            spread = "" if values["low"] == values["high"] else f"{_number(values['low'])} to {_number(values['high'])}"
            row = (name, _number(values["mean"]), spread, str(values.get("n", "")), _bar(bar), met)
            lines.append("| " + " | ".join(row) + " |")
        sections.append("\n".join([*lines, ""]))
    return "\n".join(sections)


def _images(record: dict[str, Any]) -> str:
    """On which images, for claims that need some: a verdict on digits says nothing of ImageNet."""
    data = record["config"].get("data")
    return "" if data is None else f" on {data}"


def _verdict(record: dict[str, Any]) -> str:
    return "holds" if record["holds"] else "does not hold"


def _against_bar(record: dict[str, Any], name: str) -> str:
    return f"{name} {_interval(record['measured'][name])}, bar {_bar(record['bar'][name])}"


def _bar(text: str) -> str:
    """`>= 1 (every run)` as people write it."""
    for written, meant in ((">=", "≥"), ("<=", "≤"), (" (every run)", " in every run"), (" (mean)", "")):
        text = text.replace(written, meant)
    return text.replace("-", "\u2212")


def _places(records: Iterable[dict[str, Any]]) -> list[str]:
    """One line for each machine that results came from, with the commits that were run."""
    commits: dict[str, list[str]] = {}
    for record in records:
        of_this = commits.setdefault(_place(record["environment"]), [])
        if (commit := str(record["environment"]["commit"])) not in of_this:
            of_this.append(commit)
    return [f"Measured on {place}; at commit {', '.join(sorted(found))}." for place, found in sorted(commits.items())]


def _place(made: dict[str, Any]) -> str:
    where = made["accelerator"] or f"{made['processor']}, {made['cores']} cores"
    return f"{where}; Python {made['python']}, torch {made['torch']}"


def _interval(values: dict[str, float | None]) -> str:
    """Three digits, for the README; docs/results.md has them to four."""
    if values["mean"] is None:
        return "no finite number"
    mean, low, high = (_number(values[name], 3) for name in ("mean", "low", "high"))
    return mean if values["low"] == values["high"] else f"{mean} [{low}, {high}]"


def _number(value: float | None, digits: int = 4) -> str:
    return "" if value is None else number(value, digits)


def _verdicts(results: Path) -> list[dict[str, Any]]:
    """Those of claims, in the order in which the papers state them, `--full` and changed set-ups after the default."""
    order = {name: place for place, name in enumerate(MODULES)}
    found = [record for record in _read_all(results) if "claim" in record]
    return sorted(found, key=lambda record: (order.get(record["claim"], len(order)), len(record["command"])))


def _read_all(results: Path) -> list[dict[str, Any]]:
    return [_read(path) for path in sorted(results.glob("*.json"))]


def _read(path: Path) -> dict[str, Any]:
    try:
        record: dict[str, Any] = json.loads(path.read_text())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"results: got {path}, which is not JSON ({error})") from error
    if not isinstance(record, dict) or not ("claim" in record or "bench" in record) or "environment" not in record:
        raise ValueError(f"results: got {path}, expected one verdict or one benchmark, as --save and --json write them")
    return record
