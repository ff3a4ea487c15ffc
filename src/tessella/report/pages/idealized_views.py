"""Views of the idealized process that several pages share: its three scalars over time, and one data point in it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from tessella.dynamics.idealized import Idealized, IdealizedProblem, Scalars
from tessella.dynamics.idealized_flow import Events, IdealizedPath
from tessella.dynamics.set_law import SetLaw
from tessella.report import figures
from tessella.report.elements import Chart, Html, Images, Player, player

_TRIES = 10_000


@dataclass(frozen=True)
class DataPoint:
    """Features s_i of one data point with label +1, in which most features are -1; sets are runs of C patches."""

    features: np.ndarray
    """(sets, C); the first set is the signal set."""

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of the picture: whole sets side by side, about as high as wide."""
        sets, size = self.features.shape
        across = max(1, round((sets / size) ** 0.5))
        while sets % across:
            across -= 1
        return sets // across, across * size


def outvoted_point(problem: IdealizedProblem, seed: int = 0, shown_sets: int = 64) -> DataPoint:
    """A data point whose features add up to less than 0 although its label is +1, with its empty sets left out.

    At large D nearly all sets are empty; as many are shown as make the picture, the others add nothing to see. Where
    spurious features are too rare for such a point, as with q = 0, it is an ordinary one.
    """
    generator = np.random.default_rng(seed)
    others = problem.patches - problem.size
    for _ in range(_TRIES):
        count = int(generator.binomial(others, problem.spurious))
        if int(generator.binomial(count, 0.5)) * 2 - count < -problem.size:
            break
    plus = max(0, (count - problem.size - 1) // 2)
    sets = min(shown_sets, problem.patches // problem.size)
    features = np.zeros((sets, problem.size), dtype=np.int64)
    features[0] = 1
    free = generator.permutation(np.arange(problem.size, features.size))[: min(count, features.size - problem.size)]
    features.ravel()[free] = np.where(np.arange(len(free)) < plus, 1, -1)
    return DataPoint(features)


def contributions(idealized: Idealized, at: Scalars, point: DataPoint) -> tuple[np.ndarray, float]:
    """sigma(alpha (a s_i + b t + c T)) of the patches shown, and y F, patches not shown included."""
    problem = idealized.problem
    a, b, c = idealized.response(at)
    total = point.features.sum()
    h = at.alpha * (a * point.features + b * point.features.sum(1, keepdims=True) + c * total)
    empty = at.alpha * c * total
    sigma = h**problem.power + problem.linear * h
    hidden = problem.patches - point.features.size
    return sigma, float(sigma.sum() + hidden * (empty**problem.power + problem.linear * empty))


def process_player(
    name: str, problem: IdealizedProblem, law: SetLaw, path: IdealizedPath, caption: str, places: int = 60
) -> Html:
    """A slider over time that moves alpha, gamma, rho, the loss, and one data point being classified."""
    idealized = Idealized(problem, law)
    # Half of the stops are spread over log time, half over gamma, whose rise is short in log time.
    evenly = np.searchsorted(path.time, np.geomspace(path.time[0], path.time[-1], places // 2))
    rising = np.searchsorted(np.maximum.accumulate(path.gamma), np.linspace(0, path.gamma[-1], places // 2))
    chosen = np.unique(np.clip(np.concatenate([evenly, rising]), 0, len(path.time) - 1))
    point = outvoted_point(problem)
    frames, margins = [], []
    for index in chosen:
        sigma, margin = contributions(idealized, path.at(int(index)), point)
        frames.append((sigma / max(float(np.abs(sigma).max()), 1e-300)).reshape(point.grid))
        margins.append(margin)
    times = path.time.tolist()
    spec = Player(
        name=name,
        places=path.time[chosen].tolist(),
        place_label="time",
        images=[
            Images(
                "what each patch adds",
                np.stack(frames),
                colours="diverging",
                low=-1.0,
                high=1.0,
                description="A grid of patches coloured by what each adds to F; at the end only the signal set counts",
            )
        ],
        charts=[
            Chart("The feature", "alpha", {"alpha": path.alpha.tolist()}, times, "time", log_x=True),
            Chart(
                "Attention",
                "entry of A",
                {"gamma, within sets": path.gamma.tolist(), "rho, between sets": path.rho.tolist()},
                times,
                "time",
                log_x=True,
            ),
            Chart("The loss", "loss", {"loss": path.loss.tolist()}, times, "time", log_x=True, log_y=True),
        ],
        readouts={
            "alpha": path.alpha[chosen].tolist(),
            "gamma": path.gamma[chosen].tolist(),
            "rho": path.rho[chosen].tolist(),
            "loss": path.loss[chosen].tolist(),
            "y F of the data point": margins,
        },
        caption=caption,
    )
    return player(spec)


def process_figure(path: IdealizedPath, found: Events | None = None) -> Figure:
    """alpha, gamma and rho, and the loss over time, with the ends of the events marked."""
    drawn, (feature, attention, loss) = figures.panels(3, width=2.9, height=2.4)
    times = path.time.tolist()
    figures.curves(feature, times, {"alpha": path.alpha.tolist()}, "time", "alpha", "the feature", log_x=True)
    curves = {"gamma": path.gamma.tolist(), "rho": path.rho.tolist()}
    figures.curves(attention, times, curves, "time", "entry of A", "attention", log_x=True)
    figures.curves(loss, times, {"loss": path.loss.tolist()}, "time", "loss", "loss", log_x=True, log_y=True)
    if found is not None:
        for axes in (feature, attention, loss):
            for end in (found.plateau, found.association, found.fit):
                if np.isfinite(end):
                    axes.axvline(end, color="0.6", linewidth=0.8, linestyle=":")
    return drawn
