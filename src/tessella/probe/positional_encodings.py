"""How a model knows where its patches are, read as what it is: learned, sin-cos, relative, rotary, or not at all.

What is compared are cosines of the patches' encodings. Rotary encodings turn a query and a key by angles of their
places: (sin, cos) of these angles stand for a place, whose cosines are what turning does to the product of two equal
tokens, averaged over frequencies. Relative biases are similarities themselves.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tessella.probe.inspection import Kind
from tessella.probe.layer_sums import Place
from tessella.probe.locality import cosines

Pair = tuple[int, int]


@dataclass(frozen=True)
class Found:
    """One way in which a model knows of places."""

    kind: Kind
    note: str
    grid: Pair
    similarities: Float[Tensor, "patches patches"] | None = None
    by_layer: Mapping[int, Float[Tensor, "heads patches2 patches2"]] = field(default_factory=dict)
    """Similarities of each head of a layer, by the layer's index, where these differ."""
    parameter: str | None = None
    """Where added encodings are kept."""


def read(model: nn.Module, places: Sequence[Place]) -> list[Found]:
    """All that is found, what acts on attention itself first; at least one, which may be of kind `none`."""
    with torch.no_grad():
        first = places[0]
        whole = next((place for place in places if place.windows == 1), first)
        found = [*_rotary(model, whole.grid), *_relative(model, places), *_added(model, whole)]
    return found or [Found("none", _why_none(model), first.grid)]


def _added(model: nn.Module, place: Place) -> list[Found]:
    """Encodings that are added to the patches."""
    turning = tuple(f"{name}." for name, part in model.named_modules() if _is_rotary(part))
    for name, value in (*model.named_parameters(), *model.named_buffers()):
        table = _table(name, value, place.grid)
        if table is None or name.startswith(turning):
            continue
        patches, own = place.grid[0] * place.grid[1], None
        if patches <= len(table) <= patches + max(len(place.prefix), 1):
            own = place.grid
        else:
            own = _native_grid(model, len(table), place)
        if own is None:
            continue
        encodings = table[len(table) - own[0] * own[1] :].detach().float().cpu()
        resized = (
            ""
            if own == place.grid
            else (f"; the model resizes them from {own[0]} x {own[1]} to {place.grid[0]} x {place.grid[1]}")
        )
        if _is_sin_cos(encodings, own):
            note = f"{name}: sines and cosines of rows and columns, added to the patches; cosines of them{resized}"
            return [Found("sin-cos", note, own, cosines(encodings), parameter=name)]
        note = f"{name}: learned vectors, added to the patches; cosines of them{resized}"
        return [Found("learned", note, own, cosines(encodings), parameter=name)]
    return []


def _table(name: str, value: Tensor, grid: Pair) -> Float[Tensor, "n dim"] | None:
    """The encodings as rows, where the name says that these are some; also of those that lie on the grid themselves."""
    path = name.lower().split(".")
    stem = path[-2] if path[-1] == "weight" and len(path) > 1 else path[-1]
    known = ("pos_embed", "position_embed", "positional_embed", "pos_embedding", "positions", "position_embeddings")
    if not any(stem.endswith(each) or stem.startswith(each) for each in known) or "decoder" in name or "rel" in stem:
        return None
    if not value.is_floating_point():
        return None
    if value.dim() == 4 and value.shape[0] == 1 and grid in (tuple(value.shape[1:3]), tuple(value.shape[2:])):
        channels_last = value if tuple(value.shape[1:3]) == grid else value.permute(0, 2, 3, 1)
        return channels_last[0].flatten(0, 1)
    if value.dim() == 3 and value.shape[0] == 1:
        return value[0]
    return value if value.dim() == 2 else None


def _native_grid(model: nn.Module, rows: int, place: Place) -> Pair | None:
    """The square grid that encodings of another image size stand for."""
    for others in (len(place.prefix), 1, 0):
        side = round(max(0, rows - others) ** 0.5)
        if side > 1 and side * side == rows - others:
            return side, side
    return None


def _is_sin_cos(encodings: Float[Tensor, "patches dim"], grid: Pair) -> bool:
    """Whether every column follows rows alone or columns alone, and all squares add up to half the dimension."""
    squares = encodings.square().sum(-1)
    half = encodings.shape[1] / 2
    if (squares - half).abs().max() > 1e-3 * half:
        return False
    on_grid = encodings.unflatten(0, grid)
    along = torch.stack([(on_grid - on_grid[:, :1]).abs().amax((0, 1)), (on_grid - on_grid[:1]).abs().amax((0, 1))])
    return bool((along.amin(0) < 1e-3).all())


def _relative(model: nn.Module, places: Sequence[Place]) -> list[Found]:
    """Biases of the logits that depend on how two patches lie to each other."""
    by_layer = {}
    for place in places:
        bias = _bias(model, place)
        if bias is not None:
            first = len(place.prefix)
            by_layer[place.index] = bias[:, first:, first:].float().cpu()
    if not by_layer:
        return []
    grids = {place.index: place.grid for place in places}
    grid = grids[min(by_layer)]
    same = [bias for index, bias in by_layer.items() if grids[index] == grid]
    mean = torch.stack([bias.mean(0) for bias in same]).mean(0)
    note = (
        f"tables of biases that are added to the logits of {len(by_layer)} layers; their mean over heads and over "
        f"{len(same)} layers is compared, and each head's own with its attention"
    )
    return [Found("relative bias", note, grid, mean, by_layer)]


def _bias(model: nn.Module, place: Place) -> Float[Tensor, "heads tokens tokens"] | None:
    """The table in the layer's attention, or the nearest one around it."""
    name: str | None = place.name.partition(" (run")[0]
    while name is not None:
        with contextlib.suppress(AttributeError):
            found = [_table_bias(part, place) for part in model.get_submodule(name).modules()]
            tables = [bias for bias in found if bias is not None]
            if tables:
                # Several are those of other layers too, and which is this one's cannot be told.
                return tables[0] if len(tables) == 1 else None
        name = name.rpartition(".")[0] if "." in name else "" if name else None
    return None


def _table_bias(part: Any, place: Place) -> Float[Tensor, "heads tokens tokens"] | None:
    table = getattr(part, "relative_position_bias_table", None)
    if not isinstance(table, Tensor) or table.dim() != 2 or table.shape[1] != place.heads:
        return None
    index = getattr(part, "relative_position_index", None)
    if index is None and hasattr(part, "generate_relative_position_index"):
        made = part(place.grid, False, place.tokens)  # transformers' BEiT fits its table to the grid itself
        return made.squeeze(0) if isinstance(made, Tensor) else None
    if index is None or index.numel() != place.tokens**2:
        return None
    return table[index.flatten().to(table.device)].view(place.tokens, place.tokens, -1).permute(2, 0, 1)


def _rotary(model: nn.Module, grid: Pair) -> list[Found]:
    """timm's modules give the sines and cosines of a grid when asked."""
    for name, part in model.named_modules():
        if not _is_rotary(part):
            continue
        get_embed: Any = getattr(part, "get_embed", None)
        if get_embed is None:
            continue
        turned = get_embed(shape=list(grid))
        turned = torch.cat(turned, -1) if isinstance(turned, tuple) else turned
        if not isinstance(turned, Tensor) or turned.shape[-2] != grid[0] * grid[1]:
            continue
        similar = cosines(turned.detach().float().cpu())
        note = f"{name}: turns queries and keys by angles of their rows and columns; cosines of (sin, cos) of these"
        if similar.dim() == 2:
            return [Found("rotary", note, grid, similar)]
        similar = similar.flatten(0, -4) if similar.dim() > 4 else similar
        by_layer = {index: layer if layer.dim() == 3 else layer[None] for index, layer in enumerate(similar)}
        mean = similar.flatten(0, -3).mean(0)
        return [Found("rotary", f"{note}, their mean over layers and heads", grid, mean, by_layer)]
    return []


def _is_rotary(part: nn.Module) -> bool:
    kind = type(part).__name__
    return "Rotary" in kind or "Rope" in kind


def _why_none(model: nn.Module) -> str:
    """What else there may be that tells a model of places."""
    names = " ".join(name for name, _ in model.named_parameters())
    kinds = " ".join(type(part).__name__ for part in model.modules())
    if "relative_position_bias_table" in names:
        return "it has tables of relative biases, and nothing says which layer each of them belongs to"
    if any(network in names for network in ("cpb_mlp", "meta_mlp", "rel_pos.mlp")):
        return "its biases come from a network that reads relative coordinates: no place has an encoding to compare"
    if "attention_bias" in names:
        return "its attention adds tables of biases, in a form that is not read here"
    if any(_is_rotary(part) for part in model.modules()):
        return "it turns queries and keys by their places, in a form that is not read here"
    if "PositionalScores" in kinds:
        return "its positions act through attention scores alone: no place has an encoding to compare"
    return "no encoding of places was found among its parameters and buffers"
