"""`--set field=value` on frozen dataclasses, checked against the field's type."""

from __future__ import annotations

import ast
import dataclasses
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar

Config = TypeVar("Config")


def changed(config: Config, assignments: Sequence[str]) -> Config:
    """The config with fields replaced.

    `descent.steps=800` reaches into a field that is a dataclass itself, `cases.0.error=0.01` into the first of a tuple
    and `settings.gram.seed=1` into an entry by its name.
    """
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        if not equals:
            raise ValueError(f"set: got {assignment!r}, expected field=value")
        config = _replaced(config, path.strip().split("."), text.strip(), path.strip(), _names(config))
    return config


def _replaced(holder: Any, path: list[str], text: str, whole: str, names: list[str]) -> Any:
    """The dataclass, tuple or mapping with what the path leads to replaced."""
    name, *rest = path
    entries = _entries(holder)
    if name not in entries:
        raise ValueError(f"set: got the field {whole!r}, expected one of {', '.join(names)}")
    if rest and not _entries(entries[name]):
        raise ValueError(f"set: got the field {whole!r}, but {name} has no fields of its own")
    if rest:
        value = _replaced(entries[name], rest, text, whole, names)
    elif not dataclasses.is_dataclass(holder):
        raise ValueError(f"set: got the field {whole!r}, expected one of {', '.join(names)}")
    else:
        value = _parsed(text, typing.get_type_hints(type(holder))[name], whole)
    if isinstance(holder, tuple):
        return tuple(value if str(place) == name else each for place, each in enumerate(holder))
    return {**holder, name: value} if isinstance(holder, Mapping) else dataclasses.replace(holder, **{name: value})


def _entries(holder: Any) -> dict[str, Any]:
    """What a path may go on to: fields, or the dataclasses in a tuple by place or in a mapping by name."""
    if dataclasses.is_dataclass(holder):
        return {field.name: getattr(holder, field.name) for field in dataclasses.fields(holder)}
    inside = dict(enumerate(holder)) if isinstance(holder, tuple) else holder if isinstance(holder, Mapping) else {}
    return {str(name): each for name, each in inside.items() if dataclasses.is_dataclass(each)}


def _names(config: Any, prefix: str = "") -> list[str]:
    names = []
    for name, value in _entries(config).items():
        names += _names(value, f"{prefix}{name}.") if _entries(value) else [prefix + name]
    return names


def _parsed(text: str, expected: Any, whole: str) -> Any:
    """The text as a value of the type; numbers, words, None and tuples of numbers are all that configs hold."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        value = text
    if expected is float and type(value) is int:
        value = float(value)
    if not _fits(value, expected):
        shown = getattr(expected, "__name__", str(expected)) if typing.get_origin(expected) is None else str(expected)
        raise ValueError(f"set: got {whole}={text}, expected {shown.replace('typing.', '')}")
    return value


def _fits(value: Any, expected: Any) -> bool:
    origin, inside = typing.get_origin(expected), typing.get_args(expected)
    if origin is Literal:
        return value in inside
    if origin is tuple:
        if len(inside) == 2 and inside[1] is ...:
            return isinstance(value, tuple) and all(_fits(each, inside[0]) for each in value)
        return isinstance(value, tuple) and len(value) == len(inside) and all(map(_fits, value, inside))
    if inside:
        return any(_fits(value, option) for option in inside)
    if expected in (None, type(None)):
        return value is None
    return type(value) is expected or (expected is float and type(value) is int)
