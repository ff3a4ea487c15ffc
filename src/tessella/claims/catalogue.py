"""The claims that exist, by id. Naming them imports none of them, so that a list of ids costs nothing."""

from __future__ import annotations

import fnmatch
import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tessella.claims.claim import Claim

MODULES = {
    "fig1a": "fig1a",
    "fig1b": "fig1b",
    "fig2": "fig2",
    "fig3": "fig3",
    "thm3.1": "thm3_1",
    "thm3.2": "thm3_2",
    "lem4.1": "lem4_1",
    "lem4.2": "lem4_2",
    "lem4.3": "lem4_3",
    "thm4.1": "thm4_1",
    "thm4.2": "thm4_2",
    "fig4": "fig4",
    "thm5.1": "thm5_1",
    "thm5.2": "thm5_2",
    "depth": "depth",
    "equivariance": "equivariance",
    "fig5": "fig5",
    "fig6": "fig6",
    "fig7": "fig7",
    "layers": "layers",
    "parametrisation": "parametrisation",
    "mim.floor": "mim_floor",
    "mim.area": "mim_area",
    "mim.features": "mim_features",
    "mim.phases": "mim_phases",
    "mim.positions": "mim_positions",
    "mim.contrastive": "mim_contrastive",
    "mim.rate": "mim_rate",
    "mim.diversity": "mim_diversity",
    "mim.mae": "mim_mae",
}
"""Claim id to module under `tessella.claims`, in the order in which the papers state them."""


def load(claim_id: str) -> Claim:
    """The claim with this id, exactly."""
    if claim_id not in MODULES:
        raise ValueError(f"claim: got {claim_id!r}, expected one of {', '.join(MODULES)}")
    claim: Claim = importlib.import_module(f"tessella.claims.{MODULES[claim_id]}").CLAIM
    return claim


def select(patterns: Sequence[str]) -> list[str]:
    """The ids that match any of the patterns (`thm4.2`, `mim.*`), in the catalogue's order; all for no pattern."""
    for pattern in patterns:
        if not fnmatch.filter(MODULES, pattern):
            raise ValueError(f"claim: got {pattern!r}, expected one of {', '.join(MODULES)}")
    return [name for name in MODULES if not patterns or any(fnmatch.fnmatchcase(name, p) for p in patterns)]
