"""The page of an inspection: one file that asks nothing of a network, and shows who looks where.

Several inspections of one name are the training steps of one model, which the page has a slider for. Inspections of
different names stand side by side on the same images. Names, labels and notes come from outside: they travel as JSON
and are set as text, never as markup, and the page's policy lets no script run but its own.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from tessella.probe.inspection import Inspection
from tessella.report.elements import Html, asset, escape
from tessella.report.inspection_data import Cargo, cargo
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


def write_page(inspections: Sequence[Inspection], folder: Path, limit: int = LIMIT) -> Path:
    """Writes `inspection.html` into the folder, whole or not at all, and returns its path."""
    content = document(inspections, limit)
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
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy(style, script)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{escape(title)}</title>
<style>{style}</style>
</head>
<body>
{frame}
{_data(carried)}
<script>{script}</script>
</body>
</html>
"""


def policy(style: str, script: str) -> str:
    """Lets the page's own script and style run, and pictures that it carries be drawn; nothing else, and no network."""

    def hashed(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    return (
        f"default-src 'none'; script-src {hashed(script)}; style-src {hashed(style)}; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


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
