"""`tessella train`: one run, kept in a folder of its own where one is named, and resumed where it was killed."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from rich.console import Console

from tessella.cli.fields import changed
from tessella.cli.progress import Bars
from tessella.report.wording import number
from tessella.runs.device import checked_device

if TYPE_CHECKING:
    from torch import nn

    from tessella.images.image_set import ImageSet
    from tessella.images.stream import Stream
    from tessella.models.positional_scores import Parametrisation
    from tessella.training.recipe import Recipe


def run(options: argparse.Namespace) -> int:
    device = checked_device(options.device)
    if options.recipe == "signal-sets":
        return _signal_sets(options, device)
    return _images(options, device)


def _signal_sets(options: argparse.Namespace, device: str) -> int:
    from tessella.dynamics.descent import DivergenceError
    from tessella.dynamics.realistic import Realistic
    from tessella.dynamics.realistic import run as solve

    for name in ("data", "attention"):
        if getattr(options, name) is not None:
            raise ValueError(f"{name}: got {getattr(options, name)}, but signal-sets has no use for it")
    if options.folder is None:
        raise ValueError("folder: got none, expected --folder DIR, new or to be resumed")
    problem = changed(Realistic(), options.fields)
    try:
        with Bars() as bars:
            outcome = solve(
                problem,
                options.seed,
                device,
                options.folder,
                lambda fraction, detail: bars.tell("signal-sets", fraction, detail),
            )
    except DivergenceError as error:
        print(f"tessella: {error}", file=sys.stderr)
        return 1
    final, found = outcome.final, outcome.association
    console = Console(highlight=False)
    console.print(f"step {final.step}: loss {number(final.loss)}, test error {number(final.error)}")
    console.print(f"cos(v, w*) {number(final.cosine)}, rows associated {number(found.exact_rows)}")
    print(f"kept in {options.folder}")
    return 0


def _images(options: argparse.Namespace, device: str) -> int:
    from tessella.training.failures import DivergenceError, LoaderError, PeerError
    from tessella.training.loop import train
    from tessella.training.network import build
    from tessella.training.processes import joined
    from tessella.training.recipes import RECIPES

    recipe = RECIPES[options.recipe]()
    if options.attention is not None:
        recipe = recipe.with_attention(options.attention)
    recipe = changed(recipe, options.fields)
    recipe, train_set, test_set = _image_sets(recipe, options.data)
    processes, _ = joined(device)
    factory = _timm_positional if recipe.model.startswith("timm:") and recipe.attention != "vanilla" else build
    try:
        with Bars(shown=processes.leads) as bars:
            trained = train(
                recipe,
                train_set,
                test_set,
                seed=options.seed,
                device=device,
                folder=options.folder,
                watch=lambda fraction, detail: bars.tell(recipe.name, fraction, detail),
                factory=factory,
            )
    except (DivergenceError, LoaderError, PeerError) as error:
        print(f"tessella: {error}{_left(options.folder)}", file=sys.stderr)
        return 1
    if processes.leads:
        averaged = f" (last weights {trained.last_accuracy:.2f} %)" if recipe.ema else ""
        print(f"{recipe.name}, {recipe.attention}, seed {options.seed}: {trained.accuracy:.2f} %{averaged}")
        speed = f", {trained.images_per_second:,.0f} images/s" if trained.images_per_second else ""
        print(f"{trained.seconds:.1f} s{speed}; before that {trained.compile_seconds:.1f} s to prepare")
        if options.folder is not None:
            print(f"kept in {options.folder}")
    return 0


def _left(folder: Path | None) -> str:
    """What can be gone on from after a failure."""
    if folder is None or not (folder / "checkpoint" / "state.safetensors").exists():
        return ""
    return f"; {folder} holds the last checkpoint"


def _image_sets(recipe: Recipe, path: Path | None) -> tuple[Recipe, ImageSet | Stream, ImageSet]:
    """The recipe's data. Where it is streamed, its random parts are drawn as it is decoded, and not again later."""
    from tessella.images.stream import Stream, for_training

    train, test = for_training(recipe.data, path, recipe.shape.image, recipe.augmentation.resized)
    if isinstance(train, Stream):
        recipe = replace(recipe, augmentation=replace(recipe.augmentation, resized=0.0))
    return recipe, train, test


def _timm_positional(recipe: Recipe, seed: int) -> nn.Module:
    """timm's model with positional attention in the place of its own."""
    import torch

    from tessella.surgery.replacement import use_positional
    from tessella.training.network import timm_model

    model = timm_model(replace(recipe, attention="vanilla"), seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        use_positional(model, cast("Parametrisation", recipe.attention), diagonal=recipe.diagonal)
    return model
