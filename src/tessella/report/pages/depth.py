"""The page on depth: A of every layer while two and three layers train."""

from __future__ import annotations

from typing import Any

import numpy as np

from tessella.claims.claim import Verdict
from tessella.report.elements import Chart, Html, Images, Player, player, prose, table
from tessella.report.page import Content, Section
from tessella.report.pages.descent_views import off_diagonal


def content(verdict: Verdict) -> Content:
    runs = verdict.findings.evidence["runs"]
    largest = max(run["patches"] for run in runs)
    sections = [
        Section(
            "What is asked",
            prose(
                "The theorems are about one layer of attention. Does what they say survive in more? Here every layer "
                "has an attention matrix of its own, all trained together on the same data. Sets show as blocks on "
                "the diagonal. With one layer they must be found there; with several, one layer that finds them is "
                "enough, and the others are free."
            ),
        )
    ]
    for run in runs:
        if run["seed"] == 0 and run["patches"] == largest:
            sections.append(Section(f"{run['layers']} layer{'s' * (run['layers'] > 1)}, D = {largest}", _player(run)))
    rows = [
        (
            run["patches"],
            run["layers"],
            run["seed"],
            run["error"][-1],
            layer + 1,
            found.exact_rows,
            found.overlap,
            found.rand_index,
        )
        for run in runs
        for layer, found in enumerate(run["found"])
    ]
    header = ("D", "layers", "seed", "test error", "layer", "exact rows", "overlap", "adjusted Rand index")
    sections.append(Section("Every layer of every run", table(header, rows)))
    return Content("Does association survive depth?", sections)


def _player(run: dict[str, Any]) -> Html:
    order = run["partition"].order
    blocks = np.cumsum(run["partition"].sizes)[:-1].tolist()
    images = []
    for layer in range(run["layers"]):
        frames = np.stack([off_diagonal(logits[layer])[np.ix_(order, order)] for logits in run["logits"]])
        text = f"A of layer {layer + 1}, patches sorted by set"
        images.append(Images(f"A of layer {layer + 1}", frames, colours="diverging", description=text, blocks=blocks))
    spec = Player(
        name=f"layers-{run['layers']}",
        places=run["steps"],
        images=images,
        charts=[
            Chart("Test error", "share of wrong labels", {"error": run["error"]}, run["steps"]),
            Chart("The loss", "loss", {"loss": run["loss"]}, run["steps"], log_y=True),
        ],
        readouts={"test error": run["error"], "loss": run["loss"]},
        caption="Move the slider: the blocks appear in some layers, not always in all.",
    )
    return player(spec)
