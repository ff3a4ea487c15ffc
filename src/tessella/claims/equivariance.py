"""What Figure 5 rests on: a ViT trained on shuffled patches from shuffled encodings takes the very same path.

Attention and the rest of a ViT treat tokens alike, and only the encodings tell positions apart. So let pi shuffle the
patches of every image, and let it shuffle the rows of P (and the rows and columns of A, where A itself is trained).
Then every gradient is the shuffled gradient, and so are the steps of any optimiser that treats numbers one by one.
Since encodings are drawn independently, shuffled ones are as likely as any: over seeds, a ViT's accuracy has the same
law for every shuffle of whole patches. In floating point a sum over tokens in another order is rounded otherwise, so
the bar is 1e-12 in float64, and not 0.

One kind of weight is left out of the comparison, the biases of keys: they add the same to all logits of a row, which
the softmax takes away, so that they change nothing and their gradient is 0. What stands there is rounding, of about
1e-17, which AdamW divides by its own size: biases of keys drift apart by 1e-11 in forty steps, and nothing else does.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from jaxtyping import Float, Int, Int64
from torch import Tensor

from tessella.claims.claim import Bar, Claim, Context, Findings
from tessella.images.digits import digits
from tessella.images.grid_shuffle import GridShuffle
from tessella.models.vit import Attention, ViT, ViTShape

Optimiser = Literal["sgd", "adamw"]


@dataclass(frozen=True)
class Setup:
    shape: ViTShape = field(
        default_factory=lambda: ViTShape(image=8, patch=2, channels=1, dim=16, depth=2, heads=2, hidden=32)
    )
    cells: tuple[int, ...] = (2, 4)
    """Sides of the cells that are shuffled, in pixels: whole patches."""
    attentions: tuple[Attention, ...] = ("vanilla", "projections", "gram", "matrix")
    optimisers: tuple[Optimiser, ...] = ("sgd", "adamw")
    steps: int = 20
    batch: int = 32
    sgd_rate: float = 0.1
    adamw_rate: float = 0.003


@dataclass(frozen=True)
class Path:
    """One training: its losses, and all weights before the first step and after every one."""

    losses: list[float]
    weights: list[dict[str, Tensor]]


def shuffled(state: dict[str, Tensor], order: Int[Tensor, " patches"]) -> dict[str, Tensor]:
    """The weights of a ViT with what belongs to patch `order[j]` at j; class and register tokens keep their places."""
    prefix = state["prefix_tokens"].shape[0]
    whole = torch.cat([torch.arange(prefix), prefix + order])
    made = {}
    for name, tensor in state.items():
        if name == "positions":
            tensor = tensor[whole]
        elif name.endswith("scores.attention"):
            tensor = tensor[:, whole][:, :, whole]
        made[name] = tensor
    return made


def train(
    model: ViT,
    images: Float[Tensor, "n channels side side"],
    labels: Int64[Tensor, " n"],
    setup: Setup,
    optimiser: Optimiser,
    seed: int,
) -> Path:
    """Plain training in the model's precision, on batches that the seed names."""
    steps: torch.optim.Optimizer
    if optimiser == "sgd":
        steps = torch.optim.SGD(model.parameters(), setup.sgd_rate, momentum=0.9)
    else:
        steps = torch.optim.AdamW(model.parameters(), setup.adamw_rate, weight_decay=0.05)
    generator = torch.Generator().manual_seed(seed)
    path = Path([], [_copy(model)])
    for _ in range(setup.steps):
        chosen = torch.randint(len(images), (setup.batch,), generator=generator)
        loss = torch.nn.functional.cross_entropy(model(images[chosen]), labels[chosen])
        steps.zero_grad()
        loss.backward()
        steps.step()
        path.losses.append(float(loss.detach()))
        path.weights.append(_copy(model))
    return path


def measure(setup: Setup, context: Context) -> Findings:
    """Gaps are the largest over all steps, cases and weights of a seed; the control's is the least over cases."""
    split = digits("train")
    labels = torch.from_numpy(split.labels)
    images = torch.from_numpy(split.images).permute(0, 3, 1, 2).double() / 255 - 0.5
    images = torch.nn.functional.interpolate(images, size=setup.shape.image)
    measured: dict[str, list[float]] = {}
    cases: list[dict[str, Any]] = []
    jobs = list(itertools.product(setup.attentions, setup.optimisers, setup.cells))
    for seed in range(context.seeds):
        found: dict[str, list[float]] = {}
        for number, (attention, optimiser, cell) in enumerate(jobs):
            text = f"{attention}, {optimiser}, cells of {cell}, seed {seed}"
            context.progress((seed * len(jobs) + number) / (context.seeds * len(jobs)), text)
            shuffle = GridShuffle.random(setup.shape.image, cell, seed)
            order = shuffle.patch_order(setup.shape.patch)
            plain, moved, unmoved = (ViT(setup.shape, attention, seed=seed).double() for _ in range(3))
            moved.load_state_dict(shuffled(plain.state_dict(), order))
            ours = train(plain, images, labels, setup, optimiser, seed)
            theirs, control = (
                train(model, shuffle.shuffle(images), labels, setup, optimiser, seed) for model in (moved, unmoved)
            )
            case = {
                "loss_gap": [abs(a - b) for a, b in zip(ours.losses, theirs.losses, strict=True)],
                "weights_gap": [
                    weights_gap(shuffled(a, order), b) for a, b in zip(ours.weights, theirs.weights, strict=True)
                ],
                "loss_gap_encodings_left": [abs(a - b) for a, b in zip(ours.losses, control.losses, strict=True)],
            }
            for name in ("loss_gap", "weights_gap"):
                found.setdefault(f"{name}_{optimiser}", []).append(max(case[name]))
            found.setdefault("loss_gap_encodings_left", []).append(max(case["loss_gap_encodings_left"]))
            found.setdefault("weights_moved", []).append(weights_gap(ours.weights[0], ours.weights[-1]))
            if seed == 0:
                named = {"attention": attention, "optimiser": optimiser, "cell": cell, "losses": ours.losses}
                cases.append({**named, "theirs": theirs.losses, "control": control.losses, **case})
        for name, values in found.items():
            worst = min(values) if name in ("loss_gap_encodings_left", "weights_moved") else max(values)
            measured.setdefault(name, []).append(worst)
    return Findings(measured, {"cases": cases, "example": images[0, 0].numpy(), "seed": 0})


def _copy(model: ViT) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def weights_gap(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> float:
    """The largest difference between any two weights that correspond, biases of keys aside."""
    return max(
        float((_compared(name, tensor) - _compared(name, theirs[name])).abs().max())
        for name, tensor in ours.items()
        if not name.endswith("scores.key.bias")
    )


def _compared(name: str, tensor: Tensor) -> Tensor:
    """Without the biases of keys, the middle third of those of queries, keys and values."""
    if not name.endswith("qkv.bias"):
        return tensor
    query, _, value = tensor.chunk(3)
    return torch.cat([query, value])


def bars(setup: Setup) -> tuple[Bar, ...]:
    exact = [
        Bar(f"{name}_{optimiser}", "<=", 1e-12, "every run")
        for optimiser in setup.optimisers
        for name in ("loss_gap", "weights_gap")
    ]
    # That the bars can be missed: with encodings left as they were the path is another one, and paths lead somewhere.
    return (
        *exact,
        Bar("loss_gap_encodings_left", ">", 1e-6, "every run"),
        Bar("weights_moved", ">", 0.01, "every run"),
    )


CLAIM = Claim(
    id="equivariance",
    statement=(
        "A ViT trained on shuffled patches, from encodings shuffled in the same way, takes the same path as on the "
        "images as they are: the same losses, and the same weights but for the shuffle of the encodings, at every step."
    ),
    source="Jelassi, Sander, Li (NeurIPS 2022), Section 6: ViTs are permutation invariant, which Figure 5 rests on",
    default=Setup(),
    full=Setup(
        shape=ViTShape(image=32, patch=2, channels=1, dim=48, depth=7, heads=12, hidden=48),
        cells=(2, 4, 8, 16),
        steps=20,
        batch=16,
    ),
    bars=bars,
    measure=measure,
    seeds=3,
    needs=("sklearn",),
)
