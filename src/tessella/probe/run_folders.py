"""A run folder's model: as it ended, or at the steps whose weights it kept."""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from tessella.probe.pictures import Sight
from tessella.probe.subject import Subject, of_module
from tessella.probe.weights_file import load_weights, read_weights, reason
from tessella.training.network import build
from tessella.training.recipe import Recipe


def of_run(path: Path, weights: str | Path | None = None) -> Subject:
    """The trained model, or the one with other weights; "random" are those that the run began with."""
    recipe, seed, result = _read(path)
    made = build(recipe, seed)
    source = "random, as the run began"
    if str(weights) != "random":
        file = path / "weights.safetensors" if weights is None else Path(weights)
        if weights is None and not file.exists():
            raise ValueError(f"model: {path} has no weights.safetensors yet, expected a run that has ended")
        load_weights(made, read_weights(file), str(file))
        source = f"{path.name}, as it ended" if weights is None else file.name
    return _subject(made, path, recipe, result, source)


def snapshots(path: Path) -> list[Subject]:
    """The model at every step that the run kept, from first to last."""
    recipe, seed, result = _read(path)
    kept = sorted((path / "snapshots").glob("*.safetensors"), key=lambda file: int(file.stem))
    if not kept:
        raise ValueError(f"model: {path} has no snapshots, expected a run of a recipe that keeps some (snapshots=N)")
    found = []
    for file in kept:
        made = build(recipe, seed)
        load_weights(made, read_weights(file), str(file))
        one = _subject(made, path, recipe, result, f"{path.name}, step {file.stem}")
        found.append(dataclasses.replace(one, step=int(file.stem)))
    return found


def _subject(made: nn.Module, path: Path, recipe: Recipe, result: Mapping[str, Any], source: str) -> Subject:
    details = {"weights": source, "recipe": recipe.name, "data": recipe.data, "attention": recipe.attention}
    if "accuracy" in result:
        details["accuracy"] = f"{result['accuracy']:.2f} %"

    def fresh(seed: int) -> nn.Module:
        return build(recipe, seed)

    plain = of_module(made, path.resolve().name, details)
    side, channels = recipe.shape.image, recipe.shape.channels
    usual = (0.5,) * channels
    mean, deviation = tuple(result.get("mean", usual)), tuple(result.get("deviation", usual))
    seen = Sight((side, side), channels, mean, deviation, known="mean" in result)
    classes = tuple(map(str, result.get("classes", plain.classes)))
    return Subject(plain.tower, plain.name, seen, details, fresh, classes)


def _read(path: Path) -> tuple[Recipe, int, dict[str, Any]]:
    """The run's recipe and seed, and its result where it has ended."""
    file = path / "config.json"
    try:
        config = dict(json.loads(file.read_text())["config"])
        seed = int(config.pop("seed"))
        config.pop("device", None)
        recipe = _restored(Recipe, config)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"model: {file} is not that of a training run on images ({reason(error)})") from error
    ended = path / "result.json"
    result = json.loads(ended.read_text()) if ended.exists() else {}
    return recipe, seed, result


def _restored(kind: type[Any], values: Mapping[str, Any]) -> Any:
    """A frozen dataclass from what `asdict` made of it and JSON kept."""
    types = typing.get_type_hints(kind)
    given = {}
    for name, value in values.items():
        if dataclasses.is_dataclass(types.get(name)):
            value = _restored(types[name], value)
        given[name] = tuple(value) if isinstance(value, list) else value
    return kind(**given)
