"""Figure 7: a ViT with positional attention against one with vanilla attention, trained by one recipe, seed by seed."""

from __future__ import annotations

from dataclasses import dataclass

from tessella.claims.claim import Bar, Claim, Context, Findings
from tessella.claims.image_training import ImageSetup, Job, Record, column, compiling, paired, run_jobs

SIDES = ("vanilla", "positional")


@dataclass(frozen=True)
class Setup(ImageSetup):
    attentions: tuple[str, ...] = SIDES
    """Sides to train; a part of a result may hold one of them."""


def measured(records: list[Record]) -> dict[str, list[float]]:
    """Accuracies and their paired differences in percent points, evaluation included in the seconds."""
    found: dict[str, list[float]] = {}
    for side in SIDES:
        if accuracies := column(records, "accuracy", attention=side):
            found[side] = accuracies
    if difference := paired(records, "attention", *SIDES):
        found["difference"] = difference
    for side in SIDES:
        if side in found:
            found[f"{side}_seconds"] = column(records, "seconds", attention=side)
            if compiled := compiling([record for record in records if record["attention"] == side]):
                found[f"{side}_compile_seconds"] = compiled
            found[f"{side}_images_per_second"] = column(records, "images_per_second", attention=side)
            found[f"{side}_parameters"] = column(records, "parameters", attention=side)
    return found


def measure(setup: Setup, context: Context) -> Findings:
    """Both sides of a seed train one after the other, so that a machine's moods reach them alike."""
    jobs = [
        Job({"attention": side}, setup.recipe.with_attention(side), seed)
        for seed in setup.seeds(context)
        for side in setup.attentions
    ]
    records = run_jobs("fig7", setup, context, jobs)
    return Findings(measured(records), {"runs": records, "data": setup.data}, {"runs": records})


def bars(setup: Setup) -> tuple[Bar, ...]:
    """What is asked of a set-up. CIFAR-100's own recipe must reach an accuracy, in a time on one GPU.

    A smaller preset must have learnt something, and no set-up on CIFAR-100 may lose by more than half a point.
    """
    asked: dict[str, tuple[Bar, ...]] = {}
    if setup.data == "cifar100" and setup.preset in (None, "cifar100"):
        asked["vanilla"] = (Bar("vanilla", ">=", 68.0), Bar("vanilla_seconds", "<=", 240.0))
        asked["positional"] = (Bar("positional_seconds", "<=", 150.0),)
    elif setup.data == "cifar100":
        asked["vanilla"] = (Bar("vanilla", ">=", 20.0),)
    elif setup.data == "digits":
        asked["vanilla"] = (Bar("vanilla", ">=", 90.0),)
    tie = Bar("difference", ">=", -0.5 if setup.data == "cifar100" else -1.0)
    listed = [bar for side in setup.attentions for bar in asked.get(side, ())]
    return (*listed, tie) if set(SIDES) <= set(setup.attentions) else tuple(listed)


CLAIM = Claim(
    id="fig7",
    statement=(
        "A ViT whose attention depends on positions alone competes with a vanilla one of the same size, trained by "
        "the same recipe on small images."
    ),
    source="Jelassi, Sander, Li (NeurIPS 2022), Figure 7 and Section 6",
    default=Setup(),
    full=Setup(data="cifar100"),
    bars=bars,
    measure=measure,
    seeds=3,
    needs=("sklearn",),
)
