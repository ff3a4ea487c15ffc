"""The parts that pages are made of, as HTML: prose, tables, figures, and the player that moves through training.

Whatever comes from outside (names, labels, numbers) is escaped here, so that no page has to think of it. Everything is
inside the page: it loads nothing.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from matplotlib.figure import Figure

from tessella.report.shell import Html as Html
from tessella.report.shell import escape as escape
from tessella.report.wording import number


def prose(*paragraphs: str) -> Html:
    """Paragraphs of plain text."""
    return "".join(f"<p>{escape(paragraph)}</p>" for paragraph in paragraphs)


def table(header: Sequence[str], rows: Sequence[Sequence[object]], caption: str = "") -> Html:
    """A table; cells that are numbers are set to the right."""
    head = "".join(f"<th scope='col'>{escape(cell)}</th>" for cell in header)
    body = "".join("<tr>" + "".join(_cell(cell) for cell in row) + "</tr>" for row in rows)
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f"<div class='scroll'><table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def _cell(cell: object) -> Html:
    if isinstance(cell, float | int) and not isinstance(cell, bool):
        return f"<td class='number'>{escape(number(cell))}</td>"
    kind = " class='text'" if len(str(cell)) > 40 else ""
    return f"<td{kind}>{escape(cell)}</td>"


def figure(drawn: Figure, caption: str, description: str) -> Html:
    """A matplotlib figure as vector graphics. `description` is what a reader who does not see it is told."""
    # A wide figure scrolls on a narrow screen rather than shrink until its labels cannot be read.
    kind = "paper wide" if drawn.get_figwidth() > 6 else "paper"
    return (
        f"<figure><div class='{kind}' role='img' aria-label='{escape(description)}'>{svg(drawn)}</div>"
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def svg(drawn: Figure) -> Html:
    """The figure's <svg> element alone, without the date, so that a page is the same however often it is made."""
    buffer = io.StringIO()
    drawn.savefig(buffer, format="svg", bbox_inches="tight", metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]


@dataclass(frozen=True)
class Images:
    """A stack of matrices, one for each place of the slider, all on one colour scale."""

    name: str
    frames: np.ndarray
    """(places, rows, columns)."""
    colours: Literal["sequential", "diverging"] = "sequential"
    low: float | None = None
    high: float | None = None
    description: str = ""
    blocks: Sequence[int] = ()
    """Rows and columns at which to draw a thin line, to tell sets apart."""


@dataclass(frozen=True)
class Chart:
    """Curves over training, with a cursor at the slider's place."""

    title: str
    y_label: str
    series: Mapping[str, Sequence[float]]
    """Named curves, each with one value for each of `x`."""
    x: Sequence[float]
    x_label: str = "step"
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True)
class Player:
    """A slider through training that moves images, cursors in charts, and numbers read out."""

    name: str
    """A word for the page's anchor and for tests, such as `training`."""
    places: Sequence[float]
    """Where the slider stops, in the unit of the charts' x."""
    place_label: str = "step"
    images: Sequence[Images] = ()
    charts: Sequence[Chart] = ()
    readouts: Mapping[str, Sequence[float]] = field(default_factory=dict)
    caption: str = ""


def player(spec: Player) -> Html:
    """The player as HTML; its data travels as JSON beside it, images as base64 bytes."""
    _check(spec)
    data = {
        "places": [float(place) for place in spec.places],
        "placeLabel": spec.place_label,
        "images": [_image_data(images) for images in spec.images],
        "charts": [_chart_data(chart) for chart in spec.charts],
        "readouts": {name: [number(value) for value in values] for name, values in spec.readouts.items()},
    }
    # "<" never stands in the script's text, so that no string in the data can end it.
    text = json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    caption = f"<figcaption>{escape(spec.caption)}</figcaption>" if spec.caption else ""
    name = escape(spec.name)
    return (
        f"<figure class='player' id='{name}'><script type='application/json'>{text}</script>"
        f"<noscript><p>This part needs JavaScript.</p></noscript>{caption}</figure>"
    )


def _check(spec: Player) -> None:
    for images in spec.images:
        if len(images.frames) != len(spec.places):
            got = len(images.frames)
            raise ValueError(f"images {images.name}: got {got} frames, expected {len(spec.places)}, one a place")
    for name, values in spec.readouts.items():
        if len(values) != len(spec.places):
            raise ValueError(f"readouts {name}: got {len(values)} values, expected {len(spec.places)}, one a place")
    for chart in spec.charts:
        for name, curve in chart.series.items():
            if len(curve) != len(chart.x):
                raise ValueError(f"chart {chart.title}: got {len(curve)} values of {name}, expected {len(chart.x)}")


def _image_data(images: Images) -> dict[str, Any]:
    frames = np.asarray(images.frames, dtype=np.float64)
    low = float(frames.min()) if images.low is None else images.low
    high = float(frames.max()) if images.high is None else images.high
    if images.colours == "diverging":
        high = max(abs(low), abs(high))
        low = -high
    span = high - low or 1.0
    levels = np.clip(np.round((frames - low) / span * 255), 0, 255).astype(np.uint8)
    return {
        "name": images.name,
        "rows": int(frames.shape[1]),
        "columns": int(frames.shape[2]),
        "low": low,
        "high": high,
        "colours": images.colours,
        "description": images.description or images.name,
        "blocks": [int(place) for place in images.blocks],
        "frames": [base64.b64encode(frame.tobytes()).decode() for frame in levels],
    }


def _chart_data(chart: Chart) -> dict[str, Any]:
    return {
        "title": chart.title,
        "xLabel": chart.x_label,
        "yLabel": chart.y_label,
        "logX": chart.log_x,
        "logY": chart.log_y,
        "x": [float(x) for x in chart.x],
        "series": [
            {"name": name, "y": [_plottable(value, chart.log_y) for value in values]}
            for name, values in chart.series.items()
        ],
    }


def _plottable(value: float, log: bool) -> float | None:
    """A gap in the curve where a value is not finite, or not positive on a logarithmic axis."""
    plain = float(value)
    return plain if np.isfinite(plain) and (plain > 0 or not log) else None
