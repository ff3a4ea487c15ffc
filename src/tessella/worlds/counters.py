"""Random numbers from counters: each is a function of a seed and of where it stands, and of nothing else.

A batched sweep pads settings of different sizes to one shape. With a generator that hands out numbers in order, the
padding would change every draw after it; here the draw at (step, cluster, sample, patch) is the same whether a
setting runs alone or beside sixty others, on a CPU or on a GPU. The mixing function is the finalizer of
splitmix64 (Steele, Lea and Flood, 2014), applied twice.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

STEP_BITS, CLUSTER_BITS, SAMPLE_BITS, PLACE_BITS = 20, 12, 18, 13
"""How the 63 bits of a counter are shared out."""


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


_GOLDEN = _signed(0x9E3779B97F4A7C15)
_FIRST = _signed(0xBF58476D1CE4E5B9)
_SECOND = _signed(0x94D049BB133111EB)


def _shifted(x: Int[Tensor, "*any"], bits: int) -> Int[Tensor, "*any"]:
    """The logical shift to the right, which int64 lacks."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _mixed(x: Int[Tensor, "*any"]) -> Int[Tensor, "*any"]:
    x = (x ^ _shifted(x, 30)) * _FIRST
    x = (x ^ _shifted(x, 27)) * _SECOND
    return x ^ _shifted(x, 31)


def uniforms(
    seeds: Sequence[int], stream: int, step: int, shape: tuple[int, int, int], device: torch.device | str = "cpu"
) -> Float[Tensor, "settings clusters samples places"]:
    """Independent uniform numbers in (0, 1), in float64, for each seed and each (cluster, sample, place) of `shape`.

    `stream` tells apart the uses that one step has for random numbers, such as masks and magnitudes.
    """
    clusters, samples, places = shape
    for name, value, bits in (
        ("step", step, STEP_BITS),
        ("clusters", clusters, CLUSTER_BITS),
        ("samples", samples, SAMPLE_BITS),
        ("places", places, PLACE_BITS),
    ):
        if not 0 <= value <= 1 << bits:
            raise ValueError(f"{name}: got {value}, expected 0 to {1 << bits}")
    seed = torch.tensor([_signed(seed % (1 << 64)) for seed in seeds], dtype=torch.int64, device=device)
    key = _mixed(seed * _GOLDEN + _mixed(torch.full_like(seed, stream + 1) * _GOLDEN))
    c, s, p = (torch.arange(count, dtype=torch.int64, device=device) for count in shape)
    counter = ((((step << CLUSTER_BITS) + c[:, None, None]) << SAMPLE_BITS) + s[:, None] << PLACE_BITS) + p
    mixed = _mixed(_mixed(counter * _GOLDEN + key[:, None, None, None]) + _GOLDEN)
    return (_shifted(mixed, 12).to(torch.float64) + 0.5) * 2.0**-52
