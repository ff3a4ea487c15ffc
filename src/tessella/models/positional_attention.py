"""Positional attention (Definition 3.2) as a layer: scores from positions, values from data.

layer = PositionalAttention(384, 12, tokens=65)            # A itself, one matrix a head
mixed = layer(tokens)                                       # (batch, 65, 384)

layer = PositionalAttention(384, 12, parametrisation="projections")
mixed = layer(tokens, positions)                            # positions of (65, 384), class token included
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from tessella.models.positional_mixing import mix
from tessella.models.positional_scores import Parametrisation, PositionalScores


class PositionalMixing(nn.Module):
    """What a sublayer of positional attention consists of: its scores, its values, its output projection.

    `attention_dropout` drops scores, as ViTs do, the same ones for all images of a batch, since they share S;
    `dropout` drops outputs, each its own.
    """

    def __init__(
        self,
        scores: PositionalScores,
        value: nn.Module,
        out: nn.Module,
        attention_dropout: float = 0.0,
        dropout: float = 0.0,
    ):
        super().__init__()
        for name, chance in (("attention_dropout", attention_dropout), ("dropout", dropout)):
            if not 0.0 <= chance < 1.0:
                raise ValueError(f"{name}: got {chance}, expected a probability of at least 0 and below 1")
        self.scores, self.project_values, self.project_out = scores, value, out
        self.attention_dropout, self.dropout = nn.Dropout(attention_dropout), nn.Dropout(dropout)

    def mixed(
        self,
        tokens: Float[Tensor, "batch tokens dim"],
        positions: Float[Tensor, "tokens2 dim2"] | None,
        kept: Int[Tensor, "batch kept"] | None = None,
    ) -> Float[Tensor, "batch tokens out"]:
        """S V, and the output projection."""
        batch, count, _ = tokens.shape
        if kept is not None and (kept.ndim != 2 or kept.shape[0] != batch):
            raise ValueError(f"kept: got shape {tuple(kept.shape)}, expected {(batch, count)}, a row for each image")
        scores = self.attention_dropout(self.scores(positions, kept))
        if scores.shape[-1] != count:
            raise ValueError(f"tokens: got {count}, expected {scores.shape[-1]}, as many as there are positions")
        values = self.project_values(tokens)
        values = values.view(batch, count, self.scores.heads, values.shape[-1] // self.scores.heads)
        kind = values.device.type
        if not torch.amp.is_autocast_available(kind) or not torch.is_autocast_enabled(kind):
            scores = scores.to(values.dtype)
        merged = mix(scores, values).flatten(2)
        mixed: Tensor = self.dropout(self.project_out(merged))
        return mixed


class PositionalAttention(PositionalMixing):
    """Multi-head positional attention, in the place of self-attention.

    >>> layer = PositionalAttention(8, 2, tokens=5)
    >>> layer(torch.zeros(3, 5, 8)).shape
    torch.Size([3, 5, 8])
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        parametrisation: Parametrisation = "matrix",
        tokens: int | None = None,
        diagonal: float = 2.0,
        bias: bool = True,
        attention_dropout: float = 0.0,
        dropout: float = 0.0,
        generator: torch.Generator | None = None,
    ):
        scores = PositionalScores(dim, heads, parametrisation, tokens, diagonal, bias, generator)
        super().__init__(scores, nn.Linear(dim, dim, bias), nn.Linear(dim, dim, bias), attention_dropout, dropout)
        self.dim = dim
        for projection in (self.project_values, self.project_out):
            nn.init.xavier_uniform_(projection.weight, generator=generator)  # type: ignore[arg-type]
            if bias:
                nn.init.zeros_(projection.bias)  # type: ignore[arg-type]

    def forward(
        self,
        tokens: Float[Tensor, "batch tokens dim"],
        positions: Float[Tensor, "tokens2 dim"] | None = None,
        kept: Int[Tensor, "batch tokens"] | None = None,
    ) -> Float[Tensor, "batch tokens dim"]:
        """`positions` has a row for every token, class and register tokens too. Where images keep some of their tokens
        each, `kept` says which positions they stand at; every image then has scores of its own.
        """
        if tokens.ndim != 3 or tokens.shape[2] != self.dim:
            raise ValueError(f"tokens: got shape {tuple(tokens.shape)}, expected (batch, tokens, {self.dim})")
        return self.mixed(tokens, positions, kept)


def parameter_groups(
    model: nn.Module,
    rate: float,
    scores_times: float = 50.0,
    weight_decay: float = 0.05,
    encodings: Iterable[nn.Parameter] = (),
) -> list[dict[str, Any]]:
    """Groups for an optimiser: scores at `scores_times` the rate and without decay, the rest as ViTs have it.

    Scores need a far higher rate than values. Decay is for matrices; vectors, encodings and tokens are spared.
    `encodings` are to be trained as scores are, which suits `gram`, whose scores have no other parameters.
    """
    for name, number in (("rate", rate), ("scores_times", scores_times)):
        if not number > 0.0:
            raise ValueError(f"{name}: got {number}, expected a number above 0")
    scored = {id(parameter) for parameter in encodings}
    for part in model.modules():
        if isinstance(part, PositionalScores):
            scored |= {id(parameter) for parameter in part.parameters()}
    scores, decayed, spared = [], [], []
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        if id(parameter) in scored:
            scores.append(parameter)
        elif parameter.ndim < 2 or any(word in name.rsplit(".", 1)[-1] for word in ("pos", "token")):
            spared.append(parameter)
        else:
            decayed.append(parameter)
    groups = [
        {"params": decayed, "lr": rate, "weight_decay": weight_decay, "name": "weights"},
        {"params": spared, "lr": rate, "weight_decay": 0.0, "name": "without decay"},
        {"params": scores, "lr": rate * scores_times, "weight_decay": 0.0, "name": "scores"},
    ]
    return [group for group in groups if group["params"]]
