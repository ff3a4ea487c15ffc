"""Figure 6: ViT-Tiny with positional attention against vanilla, and how fast each trains beside timm's ViT-Tiny/16.

ImageNet's recipe is complete (`tessella.training.recipes.vit_tiny_imagenet`) and is launched with torchrun; what is run
here is what `--data` gives. Without data it is scikit-learn's digits, and a ViT of ViT-Tiny's form (12 layers, 3 heads,
a hidden width of 4 times the width) at an eighth of its width: that says whether twelve layers train, and nothing of
ImageNet.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tessella.claims.claim import Bar, Claim, Context, Findings
from tessella.claims.image_training import ImageSetup, Job, Record, column, paired, run_jobs, small_digits
from tessella.claims.throughput import images_per_second
from tessella.training.recipe import Recipe
from tessella.training.recipes import vit_tiny_imagenet

SIDES = ("vanilla", "positional")
LAUNCH = "torchrun --nproc-per-node 8 -m tessella train vit_tiny_imagenet --data PATH --device cuda --folder DIR"
"""The whole of ImageNet, on eight GPUs; `--attention positional` is the other side."""


@dataclass(frozen=True)
class Setup(ImageSetup):
    attentions: tuple[str, ...] = SIDES
    width: int = 24
    """Of ViT-Tiny 192. Layers, heads and the ratio of widths are always ViT-Tiny's."""
    rounds: int = 2
    """Turns in which images a second are measured; 0 leaves that out."""
    steps: int = 8
    """Steps a turn."""
    timed_image: int = 8
    """Pixels along a side of the images that speed is measured on."""
    timed_patch: int = 2
    timed_batch: int = 64
    peer: str = ""
    """timm's name for the model to measure beside ours; none where it is empty."""


def tiny(recipe: Recipe, width: int) -> Recipe:
    """The recipe for a ViT of ViT-Tiny's form."""
    return replace(recipe, shape=replace(recipe.shape, dim=width, depth=12, heads=3, hidden=4 * width))


def timed(setup: Setup) -> dict[str, Recipe]:
    """What is measured side by side: ImageNet's recipe at the set-up's size, without what is the data's alone."""
    own = tiny(vit_tiny_imagenet(), setup.width)
    shape = replace(own.shape, image=setup.timed_image, patch=setup.timed_patch)
    ours = replace(own, shape=shape, batch=setup.timed_batch, draws="batch")
    found = {side: ours.with_attention(side) for side in setup.attentions}
    if setup.peer:
        found["peer"] = replace(ours, model=f"timm:{setup.peer}")
    return found


def measured(records: Sequence[Record], speeds: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    """Accuracies and paired differences in percent points; ratios of speeds, turn by turn."""
    found: dict[str, list[float]] = {}
    for side in SIDES:
        if accuracies := column(records, "accuracy", attention=side):
            found[side] = accuracies
    if difference := paired(records, "attention", *SIDES):
        found["difference"] = difference
    for side in SIDES:
        if side in found:
            found[f"{side}_seconds"] = column(records, "seconds", attention=side)
            found[f"{side}_parameters"] = column(records, "parameters", attention=side)
    found |= {f"{name}_images_per_second": list(values) for name, values in speeds.items()}
    for name, over, under in (
        ("vanilla_over_peer", "vanilla", "peer"),
        ("positional_over_vanilla", "positional", "vanilla"),
    ):
        if over in speeds and under in speeds:
            found[name] = [ours / theirs for ours, theirs in zip(speeds[over], speeds[under], strict=True)]
    return found


def measure(setup: Setup, context: Context) -> Findings:
    """Training first, and then speed, in the last tenth of the progress."""
    trained = dataclasses.replace(context, progress=lambda fraction, text: context.progress(0.9 * fraction, text))
    jobs = [
        Job({"attention": side}, tiny(setup.recipe, setup.width).with_attention(side), seed)
        for seed in setup.seeds(context)
        for side in setup.attentions
    ]
    records = run_jobs("fig6", setup, trained, jobs) if jobs else []
    speeds: dict[str, list[float]] = {}
    if setup.rounds:
        speeds = images_per_second(
            timed(setup), setup.steps, setup.rounds, context.device,
            lambda fraction, text: context.progress(0.9 + 0.1 * fraction, text),
        )  # fmt: skip
    details = {"runs": records, "images_per_second": speeds}
    return Findings(measured(records, speeds), {**details, "peer": setup.peer, "launch": LAUNCH}, details)


def bars(setup: Setup) -> tuple[Bar, ...]:
    """The paper's own difference on ImageNet is -3.0 points; speeds are judged on a GPU's set-up alone."""
    listed: list[Bar] = []
    if set(SIDES) <= set(setup.attentions):
        listed.append(Bar("difference", ">=", -1.0 if setup.data == "digits" else -3.0))
    if setup.rounds and setup.peer:
        if "vanilla" in setup.attentions:
            listed.append(Bar("vanilla_over_peer", ">=", 1.0))
        if set(SIDES) <= set(setup.attentions):
            listed.append(Bar("positional_over_vanilla", ">=", 1.0))
    return tuple(listed)


CLAIM = Claim(
    id="fig6",
    statement=(
        "ViT-Tiny with attention that depends on positions alone competes with vanilla attention on larger images, and "
        "trains no slower than the usual implementation."
    ),
    source="Jelassi, Sander, Li (NeurIPS 2022), Figure 6 (there on ImageNet: 68.9 % against 71.9 %)",
    default=Setup(recipe=replace(small_digits(), epochs=15, rate=2e-3)),
    full=Setup(
        data="imagenet",
        width=192,
        rounds=5,
        steps=40,
        timed_image=224,
        timed_patch=16,
        timed_batch=1024,
        peer="vit_tiny_patch16_224",
    ),
    bars=bars,
    measure=measure,
    seeds=1,
    needs=("sklearn",),
)
