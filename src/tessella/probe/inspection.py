"""What an inspection found: one model on one set of images, as numbers and matrices that a page or a file can show.

All tensors are float32 on the CPU, but for the examples' attention, which is float16. Tokens are the prefix, named one
by one, and then the patches row by row. In a layer that attends within windows, tokens are those of one window, and
its matrices are means over an image's windows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from jaxtyping import Float, UInt8
from torch import Tensor

Kind = Literal["learned", "sin-cos", "relative bias", "rotary", "none"]


@dataclass(frozen=True)
class Measured:
    """One measure of every head, beside what random weights give on the same images."""

    definition: str
    low: float
    high: float
    """The range that the definition allows, not the one that was met; infinite where there is no bound."""
    unit: str
    """"share", "pixels", "nats", ...; empty for a pure number."""
    values: Float[Tensor, "layers heads"]
    """NaN where a layer has fewer heads, and where the measure is not defined."""
    chance: Float[Tensor, "layers heads"]
    """The same measure of the same architecture with random weights."""
    images: int
    """How many images the values come from."""
    chance_images: int
    """How many images the chance level comes from."""


@dataclass(frozen=True)
class Layer:
    """One self-attention of the model, in the order in which they run."""

    index: int
    """Its place in the model, which differs from its place in `Inspection.layers` where only some were asked for."""
    name: str
    heads: int
    mean_attention: Float[Tensor, "heads tokens tokens2"]
    """Over all images; rows are queries and sum to one."""
    grid: tuple[int, int]
    """Rows and columns of its patches: the model's own, or those of a window."""
    patch: tuple[int, int]
    """Pixels between neighbouring patches, down and across."""
    prefix: tuple[str, ...]
    windows: int = 1
    """How many windows an image has; 1 where the whole image is one."""

    @property
    def tokens(self) -> int:
        return len(self.prefix) + self.grid[0] * self.grid[1]


@dataclass(frozen=True)
class Encodings:
    """How the model knows where a patch is."""

    kind: Kind
    note: str
    """What was read and compared; for `none`, why there is nothing to compare."""
    grid: tuple[int, int]
    similarities: Float[Tensor, "patches patches"] | None = None
    """Cosines of the patches' encodings; for relative biases, their mean over layers and heads."""
    measures: Mapping[str, float] = field(default_factory=dict)
    chance: Mapping[str, float] = field(default_factory=dict)
    """The measures, of encodings of random weights."""
    definitions: Mapping[str, str] = field(default_factory=dict)
    others: tuple[Encodings, ...] = ()
    """What the model has beside these, such as learned encodings beside rotary ones."""


@dataclass(frozen=True)
class Example:
    """One image, kept whole."""

    name: str
    pixels: UInt8[Tensor, "height width colours"]
    """What the model saw, in three colours."""
    attention: tuple[Float[Tensor, "_ _ _"], ...]
    """Heads, queries and keys of each of `Inspection.layers`, in float16; layers may differ in all three."""
    label: str | None = None
    prediction: str | None = None


@dataclass(frozen=True)
class Inspection:
    """What `tessella.inspect` returns."""

    name: str
    library: str
    details: Mapping[str, str]
    """What a reader should know: parameters, where the weights are from, subsets that were used."""
    grid: tuple[int, int]
    patch: tuple[int, int]
    image: tuple[int, int]
    prefix: tuple[str, ...]
    layers: tuple[Layer, ...]
    encodings: Encodings
    measures: Mapping[str, Measured]
    examples: tuple[Example, ...]
    images: int
    """How many images the mean attention is over."""
    step: int | None = None
    """The training step of this snapshot, where it is one."""

    def as_json(self) -> dict[str, Any]:
        """Everything but the matrices: numbers of each head, with null where there is none."""
        return {
            "name": self.name,
            "library": self.library,
            "details": dict(self.details),
            "step": self.step,
            "images": self.images,
            "grid": list(self.grid),
            "patch": list(self.patch),
            "image": list(self.image),
            "prefix": list(self.prefix),
            "layers": [_layer_json(layer) for layer in self.layers],
            "encodings": _encodings_json(self.encodings),
            "measures": {name: _measured_json(measured) for name, measured in self.measures.items()},
        }


def _layer_json(layer: Layer) -> dict[str, Any]:
    return {
        "index": layer.index,
        "name": layer.name,
        "heads": layer.heads,
        "grid": list(layer.grid),
        "windows": layer.windows,
    }


def _encodings_json(encodings: Encodings) -> dict[str, Any]:
    return {
        "kind": encodings.kind,
        "note": encodings.note,
        "measures": {name: _number(value) for name, value in encodings.measures.items()},
        "chance": {name: _number(value) for name, value in encodings.chance.items()},
        "definitions": dict(encodings.definitions),
        "others": [_encodings_json(other) for other in encodings.others],
    }


def _measured_json(measured: Measured) -> dict[str, Any]:
    return {
        "definition": measured.definition,
        "low": _number(measured.low),
        "high": _number(measured.high),
        "unit": measured.unit,
        "images": measured.images,
        "chance_images": measured.chance_images,
        "values": [[_number(value) for value in row] for row in measured.values.tolist()],
        "chance": [[_number(value) for value in row] for row in measured.chance.tolist()],
    }


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
