"""Views of a descent on (E) that the pages of Theorem 4.2 and Figure 4 share."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from tessella.dynamics.descent import Trajectory
from tessella.report import figures
from tessella.report.elements import Chart, Html, Images, Player, player
from tessella.structure.partition import Partition


def figure4(partition: Partition, trajectory: Trajectory) -> Figure:
    """The paper's Figure 4: true sets, learnt A, test error, and cos(v, w*)."""
    drawn, (true, learnt, error, cosine) = figures.panels(4, width=2.5, height=2.4)
    attention = trajectory.snapshots[max(trajectory.snapshots)].numpy()
    figures.matrix(true, partition.same_set.numpy().astype(float), "pairs in one set", "Greys", bar=False)
    figures.matrix(learnt, off_diagonal(attention), "learnt A (off the diagonal)")
    steps = trajectory.column("step")
    figures.curves(error, steps, {"error": trajectory.column("error")}, title="test error")
    figures.curves(cosine, steps, {"cosine": trajectory.column("cosine")}, title="cos(v, w*)")
    error.set_ylim(bottom=0)
    cosine.set_ylim(top=1.02)
    return drawn


def training_player(name: str, partition: Partition, trajectory: Trajectory, caption: str) -> Html:
    """A slider over the snapshots of A, sorted by set, with the curves of A and v."""
    steps = trajectory.column("step")
    places = sorted(trajectory.snapshots)
    order = partition.order
    frames = np.stack([off_diagonal(trajectory.snapshots[step].numpy())[np.ix_(order, order)] for step in places])
    at_places = [trajectory.states[steps.index(step)] for step in places]
    spec = Player(
        name=name,
        places=places,
        images=[
            Images(
                "A, patches sorted by set",
                frames,
                colours="diverging",
                description="Matrix A with patches sorted by set: blocks along the diagonal grow as the sets are found",
                blocks=np.cumsum(partition.sizes)[:-1].tolist(),
            )
        ],
        charts=[
            Chart(
                "A within and between sets",
                "mean of A",
                {"within sets": trajectory.column("within_mean"), "between sets": trajectory.column("between_mean")},
                steps,
            ),
            Chart("The feature", "alpha = <v, w*>", {"alpha": trajectory.column("alpha")}, steps),
            Chart("Test error", "share of wrong labels", {"error": trajectory.column("error")}, steps),
        ],
        readouts={
            "loss": [state.loss for state in at_places],
            "test error": [state.error for state in at_places],
            "cos(v, w*)": [state.cosine for state in at_places],
            "share of exact rows": [state.exact_rows for state in at_places],
        },
        caption=caption,
    )
    return player(spec)


def off_diagonal(attention: np.ndarray) -> np.ndarray:
    """A with its fixed diagonal, which training leaves alone, set to the mean of the rest so that it does not show."""
    shown = attention.astype(np.float64).copy()
    hidden = np.eye(len(shown), dtype=bool)
    shown[hidden] = shown[~hidden].mean() if len(shown) > 1 else 0.0
    return shown
