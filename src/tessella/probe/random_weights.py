"""The same architecture with random weights: what a measure gives before anything is learnt."""

from __future__ import annotations

import copy
from collections.abc import Collection

import torch
from torch import Tensor, nn

from tessella.models.positional_scores import PositionalScores

DEVIATION = 0.02
"""Of linear maps, tokens, encodings and tables, which are drawn from a normal distribution."""


def randomised(model: nn.Module, seed: int, kept: Collection[str] = ()) -> nn.Module:
    """A copy with random weights; those named `kept`, such as fixed encodings, stay.

    transformers' models are made anew from their configuration, by their own rules. Elsewhere modules that know how to
    reset themselves do so, but linear maps, which are drawn as above with biases of 0; norms become 1 and 0; scales of
    layers stay where they have no rule of their own.
    """
    like = next(model.parameters(), torch.zeros(()))
    devices = [like.device] if like.device.type == "cuda" else []
    with torch.random.fork_rng(devices), torch.no_grad():
        torch.manual_seed(seed)
        config = getattr(model, "config", None)
        if config is not None and any(kind.__module__.startswith("transformers.") for kind in type(model).__mro__):
            made: nn.Module = type(model)(config).to(like.device, like.dtype)
        else:
            made = copy.deepcopy(model)
            _reset(made, kept)
    fixed = {name: value for name, value in model.state_dict().items() if name in kept}
    made.load_state_dict(fixed, strict=False)
    return made.train(model.training) if not isinstance(model, torch.fx.GraphModule) else made


def _reset(model: nn.Module, kept: Collection[str]) -> None:
    done: set[int] = set()
    for path, part in model.named_modules():
        own = dict(part.named_parameters(prefix=path, recurse=False))
        if isinstance(part, nn.Linear):
            nn.init.normal_(part.weight, std=DEVIATION)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
        elif isinstance(part, nn.MultiheadAttention):
            part._reset_parameters()
        elif callable(reset := getattr(part, "reset_parameters", None)):
            reset()
        elif isinstance(part, PositionalScores):
            if part.parametrisation == "matrix":
                part.attention.copy_(2.0 * torch.eye(part.attention.shape[-1]))
        else:
            for name, parameter in own.items():
                if id(parameter) not in done and name not in kept:
                    _draw(name.rsplit(".", 1)[-1], parameter)
        done |= {id(parameter) for parameter in own.values()}


def _draw(name: str, parameter: Tensor) -> None:
    """One that no module knows how to reset."""
    if parameter.dim() > 1:
        nn.init.normal_(parameter, std=DEVIATION)
    elif "bias" in name:
        nn.init.zeros_(parameter)
    elif "weight" in name:
        nn.init.ones_(parameter)
