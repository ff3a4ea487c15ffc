"""Every self-attention that runs in a model, fused or not, seen without a change to what the model returns.

A function mode sees what torch is asked to do. Fused attention is told its queries, keys, values, bias and scale, which
is all that its probabilities follow from; unfused attention is a softmax over the keys, whose result is multiplied with
the values. torch's own MultiheadAttention may take a path that is neither, so its queries and keys are made a second
time from its input. Who watches may also put something else in the place of what attention gave.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from tessella.models.positional_attention import PositionalMixing


@dataclass(frozen=True, eq=False)
class Call:
    """One self-attention as it ran: its probabilities on demand, a few heads or images at a time."""

    module: str
    """The path of the module that it ran in."""
    values: Float[Tensor, "batch heads tokens size"]
    """What the probabilities were multiplied with."""
    queries: Float[Tensor, "batch heads tokens size2"] | None = None
    keys: Float[Tensor, "batch heads tokens size2"] | None = None
    bias: Tensor | None = None
    """Added to the logits, or where it is boolean, what may be attended to; broadcast over images and heads."""
    scale: float = 1.0
    causal: bool = False
    known: Float[Tensor, "batch heads tokens tokens"] | None = None
    """The probabilities, where the model made them itself."""
    answer: Float[Tensor, "batch heads tokens size"] | None = None
    """Their product with the values, where the model's own is at hand."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Images (or windows), heads, tokens."""
        return self.values.shape[0], self.values.shape[1], self.values.shape[2]

    def probabilities(self, images: slice, heads: slice) -> Float[Tensor, "some some_heads tokens tokens"]:
        """In float32. Rows are queries and sum to one."""
        if self.known is not None:
            return self.known[images, heads].float()
        assert self.queries is not None
        assert self.keys is not None
        queries, keys = self.queries[images, heads], self.keys[images, heads].transpose(-1, -2)
        if queries.dtype == torch.float32 or math.frexp(self.scale)[0] == 0.5:
            # The scale goes to the smaller factor, where it does not round.
            logits = (queries * self.scale) @ keys
        else:
            logits = (queries @ keys).float() * self.scale
        if self.bias is not None:
            bias = _part(self.bias, images, heads)
            logits = (
                logits.masked_fill(~bias, -torch.inf) if bias.dtype == torch.bool else logits.float() + bias.float()
            )
        if self.causal:
            later = torch.ones(logits.shape[-2:], dtype=torch.bool, device=logits.device).triu(1)
            logits = logits.masked_fill(later, -torch.inf)
        return logits.softmax(-1, dtype=torch.float32)


def _part(bias: Tensor, images: slice, heads: slice) -> Tensor:
    """The rows of a bias that broadcasts over images and heads."""
    full = bias.reshape((1,) * (4 - bias.dim()) + tuple(bias.shape))
    return full[images if full.shape[0] > 1 else slice(None), heads if full.shape[1] > 1 else slice(None)]


class Unreadable(ValueError):
    """Attention of a kind that is not read."""


SUMS_TO_ONE = 1e-2
"""How far a row of weights may sum from one: what half precision rounds."""

Seen = Callable[[Call], Tensor | None]
"""Hears of a call; what it returns, unless that is None, takes the place of the call's answer."""

_FUSED = (functional.scaled_dot_product_attention, torch.ops.aten.scaled_dot_product_attention.default)
_SOFTMAX = (functional.softmax, torch.softmax, Tensor.softmax, torch.ops.aten.softmax.int)
_PRODUCT = (torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.ops.aten.matmul.default)


class _Watch(TorchFunctionMode):
    """Tells of each self-attention, after it ran."""

    def __init__(self, seen: Seen, path: Sequence[str]):
        super().__init__()
        self._seen, self._path = seen, path
        self._pending: Tensor | None = None

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        answer = func(*args, **named)
        if func in _FUSED:
            return self._fused(answer, *args, **named)
        if func in _SOFTMAX:
            self._softmax(answer, named.get("dim", args[1] if len(args) > 1 else None))
        elif func in _PRODUCT and self._pending is not None:
            return self._product(answer, *args, *named.values())
        return answer

    def _fused(
        self,
        answer: Tensor,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        if query.dim() != 4 or query.shape[-2] != key.shape[-2]:
            return answer
        if enable_gqa:
            times = query.shape[1] // key.shape[1]
            key, value = key.repeat_interleave(times, 1), value.repeat_interleave(times, 1)
        scale = query.shape[-1] ** -0.5 if scale is None else float(scale)
        return self.tell(Call(self._path[-1], value, query, key, attn_mask, scale, is_causal, answer=answer), answer)

    def _softmax(self, answer: Tensor, dim: int | None) -> None:
        """A softmax over the last of four dimensions, the last two of which are equal, is an unfused attention."""
        if answer.dim() == 4 and dim in (-1, 3) and answer.shape[-1] == answer.shape[-2] > 1:
            self._pending = answer

    def _product(self, answer: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """The product of probabilities and values; what became of the softmax in between is what acts."""
        pending = self._pending
        if pending is None or first.shape != pending.shape or second.dim() != 4:
            return answer
        self._pending = None
        if not torch.equal(first, pending.to(first.dtype)):
            pending = first
            if first.min() < 0 or (first.float().sum(-1) - 1).abs().max() > SUMS_TO_ONE:
                raise Unreadable(
                    f"model: {self._path[-1] or 'its attention'} changes its weights after the softmax, so that they "
                    "no longer sum to one; expected attention that multiplies the values by its softmax"
                )
        return self.tell(Call(self._path[-1], second, known=pending, answer=answer), answer)

    def tell(self, call: Call, answer: Tensor) -> Tensor:
        """What is to be gone on with: the answer itself, unless who watches wants another."""
        with torch.no_grad(), torch.autocast(call.values.device.type, enabled=False):
            other = self._seen(call)
        return answer if other is None else other.to(answer.dtype)


def _of_multihead(module: nn.MultiheadAttention, path: str, tokens: Tensor, mask: Tensor | None) -> Call:
    """Queries, keys and values as torch's own module makes them."""
    batch_first = tokens if module.batch_first else tokens.transpose(0, 1)
    parts = functional.linear(batch_first, module.in_proj_weight, module.in_proj_bias)
    batch, count, _ = parts.shape
    query, key, value = parts.view(batch, count, 3, module.num_heads, -1).permute(2, 0, 3, 1, 4)
    if mask is not None:
        # torch's module means by True what may not be attended to.
        mask = ~mask if mask.dtype == torch.bool else mask
        mask = mask.view(batch, module.num_heads, count, count) if mask.dim() == 3 else mask
    return Call(path, value, query, key, mask, query.shape[-1] ** -0.5)


def _watch_multihead(module: nn.MultiheadAttention, path: str, watch: _Watch) -> Callable[[], None]:
    """Has the module run as it does without a mode, which would keep it from its fast path."""
    plain = module.forward

    def forward(query: Tensor, key: Tensor, value: Tensor, *rest: Any, **named: Any) -> Any:
        with torch._C.DisableTorchFunction():
            answer = plain(query, key, value, *rest, **named)
            unknown = query is not key or key is not value or named.get("key_padding_mask") is not None
            if unknown or module.in_proj_weight is None or query.dim() != 3:
                return answer
            call = _of_multihead(module, path, query, named.get("attn_mask"))
            mixed = watch.tell(call, call.values)
            if mixed is call.values:
                return answer
            merged = module.out_proj(mixed.transpose(1, 2).flatten(2))
            return (merged if module.batch_first else merged.transpose(0, 1), *answer[1:])

    module.forward = forward  # type: ignore[method-assign]
    return lambda: delattr(module, "forward")


def _watch_positional(module: PositionalMixing, path: str, watch: _Watch) -> Callable[[], None]:
    """Positional attention's scores, the same for every image unless each has its own."""
    plain = module.mixed

    def mixed(tokens: Tensor, positions: Tensor | None, kept: Tensor | None = None) -> Tensor:
        with torch._C.DisableTorchFunction():
            answer = plain(tokens, positions, kept)
            scores = module.scores(positions, kept)
            batch, count, _ = tokens.shape
            values = module.project_values(tokens).view(batch, count, module.scores.heads, -1).transpose(1, 2)
            known = scores if scores.dim() == 4 else scores.expand(batch, *scores.shape)
            other = watch.tell(Call(path, values, known=known), values)
            return answer if other is values else module.project_out(other.transpose(1, 2).flatten(2))

    module.mixed = mixed  # type: ignore[method-assign]
    return lambda: delattr(module, "mixed")


@contextlib.contextmanager
def watched(model: nn.Module, seen: Seen) -> Iterator[None]:
    """While open, `seen` hears of each self-attention in the order in which they run."""
    path = [""]
    watch = _Watch(seen, path)
    undo: list[Callable[[], None]] = []

    def enter(name: str) -> Callable[..., None]:
        return lambda *_: path.append(name)

    def leave(*_: Any) -> None:
        path.pop()

    try:
        for name, part in model.named_modules():
            if isinstance(part, nn.MultiheadAttention):
                undo.append(_watch_multihead(part, name, watch))
            elif isinstance(part, PositionalMixing):
                undo.append(_watch_positional(part, name, watch))
            elif next(part.children(), None) is not None:
                undo.append(part.register_forward_pre_hook(enter(name)).remove)
                undo.append(part.register_forward_hook(leave, always_call=True).remove)
        with watch:
            yield
    finally:
        for each in reversed(undo):
            each()
