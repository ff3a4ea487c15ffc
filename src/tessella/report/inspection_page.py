"""The page of an inspection: one file that asks nothing of a network, and shows who looks where.

Several inspections of one name are the training steps of one model, which the page has a slider for. Inspections of
different names stand side by side on the same images. Names, labels and notes come from outside: they travel as JSON
and are set as text, never as markup, and the page's policy lets no script run but its own.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tessella.probe.inspection import Inspection
from tessella.report.inspection_data import Cargo, cargo
from tessella.report.shell import Html, asset, closed_document, escape
from tessella.runs.folder import checked_folder, write_text

LIMIT = 13_000_000
"""Characters of attention that a page may carry, however many models it compares: it opens fast, and mails."""

STYLES = ("page.css", "inspection.css")
SCRIPTS = (
    "elements.js",
    "theme.js",
    "inspection-data.js",
    "inspection-pictures.js",
    "inspection-attention.js",
    "inspection-map.js",
    "inspection-columns.js",
    "inspection.js",
)


def write_page(inspections: Sequence[Inspection], folder: Path | str, limit: int = LIMIT) -> Path:
    """Writes `inspection.html` into the folder, whole or not at all, and returns its path."""
    content = document(inspections, limit)
    folder = Path(folder)
    checked_folder(folder)
    path = folder / "inspection.html"
    write_text(path, content)
    return path


def document(inspections: Sequence[Inspection], limit: int = LIMIT) -> Html:
    """The page as a whole HTML document."""
    carried = cargo(inspections, limit)
    names = list(dict.fromkeys(inspection.name for inspection in inspections))
    style = "".join(map(asset, STYLES))
    script = "".join(map(asset, SCRIPTS))
    title = f"What {_listed(names)} {'has' if len(names) == 1 else 'have'} learnt about space"
    frame = asset("inspection.html").replace("{title}", escape(title)).replace("{closeness}", _closeness(carried))
    return closed_document(title, f"{frame}\n{_data(carried)}", style, script)


def _data(carried: Cargo) -> Html:
    # "<" never stands in the script's text, so that no string in the data can end it.
    meta = json.dumps(carried.meta, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    blocks = "".join(
        f'<script type="application/base64" id="block-{key}">{text}</script>\n' for key, text in carried.blocks.items()
    )
    return f'<script type="application/json" id="meta">{meta}</script>\n{blocks}'


def _closeness(carried: Cargo) -> Html:
    """How far a shown weight can be from the model's."""
    levels = carried.meta["levels"]
    single, mean = (f"{100 / levels[kind]:.2g} %" for kind in ("single", "mean"))
    return single if single == mean or not carried.meta["pictures"] else f"{single} (in means over images, {mean})"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
