"""The exact idealized process: one loss and gradient against Monte Carlo on full X, and whole trajectories.

    python -m tessella.bench.idealized --json -

The peer has its 2,000 samples of X in memory already and is charged only for the loss and gradient on them, by the
closed form in slices or by autograd, in float32 or float64, whichever is fastest. Trajectories start from nothing:
the law is built, the flow is solved through all three events down to a loss of 1e-4, and the events are detected.
The last cases ask how dense the spurious features may be.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tessella.dynamics.idealized import Idealized, IdealizedProblem, Scalars
from tessella.dynamics.idealized_flow import events, flow
from tessella.dynamics.set_law import exact_law
from tessella.models.simplified_vit import Activation, SimplifiedViT, loss_gradient
from tessella.runs.environment import environment
from tessella.structure.partition import Partition
from tessella.worlds.signal_sets import SignalSets

PATHS = ((1_000, 9, 1e-6), (10_000, 16, 1e-8), (1_000_000, 16, 1e-10), (100_000_000, 16, 1e-12), (10**12, 16, 1e-16))
"""(D, lambda, nu) of the trajectories."""
DENSE = ((196, 16), (64, 8), (64, 16), (1_000_000, 100), (1_000_000, 1_000))
"""(D, lambda) of the dense laws."""


def monte_carlo_case(repeats: int, samples: int = 2_000, expected: float = 4.0) -> dict[str, Any]:
    """One loss and gradient at D = d = 196, C = 4."""
    problem = IdealizedProblem(196, 4, expected / 192, 3, 1e-2, 2.0)
    idealized, at = Idealized(problem), Scalars(0.08, 0.5, -0.01)
    ours_ms = _median_ms(lambda: idealized.loss_and_gradient(at), 20 * repeats)
    peers = {}
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
        peers[f"closed form, {name}"] = _median_ms(closed, repeats)
        peers[f"autograd, {name}"] = _median_ms(autograd, repeats)
    peer, peer_ms = min(peers.items(), key=lambda item: item[1])
    losses = np.logaddexp(0.0, -idealized.margins(at))
    mean = idealized.law.mass @ losses
    return {
        "case": f"loss and gradient, D = d = 196, lambda = {expected:g}",
        "ours_ms": ours_ms,
        "peer": f"Monte Carlo on {samples} samples of X in memory, {peer}",
        "peer_ms": peer_ms,
        "ratio": peer_ms / ours_ms,
        "peers_ms": peers,
        "states": idealized.law.states,
        "lost": idealized.law.lost,
        "peer_standard_error": math.sqrt(float(idealized.law.mass @ (losses - mean) ** 2) / samples),
    }


def trajectory_case(patches: int, expected: float, linear: float, repeats: int) -> dict[str, Any]:
    """A whole run of (P) through its three events, set-up included."""
    problem = IdealizedProblem(patches, 4, expected / (patches - 4), 3, linear, 2.0)
    ends = []

    def whole() -> None:
        idealized = Idealized(problem)
        path = flow(idealized)
        ends.append((idealized.law, path, events(idealized, path)))

    ours_ms = _median_ms(whole, repeats)
    law, path, found = ends[-1]
    return {
        "case": f"trajectory, D = {patches:,}, lambda = {expected:g}, nu = {linear:g}",
        "ours_ms": ours_ms,
        "states": law.states,
        "lost": law.lost,
        "final_loss": float(path.loss[-1]),
        "events_in_order": found.in_order,
    }


def density_case(patches: int, expected: float, repeats: int, most_states: int = 4_000_000) -> dict[str, Any]:
    """Set-up of an exact law, and one loss and gradient with it."""
    spurious = expected / (patches - 4)
    case: dict[str, Any] = {"case": f"exact law, D = {patches:,}, lambda = {expected:g}, q = {spurious:.3g}"}
    started = time.perf_counter()
    try:
        law = exact_law(patches, 4, spurious, most_states=most_states)
    except ValueError as error:
        return case | {"ours_ms": None, "setup_ms": 1e3 * (time.perf_counter() - started), "ends": str(error)}
    setup_ms = 1e3 * (time.perf_counter() - started)
    idealized = Idealized(IdealizedProblem(patches, 4, spurious, 3, 1e-2, 2.0), law)
    at = Scalars(0.4 * patches ** (-1 / 3), 0.5, 0.0)
    ours_ms = _median_ms(lambda: idealized.loss_and_gradient(at), repeats)
    return case | {"ours_ms": ours_ms, "setup_ms": setup_ms, "states": law.states, "lost": law.lost}


def _median_ms(call: Callable[[], object], repeats: int) -> float:
    """The median of the calls after one to warm up."""
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times[1:])


def measure(repeats: int = 10) -> dict[str, Any]:
    """All cases, in the shared form."""
    cases = [monte_carlo_case(repeats)]
    cases += [trajectory_case(*path, max(repeats // 3, 1)) for path in PATHS]
    cases += [density_case(*dense, repeats) for dense in DENSE]
    place = environment()
    return {
        "bench": "idealized",
        "cases": cases,
        "command": f"python -m tessella.bench.idealized --repeats {repeats}",
        "threads": torch.get_num_threads(),
        "commit": place.commit,
        "environment": dataclasses.asdict(place),
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tessella.bench.idealized", description=__doc__.split("\n")[0])
    parser.add_argument("--repeats", type=int, default=10, help="timed calls of each side, of which the median counts")
    parser.add_argument("--json", metavar="PATH", help="write the result here; - for the terminal")
    given = parser.parse_args(arguments)
    result = measure(given.repeats)
    text = json.dumps(result, indent=2)
    if given.json == "-":
        print(text)
        return 0
    for case in result["cases"]:
        against = f", {case['ratio']:,.0f} times faster than {case['peer']}" if "ratio" in case else ""
        took = "too many states" if case["ours_ms"] is None else f"{case['ours_ms']:.3g} ms"
        print(f"{case['case']}: {took}{against}")
    if given.json:
        Path(given.json).write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
