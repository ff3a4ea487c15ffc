"""What claims on images share: a set-up whose recipe follows its data, and trainings, each a record of numbers.

A record holds all that a merged result needs: the labels of the case, the seed, the recipe, where it ran, and what
came out. It goes into the verdict's JSON, and a later run may count it (`earlier`) rather than train again.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tessella.claims.claim import Context
from tessella.images.augmentation import Augmentation
from tessella.images.catalogue import load
from tessella.images.image_set import ImageSet
from tessella.models.vit import ViTShape
from tessella.runs.environment import environment
from tessella.training.loop import Trained, train
from tessella.training.recipe import Recipe
from tessella.training.recipes import RECIPES
from tessella.training.reuse import Reuse

Record = dict[str, Any]


def small_digits() -> Recipe:
    """A ViT of two blocks on digits, moved by a pixel at most: a few seconds a run on two cores."""
    return Recipe(
        name="small digits",
        data="digits",
        shape=ViTShape(image=8, patch=2, channels=1, dim=32, depth=2, heads=4, hidden=64),
        score_rate=10.0,
        epochs=40,
        batch=64,
        rate=4e-3,
        warmup=2.0,
        augmentation=Augmentation(crop=1, flip=False),
    )


def own_recipe(data: str, otherwise: Recipe) -> Recipe:
    """The recipe that was made for this data, or the other one where there is none."""
    named = [data] if data in RECIPES else []
    made = (RECIPES[name]() for name in (*named, *RECIPES))
    return next((recipe for recipe in made if recipe.data == data), dataclasses.replace(otherwise, data=data))


def _named(preset: str) -> Recipe:
    if preset not in RECIPES:
        raise ValueError(f"preset: got {preset!r}, expected one of {', '.join(RECIPES)}")
    return RECIPES[preset]()


@dataclass(frozen=True)
class ImageSetup:
    """Which data, which recipe, and which seeds. A claim's own set-up adds to it."""

    data: str = "digits"
    """A data set by name; where it lies is for the command line to say (`--data cifar100=PATH`)."""
    recipe: Recipe = field(default_factory=small_digits)
    """It follows the data: where they differ the data's own recipe takes its place, or this one where it has none."""
    preset: str | None = None
    """A recipe by name, in the place of the data's own; it must be for this data."""
    epochs: int | None = None
    """In the place of the recipe's, where it is given."""
    first_seed: int = 0
    """Seeds count from here, so that a result can be made in parts."""
    earlier: tuple[str, ...] = ()
    """Files that `--json` or `--save` wrote; runs of the same recipe and seed that they hold are not made again."""

    def __post_init__(self) -> None:
        if self.preset is not None and self.recipe.name != self.preset:
            named = _named(self.preset)
            if named.data == self.data:  # the data may be said after the preset: `splits` has the last word
                object.__setattr__(self, "recipe", named)
        if self.data != self.recipe.data:
            object.__setattr__(self, "recipe", own_recipe(self.data, self.recipe))
        if self.epochs is not None:
            # The warm-up keeps its share of a schedule that is cut short.
            warmup = min(self.recipe.warmup, self.epochs / 10)
            object.__setattr__(self, "recipe", dataclasses.replace(self.recipe, epochs=self.epochs, warmup=warmup))

    def seeds(self, context: Context) -> range:
        """The seeds of this run."""
        return range(self.first_seed, self.first_seed + context.seeds)


@dataclass(frozen=True)
class EncodingSetup(ImageSetup):
    """For claims on what encodings have learnt, which must not hide behind what they began with."""

    spread: float | None = 0.02
    """The deviation with which vanilla attention's encodings begin, as in most ViTs; None for the recipe's own, which
    may be as large as the patches' embeddings: that learns faster, and most of the end is then the beginning."""

    def recipe_with(self, attention: str) -> Recipe:
        """The recipe with this attention. Positional attention's encodings begin as suits it."""
        recipe = self.recipe.with_attention(attention)
        own = recipe.attention != "vanilla" or self.spread is None
        return recipe if own else dataclasses.replace(recipe, spread=self.spread)


@dataclass(frozen=True)
class Job:
    """One training: what tells it apart from the claim's others, its recipe, its seed."""

    labels: Mapping[str, str | float]
    recipe: Recipe
    seed: int

    @property
    def name(self) -> str:
        """Its folder's name and how progress calls it."""
        return "-".join([*(f"{each:g}" if isinstance(each, float) else str(each) for each in self.labels.values()),
                         f"seed{self.seed}"])  # fmt: skip


def splits(setup: ImageSetup, context: Context) -> tuple[ImageSet, ImageSet]:
    """What is learnt from and what is held out."""
    if setup.preset is not None and _named(setup.preset).data != setup.data:
        asked = _named(setup.preset).data
        raise ValueError(f"preset: got {setup.preset}, which is for {asked}, but data is {setup.data}")
    return _loaded(setup.data, context.data)


@functools.lru_cache(maxsize=1)
def _loaded(data: str, path: Path | None) -> tuple[ImageSet, ImageSet]:
    """Claims that follow one another on the same images decode them once."""
    return load(data, "train", path), load(data, "test", path)


def run_jobs(
    claim_id: str,
    setup: ImageSetup,
    context: Context,
    jobs: Sequence[Job],
    look: Callable[[Job, Trained], Mapping[str, Any]] = lambda job, trained: {},
) -> list[Record]:
    """Trains every job once and records its numbers, with what `look` sees in the trained model."""
    held = earlier_records(claim_id, setup.earlier)
    train_set, test_set = splits(setup, context)
    reuse = Reuse(kept=4)
    records = []
    for number, job in enumerate(jobs):
        fitted = dataclasses.replace(job, recipe=job.recipe.fitted(train_set))
        found = [record for record in held if _is_of(record, fitted)]
        if found:
            records.append({**found[0], **job.labels})
            continue
        tell = context.part(number, len(jobs), job.name)
        tell(0.0, "")
        folder = None if context.folder is None else context.folder / claim_id / (setup.preset or setup.data) / job.name
        started = time.perf_counter()
        trained = train(
            fitted.recipe,
            train_set,
            test_set,
            seed=job.seed,
            device=context.device,
            folder=folder,
            watch=tell,
            reuse=reuse,
        )
        wall = time.perf_counter() - started
        records.append({**_record(fitted, trained, folder), "wall_seconds": wall, **look(fitted, trained)})
    return records


def _record(job: Job, trained: Trained, folder: Path | None) -> Record:
    timing = {name: getattr(trained, name) for name in ("seconds", "compile_seconds", "images_per_second")}
    written = None if folder is None else folder / "timing.json"
    if not trained.images_per_second and written is not None and written.exists():
        timing = json.loads(written.read_text())  # a run that was complete already took its time back then
    return {
        **job.labels,
        "seed": job.seed,
        "accuracy": trained.accuracy,
        **timing,
        "curve": [[each["epoch"], each["accuracy"], each["loss"]] for each in trained.history if "accuracy" in each],
        "parameters": sum(each.numel() for each in trained.model.parameters()),
        "environment": str(environment()),
        "recipe": _plain(dataclasses.asdict(job.recipe)),
    }


def _is_of(record: Record, job: Job) -> bool:
    """Whether a record is of this training; labels are the claim's own words for its recipe."""
    return record["seed"] == job.seed and record["recipe"] == _plain(dataclasses.asdict(job.recipe))


def earlier_records(claim_id: str, paths: Sequence[str]) -> list[Record]:
    """The runs that earlier results of this claim hold."""
    records: list[Record] = []
    for path in paths:
        try:
            content = json.loads(Path(path).read_text())
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"earlier: got {path}, which is not JSON ({error}), expected a result") from error
        verdicts = content if isinstance(content, list) else [content]
        named = [each for each in verdicts if isinstance(each, dict) and each.get("claim") == claim_id]
        runs = [run for each in named for run in each.get("details", {}).get("runs", [])]
        if not runs:
            raise ValueError(f"earlier: got {path}, which holds no runs of {claim_id}, expected one of its results")
        records += runs
    return records


def records_grid(records: Sequence[Record]) -> tuple[int, int]:
    """Rows and columns of patches of the runs' ViT."""
    shape = records[0]["recipe"]["shape"]
    side = shape["image"] // shape["patch"]
    return side, side


def compiling(records: Sequence[Record]) -> list[float]:
    """The seconds of the runs that compiled; the others used what an earlier one of the same shapes had made."""
    return [record["compile_seconds"] for record in records if record["compile_seconds"] > 0.0]


def _plain(value: Any) -> Any:
    """As JSON reads it back."""
    return json.loads(json.dumps(value))


def column(records: Sequence[Record], name: str, **labels: str | float) -> list[Any]:
    """One entry of every record with these labels, in the order of the seeds."""
    chosen = [record for record in records if all(record[key] == value for key, value in labels.items())]
    return [record[name] for record in sorted(chosen, key=lambda record: record["seed"])]


def paired(records: Sequence[Record], label: str, first: str, second: str, name: str = "accuracy") -> list[float]:
    """Second minus first, seed by seed, for the seeds that both have: the pair shares data order and initial values."""
    values = {(record[label], record["seed"]): record[name] for record in records}
    seeds = sorted({seed for _, seed in values})
    both = [seed for seed in seeds if (first, seed) in values and (second, seed) in values]
    return [values[second, seed] - values[first, seed] for seed in both]
