"""The model that a recipe names, with initial values of a seed, and its parameter groups for the optimiser."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tessella.models.convolutional import network
from tessella.models.positional_attention import parameter_groups
from tessella.models.vit import ViT
from tessella.training.recipe import Recipe

Factory = Callable[[Recipe, int], nn.Module]
"""Makes a model from a recipe and a seed."""


def build(recipe: Recipe, seed: int) -> nn.Module:
    """A `ViT`, a convolutional network, or timm's model of that name with vanilla attention, on the CPU."""
    shape = recipe.shape
    if recipe.model == "vit":
        return ViT(shape, recipe.attention, recipe.added, recipe.diagonal, seed, recipe.spread)
    if recipe.attention != "vanilla":
        raise ValueError(f"attention: got {recipe.attention!r}, expected vanilla, which is all that {recipe.model} has")
    if recipe.model.startswith("timm:"):
        return timm_model(recipe, seed)
    if recipe.drop_path:
        raise ValueError(f"drop_path: got {recipe.drop_path}, expected 0, since {recipe.model} has no such branches")
    return network(recipe.model, shape.channels, shape.classes, seed)


def timm_model(recipe: Recipe, seed: int) -> nn.Module:
    """The model that timm calls so, for the recipe's images and classes, untrained."""
    name, shape = recipe.model.removeprefix("timm:"), recipe.shape
    try:
        timm: Any = importlib.import_module("timm")
    except (ImportError, RuntimeError) as error:  # beside another torch torchvision's compiled part fails at run time
        raise ValueError(
            f"model: timm cannot be imported ({str(error).splitlines()[0]}); pip install 'tessella[vision]'"
        ) from error
    if not timm.is_model(name):
        near = ", ".join(timm.list_models(f"*{name.split('_')[0]}*")[:5]) or "a name from timm.list_models()"
        raise ValueError(f"model: got {recipe.model!r}, which timm does not know, expected for example {near}")
    wanted = {"num_classes": shape.classes, "in_chans": shape.channels, "drop_path_rate": recipe.drop_path}
    # Modules draw their initial values from the global generator, which is left as it was.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            made: nn.Module = timm.create_model(name, pretrained=False, img_size=shape.image, **wanted)
        except TypeError:  # convolutional models take images of any size, and no such argument
            made = timm.create_model(name, pretrained=False, **wanted)
    return made


def groups(model: nn.Module, recipe: Recipe) -> list[dict[str, Any]]:
    """Parameter groups at a base rate of 1: a step's rate is the recipe's, times each group's."""
    encodings = []
    if recipe.attention == "gram" and isinstance(model, ViT) and model.positions is not None:
        encodings = [model.positions]  # the only parameters that these scores have
    return parameter_groups(model, 1.0, recipe.score_rate, recipe.weight_decay, encodings)
