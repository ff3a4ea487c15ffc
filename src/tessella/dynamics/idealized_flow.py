"""Gradient descent and gradient flow on (P) in the three scalars, and the three events of Section 4.1.

The paper's update (GD) moves every entry of A by eta times the derivative in that entry, so gamma, which stands for
D (C-1) entries, moves by eta / (D (C-1)) times its derivative, and rho by eta / (D (D-C)). The flow is the limit of
small eta at time eta * steps. Its scales lie orders of magnitude apart (alpha settles before A moves), hence a stiff
solver, and the logarithm of time as its variable.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.integrate import solve_ivp

from tessella.dynamics.idealized import Idealized, Scalars

_DIVERGED = 1e30
"""No scalar of a descent that converges comes near this; its p-th power is still a number."""


@dataclass(frozen=True)
class IdealizedPath:
    """What a run on (P) went through. `time` is eta * steps for descent, so that it compares with the flow's."""

    time: Float[np.ndarray, " times"]
    alpha: Float[np.ndarray, " times"]
    gamma: Float[np.ndarray, " times"]
    rho: Float[np.ndarray, " times"]
    loss: Float[np.ndarray, " times"]
    error: Float[np.ndarray, " times"]
    """P[y F <= 0]."""
    own_set_weight: Float[np.ndarray, " times"]
    """G = D (Lambda + (C-1) Gamma)."""

    def at(self, index: int) -> Scalars:
        return Scalars(float(self.alpha[index]), float(self.gamma[index]), float(self.rho[index]))


@dataclass(frozen=True)
class Events:
    """When the three events end, in time; infinite for what did not happen on the path."""

    plateau: float
    """Event I: alpha has come to within 5 % of `plateau_alpha`."""
    association: float
    """Event II, T_1 of the paper: gamma exceeds the largest |rho| of the whole path."""
    clear_association: float
    """gamma exceeds 1, so that a softmax shows it."""
    fit: float
    """Event III: the loss has fallen to the given target."""
    plateau_alpha: float
    """The alpha of least loss with A at its start: the best generalized linear model in span(w*)."""
    plateau_loss: float
    peak_alpha: float
    """The largest alpha after Event I."""
    final_alpha: float

    @property
    def in_order(self) -> bool:
        """I before III, with II's T_1 before III as well."""
        return self.plateau < self.fit < math.inf and self.association < self.fit


def velocity(idealized: Idealized, at: Scalars) -> Float[np.ndarray, " 3"]:
    """(d alpha, d gamma, d rho) / dt of the gradient flow on the entries of A and on v."""
    return -idealized.entry_gradient(idealized.loss_and_gradient(at)[1])


def descend(
    idealized: Idealized,
    rate: float,
    steps: int,
    start: Scalars | None = None,
    rate_attention: float | None = None,
) -> IdealizedPath:
    """(GD) on (P) with the learning rate `rate`, every step kept; A may have a rate of its own."""
    if not rate > 0:
        raise ValueError(f"rate: got {rate}, expected a positive learning rate")
    rates = np.array([rate, *[rate if rate_attention is None else rate_attention] * 2])
    at = np.array(start or idealized.problem.start)
    points, losses = [at], []
    for step in range(steps):
        loss, gradient = idealized.loss_and_gradient(Scalars(*at.tolist()))
        losses.append(loss)
        at = at - rates * idealized.entry_gradient(gradient)
        if not (np.abs(at) < _DIVERGED).all():
            raise ValueError(f"rate: got {rate}, expected a lower one; the descent diverged at step {step + 1}")
        points.append(at)
    losses.append(idealized.loss(Scalars(*at.tolist())))
    return _path(idealized, rate * np.arange(steps + 1), np.array(points), np.array(losses))


def flow(
    idealized: Idealized,
    until: float | None = None,
    target: float = 1e-4,
    start: Scalars | None = None,
    points: int = 400,
    tolerance: float = 1e-8,
    tell: Callable[[float], None] = lambda fraction: None,
) -> IdealizedPath:
    """The gradient flow until the loss is `target` or the time is `until` (10^4 D^2 where not given).

    `tolerance` is the solver's, relative in each scalar.
    """
    if not target > 0:
        raise ValueError(f"target: got {target:g}, expected a loss above 0")
    problem = idealized.problem
    first = np.array(start or problem.start)
    earliest = 1e-3 / problem.patches**2
    latest = until or 1e4 * problem.patches**2
    if latest <= earliest:
        raise ValueError(f"until: got {latest}, expected more than {earliest:g}")

    # alpha in units of D^(-1/p), so that tolerances mean the same at any D. BDF is the cheaper of the two solvers;
    # beyond D = 10^11 its Newton iterations stop converging, and Radau's do not.
    unit = np.array([problem.patches ** (-1 / problem.power), 1.0, 1.0])

    def speed(log_time: float, scaled: Float[np.ndarray, " 3"]) -> Float[np.ndarray, " 3"]:
        return math.exp(log_time) * velocity(idealized, Scalars(*(unit * scaled).tolist())) / unit

    def slope(log_time: float, scaled: Float[np.ndarray, " 3"]) -> Float[np.ndarray, " 3"]:
        tell((log_time - math.log(earliest)) / math.log(latest / earliest))
        return speed(log_time, scaled)

    def jacobian(log_time: float, scaled: Float[np.ndarray, " 3"]) -> Float[np.ndarray, "3 3"]:
        # The solver's own differences shrink their step where speeds vanish, as on alpha's plateau, until they
        # measure rounding, and its steps shrink with them.
        steps = 1e-6 * np.maximum(np.abs(scaled), [1e-3, 1.0, 1.0])
        sides = [(speed(log_time, scaled + each), speed(log_time, scaled - each)) for each in np.diag(steps)]
        return np.column_stack([ahead - behind for ahead, behind in sides]) / (2 * steps)

    def above_target(log_time: float, scaled: Float[np.ndarray, " 3"]) -> float:
        return math.log(max(idealized.loss(Scalars(*(unit * scaled).tolist())), 1e-300) / target)

    above_target.terminal = True  # type: ignore[attr-defined]
    for method in ("BDF", "Radau"):
        solved = solve_ivp(
            slope,
            (math.log(earliest), math.log(latest)),
            first / unit,
            method=method,
            rtol=tolerance,
            atol=[tolerance / 10, tolerance / 1e4, tolerance / 1e4],
            max_step=math.log(latest / earliest) / 100,
            events=above_target,
            dense_output=True,
            jac=jacobian,
        )
        if solved.success:
            break
    else:
        raise ValueError(f"until: got {latest:g}, expected a path that can be followed; {solved.message}")
    # The solver's own steps are dense where things happen fast, in a short part of the path: Events II and III.
    log_times = np.unique(np.concatenate([np.linspace(solved.t[0], solved.t[-1], points), solved.t]))
    return _path(idealized, np.exp(log_times), (unit[:, None] * solved.sol(log_times)).T)


def events(idealized: Idealized, path: IdealizedPath, target: float = 1e-3) -> Events:
    """The three events of Section 4.1 on a path, `target` being the loss that counts as o(1)."""
    plateau_alpha = idealized.best_alpha()
    settled = path.alpha >= 0.95 * plateau_alpha
    plateau = _first(path.time, settled)
    after = path.time >= plateau
    return Events(
        plateau=plateau,
        association=_first(path.time, path.gamma > np.abs(path.rho).max()),
        clear_association=_first(path.time, path.gamma > 1.0),
        fit=_first(path.time, path.loss <= target),
        plateau_alpha=plateau_alpha,
        plateau_loss=idealized.loss(Scalars(plateau_alpha, 0.0, 0.0)) if math.isfinite(plateau_alpha) else 0.0,
        peak_alpha=float(path.alpha[after].max()) if after.any() else math.nan,
        final_alpha=float(path.alpha[-1]),
    )


def _first(time: Float[np.ndarray, " times"], holds: np.ndarray) -> float:
    return float(time[int(np.argmax(holds))]) if holds.any() else math.inf


def _path(
    idealized: Idealized,
    time: Float[np.ndarray, " times"],
    points: Float[np.ndarray, "times 3"],
    losses: Float[np.ndarray, " times"] | None = None,
) -> IdealizedPath:
    scalars = [Scalars(*point) for point in points.tolist()]
    if losses is None:
        losses = np.array([idealized.loss(at) for at in scalars])
    return IdealizedPath(
        time=time,
        alpha=points[:, 0],
        gamma=points[:, 1],
        rho=points[:, 2],
        loss=losses,
        error=np.array([idealized.error(at) for at in scalars]),
        own_set_weight=np.array([idealized.own_set_weight(at) for at in scalars]),
    )
