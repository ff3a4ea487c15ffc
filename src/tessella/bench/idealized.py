"""The exact idealized process: one loss and gradient against Monte Carlo on full X, and whole trajectories.

    tessella bench idealized --json -

The peer has its 2,000 samples of X in memory already and is charged only for the loss and gradient on them, by the
closed form in slices or by autograd, in float32 or float64, whichever is fastest. The floor is what every state needs:
to be multiplied by the coefficients once and by its share once, one exponential and one logarithm. Trajectories start
from nothing: the law is built, the flow is solved through all three events down to a loss of 1e-4, and the events are
detected. The last cases ask how dense the spurious features may be.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tessella.bench.benchmark import Case, median_ms, side_by_side
from tessella.dynamics.idealized import Idealized, IdealizedProblem, Scalars
from tessella.dynamics.idealized_flow import events, flow
from tessella.dynamics.set_law import LawTooLarge, exact_law
from tessella.models.simplified_vit import Activation, SimplifiedViT, loss_gradient
from tessella.structure.partition import Partition
from tessella.worlds.signal_sets import SignalSets

PATHS = ((1_000, 9, 1e-6), (10_000, 16, 1e-8), (1_000_000, 16, 1e-10), (100_000_000, 16, 1e-12), (10**12, 16, 1e-16))
"""(D, lambda, nu) of the trajectories."""
DENSE = ((196, 16), (64, 8), (64, 16), (1_000_000, 100), (1_000_000, 1_000))
"""(D, lambda) of the dense laws."""

_AT_A_TIME = 100
_COLUMNS = 6
"""Numbers a state for p = 3."""


def monte_carlo_case(repeats: int, samples: int = 2_000, expected: float = 4.0) -> Case:
    """One loss and gradient at D = d = 196, C = 4."""
    problem = IdealizedProblem(196, 4, expected / 192, 3, 1e-2, 2.0)
    idealized, at = Idealized(problem), Scalars(0.08, 0.5, -0.01)
    states = np.random.default_rng(0).random((_COLUMNS, idealized.law.states))
    coefficients, margins = np.ones(_COLUMNS), idealized.margins(at)

    def floor() -> object:
        return coefficients @ states, np.exp(margins), np.log(states[0]), states @ margins

    # Ours is timed in the same rounds as its peers, a hundred at a time: one alone is about as short as a timer's tick.
    calls: dict[str, Callable[[], object]] = {
        "ours": lambda: [idealized.loss_and_gradient(at) for _ in range(_AT_A_TIME)],
        "floor": lambda: [floor() for _ in range(_AT_A_TIME)],
    }
    for dtype in (torch.float32, torch.float64):
        partition = Partition.blocks(14, 14, 2, 2)
        batch = SignalSets(partition, 196, problem.spurious).sample(samples, 0, dtype)
        same = partition.same_set.to(dtype)
        attention = (at.gamma * same + at.rho * (1 - same)).fill_diagonal_(problem.diagonal)
        value = at.alpha * torch.eye(196, dtype=dtype)[0]
        model = SimplifiedViT(attention, value, Activation(3, problem.linear))

        def autograd(model: SimplifiedViT = model, batch: Any = batch) -> None:
            loss = torch.nn.functional.softplus(-batch.label * model(batch.patches)).mean()
            torch.autograd.grad(loss, list(model.parameters()))

        def closed(model: SimplifiedViT = model, batch: Any = batch) -> None:
            loss_gradient(model, batch.patches, batch.label)

        name = str(dtype).removeprefix("torch.")
        calls |= {f"closed form, {name}": closed, f"autograd, {name}": autograd}
    peers = side_by_side(calls, "cpu", repeats)
    ours_ms, floor_ms = peers.pop("ours") / _AT_A_TIME, peers.pop("floor") / _AT_A_TIME
    peer, peer_ms = min(peers.items(), key=lambda item: item[1])
    losses = np.logaddexp(0.0, -idealized.margins(at))
    mean = idealized.law.mass @ losses
    return Case(
        f"loss and gradient, D = d = 196, lambda = {expected:g}",
        ours_ms,
        f"Monte Carlo on {samples} samples of X in memory, {peer}",
        peer_ms,
        floor_ms,
        more={
            "states": idealized.law.states,
            "lost": idealized.law.lost,
            "peer_standard_error": math.sqrt(float(idealized.law.mass @ (losses - mean) ** 2) / samples),
            "peers_ms": peers,
        },
    )


def trajectory_case(patches: int, expected: float, linear: float, repeats: int) -> Case:
    """A whole run of (P) through its three events, set-up included."""
    problem = IdealizedProblem(patches, 4, expected / (patches - 4), 3, linear, 2.0)
    ends = []

    def whole() -> None:
        idealized = Idealized(problem)
        path = flow(idealized)
        ends.append((idealized.law, path, events(idealized, path)))

    ours_ms = median_ms(whole, repeats=repeats, warm_up=1)
    law, path, found = ends[-1]
    return Case(
        f"trajectory, D = {patches:,}, lambda = {expected:g}, nu = {linear:g}",
        ours_ms,
        more={
            "states": law.states,
            "lost": law.lost,
            "final_loss": float(path.loss[-1]),
            "events_in_order": found.in_order,
        },
    )


def density_case(patches: int, expected: float, repeats: int, most_states: int = 1_000_000) -> Case:
    """Set-up of an exact law, and one loss and gradient with it."""
    spurious = expected / (patches - 4)
    name = f"exact law, D = {patches:,}, lambda = {expected:g}, q = {spurious:.3g}"
    started = time.perf_counter()
    try:
        law = exact_law(patches, 4, spurious, most_states=most_states)
    except LawTooLarge as error:
        return Case(name, None, more={"setup_ms": 1e3 * (time.perf_counter() - started), "ends": str(error)})
    setup_ms = 1e3 * (time.perf_counter() - started)
    idealized = Idealized(IdealizedProblem(patches, 4, spurious, 3, 1e-2, 2.0), law)
    at = Scalars(0.4 * patches ** (-1 / 3), 0.5, 0.0)
    ours_ms = median_ms(lambda: idealized.loss_and_gradient(at), repeats=repeats)
    return Case(name, ours_ms, more={"setup_ms": setup_ms, "states": law.states, "lost": law.lost})


def cases(device: str, repeats: int = 10) -> list[Case]:
    """All cases. The engine runs on the CPU alone, as does its peer, whatever the device."""
    return [
        monte_carlo_case(repeats),
        *(trajectory_case(*path, max(repeats // 3, 1)) for path in PATHS),
        *(density_case(*dense, repeats) for dense in DENSE),
    ]
