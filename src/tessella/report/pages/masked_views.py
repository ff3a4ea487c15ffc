"""Views of masked training that several pages share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tessella.claims.masked_settings import Trained
from tessella.report.elements import Chart, Html, Images, Player, player, prose

SHOWN = 3
"""Clusters whose maps a page shows; the others look alike."""


def introduction() -> Html:
    """What is trained on what, for someone who has not read the paper."""
    return prose(
        "Each image belongs to one of several clusters, and each cluster cuts the image into areas of its own: "
        "one large, "
        "global area and several small, local ones. All patches of an area show the same feature. Half of the patches "
        "are hidden, and a transformer with one layer of attention has to rebuild them from the others.",
        "A hidden patch cannot say what it showed. It can only know where it is, and look at what the others show. To "
        "rebuild it the model must learn, for each position and each cluster, which feature belongs there: the "
        "correlation of a position with a feature, called Phi. Correlations between positions, called Ups, do not "
        "depend on the cluster and cannot do that.",
    )


def training_player(run: Trained, name: str = "training") -> Html:
    """A slider through training: attention between areas for each cluster, correlations, and the excess loss."""
    frames = run.maps.transpose(1, 0, 2, 3)[:SHOWN]
    images = [
        Images(
            f"cluster {k + 1}",
            each,
            low=0.0,
            high=1.0,
            description=(
                f"Attention of the masked patches of one area (rows) on another (columns) in cluster {k + 1}: the "
                "diagonal brightens as each patch learns to attend to its own area"
            ),
        )
        for k, each in enumerate(frames)
    ]
    spec = Player(
        name=name,
        places=run.steps,
        images=images,
        charts=[
            Chart("Correlations", "mean correlation", run.curves, run.steps),
            Chart("What is left to learn", "loss above its floor", {"excess": run.excess}, run.steps, log_y=True),
        ],
        readouts={"loss above its floor": run.excess, "own attention, mean over areas": _diagonals(run)},
        caption=(
            f"Setting {run.label}, the first seed. Rows are the area of the masked patch that asks, columns the area "
            "that it attends to; the first area is the global one. Look for the diagonal."
        ),
    )
    return player(spec)


def _diagonals(run: Trained) -> Sequence[float]:
    return [float(np.diagonal(each, axis1=1, axis2=2).mean()) for each in run.maps]


def largest_gap(runs: Sequence[Trained]) -> Trained:
    """The run in which the phases are clearest."""
    return max(runs, key=lambda run: run.information_gap)


def smallest_gap(runs: Sequence[Trained]) -> Trained:
    return min(runs, key=lambda run: run.information_gap)
