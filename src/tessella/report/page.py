"""Pages: one self-contained HTML file for each verdict, and an index of them."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from matplotlib.figure import Figure

from tessella.claims.catalogue import MODULES
from tessella.claims.claim import Verdict
from tessella.report import figures
from tessella.report.elements import table
from tessella.report.shell import Html, asset, escape
from tessella.report.wording import number
from tessella.runs.folder import write_text

PLAYER = ("elements.js", "charts.js", "player.js")
"""The scripts that move a claim's page through training."""


@dataclass(frozen=True)
class Section:
    """A heading and what stands under it."""

    heading: str
    body: Html


@dataclass(frozen=True)
class Content:
    """What a claim's page shows besides the verdict and its numbers."""

    title: str
    sections: Sequence[Section]
    figures: Mapping[str, Figure] = field(default_factory=dict)
    """Figures that are also written as vector files for a paper, by file name without the ending."""


def content(verdict: Verdict) -> Content:
    """The claim's own page module says what to show."""
    module = importlib.import_module(f"tessella.report.pages.{MODULES[verdict.claim.id]}")
    with figures.style():
        made: Content = module.content(verdict)
    return made


def write_pages(verdicts: Sequence[Verdict], folder: Path, command: str) -> Path:
    """Writes a page for each verdict, its figures under `figures/`, and the index, whose path it returns."""
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    for verdict in verdicts:
        shown = content(verdict)
        write_text(folder / _file(verdict), page(verdict, shown, command))
        for name, drawn in shown.figures.items():
            for ending in ("pdf", "svg"):
                figures.save(drawn, folder / "figures" / f"{name}.{ending}")
    index = folder / "index.html"
    write_text(index, _index(verdicts, command))
    return index


def page(verdict: Verdict, shown: Content, command: str) -> Html:
    """One verdict as a whole HTML document."""
    sections = "".join(f"<section><h2>{escape(part.heading)}</h2>{part.body}</section>" for part in shown.sections)
    run = f"{verdict.claim.id}, {_seeds(verdict)}, {verdict.seconds:.1f} s"
    why = "".join(f"<li>{escape(reason)}</li>" for reason in verdict.reasons)
    body = f"""<p class="small"><a href="index.html">All claims</a></p>
<h1>{escape(shown.title)}</h1>
<p>{_badge(verdict)} <span class="small">{escape(run)}</span></p>
<p>{escape(verdict.claim.statement)}</p>
<p class="source">{escape(verdict.claim.source)}</p>
{f"<p>What it does not reach:</p><ul>{why}</ul>" if why else ""}
{_numbers(verdict)}
{sections}"""
    return _document(f"{shown.title}: {verdict.claim.id}", body, verdict, command, player=True)


def _numbers(verdict: Verdict) -> Html:
    rows = []
    for name, interval in verdict.intervals.items():
        of_this = [bar for bar in verdict.bars if bar.measurement == name]
        spread = f"{number(interval.low)} to {number(interval.high)}" if interval.low != interval.high else ""
        met = "" if not of_this else "missed" if any(bar in verdict.missed for bar in of_this) else "met"
        count = len(verdict.findings.measured[name])
        rows.append((name, interval.mean, spread, count, " and ".join(map(str, of_this)), met))
    caption = "Means over n values with their 95 % Student intervals, against their bars."
    made = table(("measured", "mean", "95 % interval", "n", "bar", ""), rows, caption)
    return made.replace("<td>met</td>", '<td class="met">✓ met</td>').replace(
        "<td>missed</td>", '<td class="missed">✗ missed</td>'
    )


def _index(verdicts: Sequence[Verdict], command: str) -> Html:
    rows = "".join(
        f'<tr><td><a href="{_file(verdict)}">{escape(verdict.claim.id)}</a></td><td>{_badge(verdict)}</td>'
        f"<td class='text'>{escape(verdict.claim.statement)}<br>"
        f"<span class='small'>{escape(verdict.claim.source)}</span></td>"
        f'<td class="number">{verdict.seconds:.1f} s</td></tr>'
        for verdict in verdicts
    )
    held = sum(verdict.holds for verdict in verdicts)
    body = f"""<h1>Tessella: what vision transformers learn about space</h1>
<p>{held} of {len(verdicts)} claims hold in this run. Each page says what was measured and shows it.</p>
<div class="scroll"><table><thead><tr><th scope="col">claim</th><th scope="col">verdict</th>
<th scope="col">statement</th><th scope="col">time</th></tr></thead><tbody>{rows}</tbody></table></div>"""
    return _document("Tessella: claims", body, verdicts[0] if verdicts else None, command, player=False)


def _document(title: str, body: Html, verdict: Verdict | None, command: str, player: bool) -> Html:
    where = f"<p>{escape(verdict.environment)}</p>" if verdict else ""
    script = f"<script>\n{''.join(map(asset, PLAYER))}</script>" if player else ""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{escape(title)}</title>
<style>
{asset("page.css")}</style>
</head>
<body>
<main>
{body}
</main>
<footer class="small"><p>Made by <code>{escape(command)}</code></p>{where}</footer>
{script}
</body>
</html>
"""


def _badge(verdict: Verdict) -> Html:
    return (
        '<span class="verdict holds">✓ holds</span>'
        if verdict.holds
        else '<span class="verdict fails">✗ does not hold</span>'
    )


def _seeds(verdict: Verdict) -> str:
    return f"{verdict.seeds} seed" if verdict.seeds == 1 else f"{verdict.seeds} seeds"


def _file(verdict: Verdict) -> str:
    return f"{verdict.claim.id}.html"
