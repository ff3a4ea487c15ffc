"""The README's tables, rendered from the JSON files under results/, so that no figure in it is typed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tessella.report.wording import number
from tessella.runs.folder import write_text

BLOCK = re.compile(r"(<!-- results: (?P<name>[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def rendered(readme: str, results: Path) -> str:
    """The README's text with every block `<!-- results: NAME -->` filled anew."""
    return BLOCK.sub(lambda found: found[1] + _render(found["name"], results) + found[3], readme)


def update(root: Path, check: bool) -> bool:
    """Writes the README where its tables differ from results/, unless only checking; says whether they differed."""
    path = root / "README.md"
    if not path.exists():
        raise ValueError(f"root: got {root}, which has no README.md, expected the folder of the project")
    before = path.read_text()
    after = rendered(before, root / "results")
    if after != before and not check:
        write_text(path, after)
    return after != before


def _render(name: str, results: Path) -> str:
    renderers = {"claims": _claims, "benches": _benches}
    if name not in renderers:
        raise ValueError(f"README.md: got the block {name!r}, expected one of {', '.join(renderers)}")
    return renderers[name](results)


def _claims(results: Path) -> str:
    records = [_read(path) for path in sorted(results.glob("*.json"))]
    lines = ["| claim | verdict | measured (mean, 95 % interval) | n | command |", "| --- | --- | --- | --- | --- |"]
    for record in records:
        if "claim" not in record:
            continue
        shown = "; ".join(
            f"{measurement} {_interval(record['measured'][measurement])} (bar {bar})"
            for measurement, bar in record["bar"].items()
        )
        verdict = "holds" if record["holds"] else "does not hold"
        lines.append(f"| {record['claim']} | {verdict} | {shown} | {record['seeds']} seeds | `{record['command']}` |")
    return "\n".join([*lines, "", *_places(record for record in records if "claim" in record), ""])


def _benches(results: Path) -> str:
    records = [_read(path) for path in sorted(results.glob("*.json"))]
    lines = ["| benchmark | case | ours, ms | against | theirs, ms | ratio |", "| --- | --- | --- | --- | --- | --- |"]
    for record in records:
        for case in record.get("cases", []):
            peer = (case.get("peer", ""), _number(case.get("peer_ms")), _number(case.get("ratio")))
            cells = (record["bench"], case["case"], _number(case["ours_ms"]), *peer)
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", *_places(record for record in records if "bench" in record), ""])


def _places(records: Any) -> list[str]:
    """One line for each machine that results came from."""
    places = []
    for record in records:
        made = record["environment"]
        where = made["accelerator"] or f"{made['processor']}, {made['cores']} cores"
        places.append(f"Measured on {where}; Python {made['python']}, torch {made['torch']}.")
    return sorted(set(places))


def _interval(values: dict[str, float | None]) -> str:
    if values["low"] == values["high"]:
        return _number(values["mean"])
    return f"{_number(values['mean'])} [{_number(values['low'])}, {_number(values['high'])}]"


def _number(value: float | None) -> str:
    return "" if value is None else number(value)


def _read(path: Path) -> dict[str, Any]:
    try:
        record: dict[str, Any] = json.loads(path.read_text())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"results: got {path}, which is not JSON ({error})") from error
    if not isinstance(record, dict) or not ("claim" in record or "bench" in record) or "environment" not in record:
        raise ValueError(f"results: got {path}, expected one verdict or one benchmark, as --save and --json write them")
    return record
