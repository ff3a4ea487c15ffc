"""The scores of positional attention (Definition 3.2, lines 1 and 2): S = softmax(A) by rows, A from positions alone.

Three parametrisations of A, one matrix for each head:

    projections   A = (P W_Q)(P W_K)^T / sqrt(head size), as in Definition 3.2;
    gram          A = P_h P_h^T / sqrt(head size), W_Q and W_K the identity, as Simplification 3.1 first says;
    matrix        A itself, as Simplification 3.1 ends, with sigma_A on the diagonal at initialisation and 0 elsewhere.

Rows of P are positions, and P_h are the columns of head h. `matrix` is not divided by sqrt(head size): that is the
reading under which sigma_A is of order one (see `tessella.models.simplified_vit`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from tessella.models.kernel_choice import transformed
from tessella.models.row_softmax import row_softmax

Parametrisation = Literal["projections", "gram", "matrix"]
PARAMETRISATIONS: tuple[Parametrisation, ...] = ("projections", "gram", "matrix")


class PositionalScores(nn.Module):
    """S of (heads, tokens, tokens) from positions of (tokens, dim); `matrix` needs none, but the number of tokens.

    In eval mode on a CPU, where no gradient is asked for, S is remembered together with copies of all that it was made
    from, and made again as soon as one of them differs in value, shape, dtype or device, or S itself was written to:
    comparing is far cheaper than a projection or an exponential, and sees what version counters do not, such as writes
    through `.data`. Queries and keys that are more than a plain projection, by hooks, adapters or parametrisations, may
    depend on what no comparison sees, and are never remembered. Elsewhere a comparison would make the host wait for the
    device, so S is made anew, once for a whole batch; `held_scores` holds it where the caller knows that nothing
    changes. Compiled code never compares.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        parametrisation: Parametrisation = "matrix",
        tokens: int | None = None,
        diagonal: float = 2.0,
        bias: bool = False,
        generator: torch.Generator | None = None,
    ):
        super().__init__()
        if parametrisation not in PARAMETRISATIONS:
            raise ValueError(f"parametrisation: got {parametrisation!r}, expected one of {', '.join(PARAMETRISATIONS)}")
        if dim < 1:
            raise ValueError(f"dim: got {dim}, expected at least 1")
        if heads < 1 or dim % heads:
            raise ValueError(f"heads: got {heads}, expected a divisor of dim, {dim}")
        if not math.isfinite(diagonal):
            raise ValueError(f"diagonal: got {diagonal}, expected a number")
        self.dim, self.heads, self.parametrisation = dim, heads, parametrisation
        self.scale = (dim // heads) ** -0.5
        self._remembered: Tensor | None = None
        self._copies: Sequence[Tensor] = ()
        self._version = 0
        self._held: Tensor | None = None
        self._holding = False
        if parametrisation == "matrix":
            if tokens is None or tokens < 1:
                raise ValueError(f"tokens: got {tokens}, expected how many tokens there are, which A itself needs")
            self.attention = nn.Parameter(diagonal * torch.eye(tokens).repeat(heads, 1, 1))
        elif parametrisation == "projections":
            self.query, self.key = nn.Linear(dim, dim, bias), nn.Linear(dim, dim, bias)
            self.query_norm: nn.Module = nn.Identity()
            self.key_norm: nn.Module = nn.Identity()
            for projection in (self.query, self.key):
                # Encodings of variance one then have logits of variance one.
                nn.init.normal_(projection.weight, std=dim**-0.5, generator=generator)
                if bias:
                    nn.init.zeros_(projection.bias)

    def logits(self, positions: Float[Tensor, "tokens dim"] | None) -> Float[Tensor, "heads tokens2 tokens2"]:
        """A with its scale: what the softmax is taken of."""
        if self.parametrisation == "matrix" or positions is None:
            return self.attention
        if positions.ndim != 2 or positions.shape[1] != self.dim:
            raise ValueError(f"positions: got shape {tuple(positions.shape)}, expected (tokens, {self.dim})")
        if self.parametrisation == "gram":
            query = key = self._by_head(positions)
        else:
            positions = positions.to(self.query.weight.dtype)
            query = self.query_norm(self._by_head(self.query(positions)))
            key = self.key_norm(self._by_head(self.key(positions)))
        return (query * self.scale) @ key.transpose(-1, -2)

    def forward(
        self,
        positions: Float[Tensor, "tokens dim"] | None = None,
        kept: Int[Tensor, "batch kept"] | None = None,
    ) -> Float[Tensor, "*batch heads some some"]:
        """S; with `kept`, an S for each image among the positions that it kept."""
        if kept is not None:
            if kept.ndim != 2:
                raise ValueError(f"kept: got shape {tuple(kept.shape)}, expected (batch, kept)")
        elif self._held is not None and not self.training and (torch.compiler.is_compiling() or self._is_intact()):
            return self._held
        if kept is not None or not self._may_remember(positions):
            return self._made(positions, kept)
        made_from = self._made_from(positions)
        if not self._is_intact() or not _same(self._copies, made_from):
            # A tensor made in inference mode could not be used outside of it later.
            with torch.inference_mode(False), torch.no_grad():
                self._remembered = self._made(positions, None)
                self._version = self._remembered._version
                self._copies = [each.clone() for each in made_from]
        if self._holding:
            self._held = self._remembered
        remembered: Tensor = self._remembered  # type: ignore[assignment]
        return remembered

    def _is_intact(self) -> bool:
        """Whether S is remembered, and is what was made: whoever got it may have written to it since."""
        return self._remembered is not None and self._remembered._version == self._version

    def _made(self, positions: Tensor | None, kept: Tensor | None) -> Tensor:
        if positions is None and self.parametrisation != "matrix":
            raise ValueError(f"positions: got none, expected (tokens, dim), which {self.parametrisation} reads")
        # Scores are one matrix for a whole batch: they keep their parameters' dtype under autocast.
        like = self.attention if positions is None else positions
        kind = like.device.type
        exact = torch.autocast(kind, enabled=False) if torch.amp.is_autocast_available(kind) else nullcontext()
        with exact:
            logits = self.logits(positions)
            if kept is not None:
                _check_range(kept, logits.shape[-1])
                logits = logits[:, kept[:, :, None], kept[:, None, :]].transpose(0, 1)
            return row_softmax(logits)

    def _by_head(self, positions: Tensor) -> Tensor:
        return positions.view(positions.shape[0], self.heads, -1).transpose(0, 1)

    def _made_from(self, positions: Tensor | None) -> list[Tensor]:
        positions_read = [] if positions is None or self.parametrisation == "matrix" else [positions]
        return [each.detach() for each in (*positions_read, *self.parameters(), *self.buffers())]

    def _may_remember(self, positions: Tensor | None) -> bool:
        if self.training or torch.compiler.is_compiling() or torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
            return False
        # Under `torch.func` there are no values to compare, and what is remembered carries no derivatives.
        if transformed():
            return False
        tensors = [*([] if positions is None else [positions]), *self.parameters()]
        if torch.is_grad_enabled() and any(each.requires_grad for each in tensors):
            return False
        return self._holding or (self._is_plain() and all(each.device.type == "cpu" for each in tensors))

    def _is_plain(self) -> bool:
        """Whether queries and keys are made of parameters alone."""
        if self.parametrisation != "projections":
            return True
        return all(type(each) is nn.Linear and not _has_hooks(each) for each in (self.query, self.key))

    def _memory(self) -> dict[str, Any]:
        return {name: self.__dict__[name] for name in _NOTHING}

    def __getstate__(self) -> dict[str, Any]:
        """What is remembered is neither saved nor copied."""
        return {**self.__dict__, **_NOTHING}

    def extra_repr(self) -> str:
        return f"{self.parametrisation}, heads={self.heads}"


_NOTHING: dict[str, Any] = {"_remembered": None, "_copies": (), "_version": 0, "_held": None, "_holding": False}
"""The state of scores that remember nothing."""


def _has_hooks(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks)


def _check_range(kept: Tensor, count: int) -> None:
    """Elsewhere than on a CPU the host would wait for the device; traced programs have no numbers to look at."""
    tracing = torch.compiler.is_compiling() or torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
    if kept.device.type != "cpu" or tracing or transformed() or not kept.numel():
        return
    low, high = int(kept.min()), int(kept.max())
    if low < 0 or high >= count:
        raise ValueError(f"kept: got positions from {low} to {high}, expected from 0 to {count - 1}")


def _same(copies: Sequence[Tensor], now: Sequence[Tensor]) -> bool:
    """Whether what S was made from is what there is now."""
    return len(copies) == len(now) and all(
        old.dtype == new.dtype and old.device == new.device and torch.equal(old, new)
        for old, new in zip(copies, now, strict=True)
    )


@contextmanager
def held_scores(model: nn.Module) -> Iterator[None]:
    """Within it the scores of a model in eval mode are those of the first call, on any device and in compiled code.

    The caller promises that no weight changes inside. The first call is to be an uncompiled one under `torch.no_grad`
    or `torch.inference_mode`; a compiled call then reads what that one made, as a constant without gradient.
    Within another promise this one is over at its own end, and the other goes on.
    """
    parts = [each for each in model.modules() if isinstance(each, PositionalScores)]
    if model.training:
        raise ValueError("model: got one in training mode, expected eval mode, where scores may be held")
    before = [part._memory() for part in parts]
    for part in parts:
        part.__dict__.update({**_NOTHING, "_holding": True})
    try:
        yield
    finally:
        for part, memory in zip(parts, before, strict=True):
            part.__dict__.update(memory)
