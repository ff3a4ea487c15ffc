"""`--set field=value` on frozen dataclasses, checked against the field's type."""

from __future__ import annotations

import ast
import dataclasses
import typing
from collections.abc import Sequence
from typing import Any, Literal, TypeVar

Config = TypeVar("Config")


def changed(config: Config, assignments: Sequence[str]) -> Config:
    """The config with fields replaced; `descent.steps=800` reaches into a field that is a dataclass itself."""
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        if not equals:
            raise ValueError(f"set: got {assignment!r}, expected field=value")
        config = _replaced(config, path.strip().split("."), text.strip(), path.strip(), _names(config))
    return config


def _replaced(config: Any, path: list[str], text: str, whole: str, names: list[str]) -> Any:
    types = typing.get_type_hints(type(config))
    name, *rest = path
    if name not in types:
        raise ValueError(f"set: got the field {whole!r}, expected one of {', '.join(names)}")
    if rest:
        inner = getattr(config, name)
        if not dataclasses.is_dataclass(inner):
            raise ValueError(f"set: got the field {whole!r}, but {name} has no fields of its own")
        return dataclasses.replace(config, **{name: _replaced(inner, rest, text, whole, names)})
    return dataclasses.replace(config, **{name: _parsed(text, types[name], whole)})


def _names(config: Any, prefix: str = "") -> list[str]:
    names = []
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            names += _names(value, f"{prefix}{field.name}.")
        else:
            names.append(prefix + field.name)
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
        return any(_fits(value, option) or (option is float and type(value) is int) for option in inside)
    if expected in (None, type(None)):
        return value is None
    return type(value) is expected
