"""What an inspection's page carries: numbers as JSON, attention as compressed blocks, photographs as PNG."""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from tessella.probe.inspection import Encodings, Example, Inspection, Layer, Measured
from tessella.report.attention_blocks import LADDER, Coarseness, block, foretold, kept_queries, packed, strided


@dataclass
class Cargo:
    """The page's data: what its script reads first, and the blocks that it decodes when they are needed."""

    meta: dict[str, Any]
    blocks: dict[str, str]
    """Compressed bytes as base64, by name."""


@dataclass(frozen=True)
class _Attention:
    """One layer's attention, over the mean of all images or on one."""

    layer: Layer
    weights: np.ndarray
    """(heads, tokens, tokens)."""
    mean: bool

    def kept(self, stride: int) -> np.ndarray:
        return self.weights if stride == 1 else self.weights[:, kept_queries(self.layer, stride)]

    def levels(self, how: Coarseness) -> int:
        return how.mean if self.mean else how.single


@dataclass
class _Packer:
    """Gathers what the page shows, before it is known how coarsely it must be kept."""

    attention: dict[str, _Attention] = field(default_factory=dict)
    blocks: dict[str, str] = field(default_factory=dict)
    pictures: dict[tuple[str, int], int] = field(default_factory=dict)
    photographs: list[dict[str, str]] = field(default_factory=list)


def cargo(inspections: Sequence[Inspection], limit: int) -> Cargo:
    """Everything the page of these inspections needs, its attention in at most `limit` characters."""
    if not inspections:
        raise ValueError("inspections: got none, expected at least one")
    models: dict[str, list[int]] = {}
    for place, inspection in enumerate(inspections):
        models.setdefault(inspection.name, []).append(place)
    _check_steps(inspections, models)
    packer = _Packer()
    described = [_described(inspection, place, packer) for place, inspection in enumerate(inspections)]
    how, blocks = _fitted(packer.attention, limit)
    for inspection, made in zip(inspections, described, strict=True):
        for layer, told in zip(inspection.layers, made["layers"], strict=True):
            told["stride"] = strided(layer, how.stride)
    meta = {
        "levels": {"mean": how.mean, "single": how.single},
        "pictures": packer.photographs,
        "inspections": described,
        "models": [{"name": name, "inspections": places} for name, places in models.items()],
    }
    return Cargo(meta, {**packer.blocks, **blocks})


def _fitted(attention: Mapping[str, _Attention], limit: int) -> tuple[Coarseness, dict[str, str]]:
    """The finest blocks that fit the limit together."""

    def made(key: str, how: Coarseness) -> str:
        return block(attention[key].kept(how.stride), attention[key].levels(how))

    size = 0
    for how in LADDER:
        expected = sum(foretold(each.kept(how.stride), each.levels(how)) for each in attention.values())
        if expected > 1.15 * limit:
            continue
        with ThreadPoolExecutor(2) as workers:  # zlib works outside the interpreter's lock
            blocks = dict(zip(attention, workers.map(lambda key, how=how: made(key, how), attention), strict=True))
        size = sum(map(len, blocks.values()))
        if size <= limit:
            return how, blocks
    size = size or round(expected)
    raise ValueError(
        f"inspections: got about {size / 1e6:.3g} MB of attention at its coarsest, expected at most "
        f"{limit / 1e6:.3g} MB; inspect fewer layers, keep fewer images, or put fewer models or steps on a page"
    )


def _check_steps(inspections: Sequence[Inspection], models: Mapping[str, list[int]]) -> None:
    for name, places in models.items():
        steps = [inspections[place].step for place in places]
        if len(places) > 1 and (None in steps or len(set(steps)) != len(steps)):
            raise ValueError(f"inspections: got {len(places)} named {name!r}, expected names or steps that differ")
        places.sort(key=lambda place: inspections[place].step or 0)


def _described(inspection: Inspection, place: int, packer: _Packer) -> dict[str, Any]:
    """One inspection as the script reads it."""
    if not inspection.layers:
        raise ValueError(f"inspections: got {inspection.name!r} without layers, expected at least one")
    for number, layer in enumerate(inspection.layers):
        _add(packer, f"{place}.{number}.mean", _Attention(layer, _plain(layer.mean_attention), mean=True))
    return {
        "name": inspection.name,
        "library": inspection.library,
        "details": {str(name): str(value) for name, value in inspection.details.items()},
        "step": inspection.step,
        "images": inspection.images,
        "grid": list(inspection.grid),
        "patch": list(inspection.patch),
        "image": list(inspection.image),
        "prefix": list(inspection.prefix),
        "layers": [_layer(layer) for layer in inspection.layers],
        "encodings": [
            _encodings(each, f"{place}.similarities.{number}", packer)
            for number, each in enumerate((inspection.encodings, *inspection.encodings.others))
        ],
        "measures": [_measured(name, measured) for name, measured in inspection.measures.items()],
        "examples": _examples(inspection, place, packer),
    }


def _layer(layer: Layer) -> dict[str, Any]:
    return {
        "index": layer.index,
        "name": layer.name,
        "heads": layer.heads,
        "grid": list(layer.grid),
        "patch": list(layer.patch),
        "prefix": list(layer.prefix),
        "windows": layer.windows,
    }


def _examples(inspection: Inspection, place: int, packer: _Packer) -> dict[int, dict[str, Any]]:
    """Its examples by picture; an example of the same name in another inspection is the same picture."""
    described: dict[int, dict[str, Any]] = {}
    named: dict[str, int] = {}
    for example in inspection.examples:
        named[example.name] = named.get(example.name, 0) + 1
        picture = packer.pictures.setdefault((example.name, named[example.name]), len(packer.pictures))
        if picture == len(packer.photographs):
            packer.photographs.append({"name": example.name, "source": _photograph(example)})
        described[picture] = {"label": example.label, "prediction": example.prediction}
        for number, (layer, attention) in enumerate(zip(inspection.layers, example.attention, strict=True)):
            _add(packer, f"{place}.{number}.{picture}", _Attention(layer, _plain(attention), mean=False))
    return described


def _add(packer: _Packer, key: str, attention: _Attention) -> None:
    weights, layer = attention.weights, attention.layer
    expected = (layer.heads, layer.tokens, layer.tokens)
    if weights.shape != expected:
        raise ValueError(f"attention: got shape {weights.shape} in {layer.name}, expected {expected}")
    if not (weights.min(initial=0.0) >= 0 and weights.max(initial=0.0) < math.inf):
        raise ValueError(f"attention: got weights in {layer.name} that are negative or not finite, expected shares")
    packer.attention[key] = attention


def _encodings(encodings: Encodings, key: str, packer: _Packer) -> dict[str, Any]:
    described: dict[str, Any] = {
        "kind": encodings.kind,
        "note": encodings.note,
        "grid": list(encodings.grid),
        "measures": [
            {
                "name": name,
                "value": _value(value),
                "chance": _value(encodings.chance.get(name, math.nan)),
                "definition": encodings.definitions.get(name, ""),
            }
            for name, value in encodings.measures.items()
        ],
    }
    if encodings.similarities is None:
        return described
    similarities = _plain(encodings.similarities).astype(np.float32)
    low, high = float(similarities.min()), float(similarities.max())
    scaled = np.rint((similarities - low) / ((high - low) or 1.0) * 255).astype(np.uint8)
    packer.blocks[key] = packed(scaled.tobytes())
    return {**described, "low": low, "high": high}


def _measured(name: str, measured: Measured) -> dict[str, Any]:
    return {
        "name": name,
        "definition": measured.definition,
        "low": _value(measured.low),
        "high": _value(measured.high),
        "unit": measured.unit,
        "images": measured.images,
        "chanceImages": measured.chance_images,
        "values": [[_value(value) for value in row] for row in _plain(measured.values).tolist()],
        "chance": [[_value(value) for value in row] for row in _plain(measured.chance).tolist()],
    }


def _value(value: float) -> float | None:
    """Four significant digits; None where there is no number."""
    return float(f"{value:.4g}") if math.isfinite(value) else None


def _plain(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy()


def _photograph(example: Example) -> str:
    """The example's pixels as a PNG inside a data address."""
    return "data:image/png;base64," + base64.b64encode(png(_plain(example.pixels))).decode()


def png(pixels: np.ndarray) -> bytes:
    """Eight-bit RGB pixels (height, width, 3) as a PNG file."""
    height, width, _ = pixels.shape
    rows = np.zeros((height, 1 + 3 * width), dtype=np.uint8)  # each row begins with its filter: none
    rows[:, 1:] = pixels.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_part(kind, content) for kind, content in parts)


def _part(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
