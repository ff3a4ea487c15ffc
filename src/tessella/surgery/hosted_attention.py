"""Positional attention in the place of another library's attention module, called and answering as that one does."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from tessella.models.positional_attention import PositionalMixing
from tessella.models.positional_scores import PositionalScores
from tessella.surgery.encodings import Encodings

Answer = Literal["tensor", "pair"]

_MASKS = ("attn_mask", "attention_mask", "head_mask", "key_padding_mask", "is_causal")

_FUSED = ("qkv", "in_proj_")
_NAMES = {
    "q_proj": "scores.query",
    "query": "scores.query",
    "k_proj": "scores.key",
    "key": "scores.key",
    "v_proj": "project_values",
    "value": "project_values",
    "o_proj": "project_out",
    "proj": "project_out",
    "out_proj": "project_out",
    "q_norm": "scores.query_norm",
    "k_norm": "scores.key_norm",
}
"""What hosts call their projections, and what they are called here."""


class HostedAttention(PositionalMixing):
    """Reads positions where the host keeps them, through the norm that the host puts ahead of attention.

    The norm stays the host's, and so do the encodings. `answer` is what the host expects: the tokens, or the tokens
    and its attention weights, of which there are none for each image. A state dict of the host's own attention loads,
    with values and output projections, and where there are such, queries and keys; scores of A itself then stay as
    they are.
    """

    def __init__(
        self,
        scores: PositionalScores,
        value: nn.Module,
        out: nn.Module,
        encodings: Encodings | None,
        norm: nn.Module | None,
        answer: Answer,
        attention_dropout: float = 0.0,
        dropout: float = 0.0,
    ):
        super().__init__(scores, value, out, attention_dropout, dropout)
        # In a tuple, so that torch does not register the host's modules a second time.
        self._host = (encodings, norm)
        self.answer = answer

    def positions(self) -> Tensor | None:
        """What scores are made from; A itself reads none."""
        encodings, norm = self._host
        if encodings is None or self.scores.parametrisation == "matrix":
            return None
        positions = encodings.positions()
        return positions if norm is None or self.scores.parametrisation == "gram" else norm(positions)

    def current_scores(self) -> Tensor:
        """S of (heads, tokens, tokens) as it is now, a copy of the caller's own."""
        scores: Tensor = self.scores(self.positions())
        return scores.clone()

    def forward(self, tokens: Tensor, *given: Any, **named: Any) -> Any:
        masks = [each for each in given if each is not None and each is not tokens]
        masks += [named[name] for name in _MASKS if named.get(name) is not None and named[name] is not False]
        if masks:
            raise ValueError("attention mask: got one, expected none: positional attention has one S for every image")
        encodings = self._host[0]
        mixed = self.mixed(tokens, self.positions(), None if encodings is None else encodings.kept())
        return mixed if self.answer == "tensor" else (mixed, None)

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *rest: Any) -> None:
        _translate(self, state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, *rest)


def _translate(module: HostedAttention, state: dict[str, Tensor], prefix: str) -> None:
    """Renames what a state dict of the host's own attention holds under `prefix`."""
    own = {name for name in state if name.startswith(prefix)}
    if not own or any(name.startswith(f"{prefix}scores.") for name in own):
        return
    for name in own:
        rest = name[len(prefix) :]
        for fused in _FUSED:
            if rest.startswith(fused):
                kind = rest[len(fused) :].lstrip(".")
                parts = state.pop(name).chunk(3)
                for part, place in zip(parts, ("scores.query", "scores.key", "project_values"), strict=True):
                    state[f"{prefix}{place}.{kind}"] = part
                break
        else:
            first, _, kind = rest.partition(".")
            if first in _NAMES:
                state[f"{prefix}{_NAMES[first]}.{kind}"] = state.pop(name)
    _fit(module, state, prefix)


def _fit(module: HostedAttention, state: dict[str, Tensor], prefix: str) -> None:
    """Leaves out the queries and keys that the module has no use for, and keeps the scores that the host has not."""
    expected = {prefix + name: value for name, value in module.state_dict().items()}
    for name in [name for name in state if name.startswith(f"{prefix}scores.") and name not in expected]:
        del state[name]
    for name, value in expected.items():
        if name.startswith(f"{prefix}scores.") and name not in state:
            state[name] = value


def hosted(model: nn.Module) -> dict[str, HostedAttention]:
    """The swapped attention modules of a model, by name."""
    return {name: part for name, part in model.named_modules() if isinstance(part, HostedAttention)}


def scores_by_layer(model: nn.Module) -> dict[str, Tensor]:
    """S of every swapped layer: what attention maps are where no image changes them."""
    found = hosted(model)
    if not found:
        raise ValueError("model: got one without positional attention, expected one that use_positional has changed")
    with torch.no_grad():
        return {name: part.current_scores() for name, part in found.items()}
