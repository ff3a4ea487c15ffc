"""A seat: the place of one attention module in another library's model, and what of it is kept."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from tessella.models.positional_scores import Parametrisation, PositionalScores
from tessella.surgery.encodings import Encodings
from tessella.surgery.hosted_attention import Answer, HostedAttention


@dataclass(frozen=True)
class Seat:
    """Where an attention module sits, and its parts. `out` is the identity where the host projects afterwards."""

    path: str
    parent: nn.Module
    name: str
    encodings: Encodings
    norm: nn.Module
    heads: int
    query: nn.Linear
    key: nn.Linear
    value: nn.Linear
    out: nn.Module
    answer: Answer
    attention_dropout: float = 0.0
    dropout: float = 0.0
    query_norm: nn.Module = field(default_factory=nn.Identity)
    key_norm: nn.Module = field(default_factory=nn.Identity)

    @property
    def replaced(self) -> nn.Module:
        """What sits there now."""
        sitting: nn.Module = getattr(self.parent, self.name)
        return sitting

    def filled(
        self, parametrisation: Parametrisation, keep: bool, diagonal: float, generator: torch.Generator | None
    ) -> HostedAttention:
        """The module that is to sit there, on the device and in the dtype of the one it replaces."""
        weight = self.value.weight
        tokens, dim = self.encodings.positions().shape
        bias = self.query.bias is not None
        with torch.device("cpu"):
            scores = PositionalScores(dim, self.heads, parametrisation, tokens, diagonal, bias, generator)
        if parametrisation == "projections" and keep:
            scores.query, scores.key = self.query, self.key
            scores.query_norm, scores.key_norm = self.query_norm, self.key_norm
        scores.to(weight.device, weight.dtype)
        made = HostedAttention(
            scores,
            self.value,
            self.out,
            self.encodings,
            self.norm,
            self.answer,
            self.attention_dropout,
            self.dropout,
        )
        return made.train(self.replaced.training)


def part(weight: Tensor, bias: Tensor | None, third: int) -> nn.Linear:
    """One third of a fused projection of queries, keys and values, as a projection of its own."""
    rows = slice(third * len(weight) // 3, (third + 1) * len(weight) // 3)
    made = nn.Linear(weight.shape[1], rows.stop - rows.start, bias is not None, device="meta")
    made.weight = nn.Parameter(weight.detach()[rows].clone(), weight.requires_grad)
    if bias is not None:
        made.bias = nn.Parameter(bias.detach()[rows].clone(), bias.requires_grad)
    return made
