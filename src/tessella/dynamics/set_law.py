"""The law of the sums that a loss of the idealized process (P) depends on.

With v = alpha w* the noise of Assumption 1 drops out: <v, X_j> = alpha s_j with s_j in {-1, 0, 1}. Take y = +1, which
is no restriction because F is odd. In one set let t = sum s_j and k = sum |s_j|. The signal set has t = k = C; each of
the other L-1 sets draws its C features independently. As a power of s_j is 1, s_j or |s_j|, a polynomial of degree p
in s_j, t and T = sum of all s_j, summed over the patches, needs of the sets only the power sums

    P_r = sum over sets of t^r, r = 1..p,   and   R_r = sum over sets of t^r k, r = 0..p-2,

2p - 1 integers whose law does not depend on alpha, gamma or rho. It is built once, for the L-1 random sets together:
the number of sets with any feature is binomial, and the sums over m such sets are the m-fold convolution of one set's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy import special, stats

_LARGEST_WORD = 2**62


class LawTooLarge(ValueError):
    """The exact law has more states than were allowed."""


@dataclass(frozen=True)
class SetLaw:
    """States (tuples of the power sums, the signal set not included) and their probabilities."""

    patches: int
    size: int
    spurious: float
    power: int
    sums: Int[np.ndarray, "states sums"]
    """One row a state: P_1, ..., P_p, R_0, ..., R_(p-2)."""
    mass: Float[np.ndarray, " states"]
    lost: float
    """The most that pruning took away: `mass` sums to at least 1 - lost."""
    samples: int | None = None
    """None for the exact law; for a sampled one, how many samples of the L-1 sets it stands on."""

    @property
    def states(self) -> int:
        return len(self.mass)


def set_types(size: int, spurious: float) -> tuple[Int[np.ndarray, "types 2"], Float[np.ndarray, " types"]]:
    """The pairs (t, k) that one random set of C patches can have, and their probabilities."""
    pairs = np.array([(t, k) for k in range(size + 1) for t in range(-k, k + 1, 2)], dtype=np.int64)
    t, k = pairs[:, 0], pairs[:, 1]
    log_mass = special.xlogy(k, spurious) + special.xlog1py(size - k, -spurious) - k * np.log(2)
    log_ways = special.gammaln(size + 1) - special.gammaln(size - k + 1)
    log_ways -= special.gammaln((k + t) // 2 + 1) + special.gammaln((k - t) // 2 + 1)
    return pairs, np.exp(log_mass + log_ways)


def power_sums(pairs: Int[np.ndarray, "types 2"], power: int) -> Int[np.ndarray, "types sums"]:
    """One set's t^r for r = 1..p and t^r k for r = 0..p-2."""
    t, k = pairs[:, 0], pairs[:, 1]
    return np.stack([t**r for r in range(1, power + 1)] + [t**r * k for r in range(power - 1)], axis=1)


def set_law(
    patches: int,
    size: int,
    spurious: float,
    power: int = 3,
    lost: float = 1e-6,
    most_states: int = 400_000,
    samples: int = 200_000,
    seed: int = 0,
) -> SetLaw:
    """The exact law where it has at most `most_states` states, else a sampled one, which says so in `samples`."""
    try:
        return exact_law(patches, size, spurious, power, lost, most_states)
    except LawTooLarge:
        return sampled_law(patches, size, spurious, power, samples, seed)


_RAREST = 1e-250
"""Below this probability of a feature no state with one is kept: scipy's binomial overflows on its way to 0."""


def exact_law(
    patches: int, size: int, spurious: float, power: int = 3, lost: float = 1e-6, most_states: int = 400_000
) -> SetLaw:
    """The law of the power sums over the L-1 random sets, pruned of at most `lost` of its mass.

    Pruning is accounted for exactly: dropping mass m from the sums over j sets loses m times the probability that at
    least j sets have a feature, no more.
    """
    sets = _random_sets(patches, size, spurious, power)
    pairs, probabilities = set_types(size, spurious)
    full = (pairs[:, 1] > 0) & (probabilities > 0)
    featured, neglected = float(probabilities[full].sum()), 0.0
    if featured < _RAREST:
        featured, neglected = 0.0, sets * featured
    count = stats.binom(sets, min(featured, 1.0))
    largest = int(count.isf(lost / 4)) if 0 < featured < 1 and sets else (sets if featured else 0)
    steps = power_sums(pairs[full], power)
    keys = _Keys(steps, max(largest, 1))
    stepped, step_mass = keys.encode(steps), probabilities[full] / max(featured, np.finfo(float).tiny)

    words, mass = np.zeros((keys.words, 1), dtype=np.int64), np.ones(1)
    spent = float(count.sf(largest)) + neglected
    total_words, total_mass = words, mass * count.pmf(0)
    for featured_sets in range(1, largest + 1):
        words = (words[:, None, :] + stepped[:, :, None]).reshape(keys.words, -1)
        words, mass = _merged(words, (step_mass[:, None] * mass[None, :]).ravel())
        reach = float(count.sf(featured_sets - 1))
        words, mass, dropped = _pruned(words, mass, lost / (4 * largest * reach) if reach else np.inf)
        spent += dropped * reach
        weight = float(count.pmf(featured_sets))
        total_words = np.concatenate([total_words, words], axis=1)
        total_words, total_mass = _merged(total_words, np.concatenate([total_mass, weight * mass]))
        if max(len(mass), len(total_mass)) > 2 * most_states:
            raise LawTooLarge(f"most_states: got {most_states}, expected more for {patches} patches, q = {spurious:g}")
    total_words, total_mass, dropped = _pruned(total_words, total_mass, max(lost - spent, 0.0))
    if len(total_mass) > most_states:
        raise LawTooLarge(f"most_states: got {most_states}, expected more for {patches} patches, q = {spurious:g}")
    return SetLaw(patches, size, spurious, power, keys.decode(total_words), total_mass, spent + dropped)


def sampled_law(
    patches: int, size: int, spurious: float, power: int = 3, samples: int = 200_000, seed: int = 0
) -> SetLaw:
    """The law of `samples` draws of the L-1 random sets: how many sets of each type, hence the power sums."""
    sets = _random_sets(patches, size, spurious, power)
    pairs, probabilities = set_types(size, spurious)
    generator = np.random.default_rng(seed)
    counts = generator.multinomial(sets, probabilities / probabilities.sum(), size=samples)
    sums, repeats = np.unique(counts @ power_sums(pairs, power), axis=0, return_counts=True)
    return SetLaw(patches, size, spurious, power, sums, repeats / samples, 0.0, samples)


def _random_sets(patches: int, size: int, spurious: float, power: int) -> int:
    """L - 1, once the parameters are seen to make sense."""
    if size < 1 or patches < 1 or patches % size:
        raise ValueError(f"size: got {size}, expected a divisor of {patches} patches")
    if not 0 <= spurious <= 1:
        raise ValueError(f"spurious: got {spurious}, expected a probability between 0 and 1")
    if power < 3 or power % 2 == 0:
        raise ValueError(f"power: got {power}, expected an odd integer of at least 3")
    return patches // size - 1


class _Keys:
    """Tuples of sums as a few 64-bit words, so that adding tuples is adding words and equal tuples are equal words."""

    def __init__(self, steps: Int[np.ndarray, "types sums"], largest: int):
        self.low = largest * np.minimum(steps.min(axis=0, initial=0), 0)
        self.radix = largest * np.maximum(steps.max(axis=0, initial=0), 0) - self.low + 1
        self.word_of: list[int] = []
        self.stride: list[int] = []
        word, stride = 0, 1
        for radix in self.radix.tolist():
            if stride * radix >= _LARGEST_WORD:
                word, stride = word + 1, 1
            self.word_of.append(word)
            self.stride.append(stride)
            stride *= radix
        self.words = word + 1

    def encode(self, sums: Int[np.ndarray, "types sums"]) -> Int[np.ndarray, "words types"]:
        words = np.zeros((self.words, len(sums)), dtype=np.int64)
        for column, (word, stride) in enumerate(zip(self.word_of, self.stride, strict=True)):
            words[word] += sums[:, column] * stride
        return words

    def decode(self, words: Int[np.ndarray, "words states"]) -> Int[np.ndarray, "states sums"]:
        shifted = words - self.encode(self.low[None, :])
        columns = [
            shifted[word] // stride % radix + low
            for word, stride, radix, low in zip(self.word_of, self.stride, self.radix, self.low, strict=True)
        ]
        return np.stack(columns, axis=1)


def _merged(
    words: Int[np.ndarray, "words states"], mass: Float[np.ndarray, " states"]
) -> tuple[Int[np.ndarray, "words merged"], Float[np.ndarray, " merged"]]:
    """Equal states once, with the sum of their masses."""
    order = np.argsort(words[0], kind="stable") if len(words) == 1 else np.lexsort(words)
    words = words[:, order]
    first = np.flatnonzero(np.concatenate([[True], (words[:, 1:] != words[:, :-1]).any(axis=0)]))
    return words[:, first], np.add.reduceat(mass[order], first)


def _pruned(
    words: Int[np.ndarray, "words states"], mass: Float[np.ndarray, " states"], budget: float
) -> tuple[Int[np.ndarray, "words kept"], Float[np.ndarray, " kept"], float]:
    """Without the states of least mass, as many as weigh at most `budget` together; and what they weighed."""
    ascending = np.sort(mass)
    dropped = int(np.searchsorted(np.cumsum(ascending), budget, side="right"))
    dropped = min(dropped, len(mass) - 1)
    if dropped == 0:
        return words, mass, 0.0
    kept = mass >= ascending[dropped]
    return words[:, kept], mass[kept], float(mass[~kept].sum())
