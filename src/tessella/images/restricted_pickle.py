"""Reads pickles that hold arrays, bytes, text, numbers, lists and dictionaries, and refuses all that could run code.

CIFAR is served as pickles, and a pickle is a program: it may ask for any function to be called. Here it gets none that
exist elsewhere. Names that numpy's arrays are pickled under are answered by stand-ins, which keep what they are told
and run nothing of numpy's; a plain array is made of it afterwards. Every other name is refused.
"""

from __future__ import annotations

import io
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np

_KINDS = frozenset({"b1", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8"})


def loads(content: bytes, source: str) -> Any:
    """What a pickle holds. Text that Python 2 wrote comes back as bytes. `source` is what a message calls it."""
    try:
        return _plain(_Unpickler(io.BytesIO(content), encoding="bytes").load())
    except _RefusedError as error:
        raise ValueError(f"{source}: {error}") from error
    except Exception as error:  # a damaged pickle ends in whatever its bytes happen to ask for
        raise ValueError(f"{source}: truncated, damaged or no pickle ({type(error).__name__}: {error})") from error


class _RefusedError(Exception):
    """A pickle asked for what it must not have."""


class _Kind:
    """Stands in for numpy.dtype."""

    def __init__(self, letters: str | bytes, align: object = False, copy: object = False):
        name = letters.decode("ascii") if isinstance(letters, bytes) else letters
        if name not in _KINDS:
            raise _RefusedError(f"asks for an array of {name!r}, expected one of {', '.join(sorted(_KINDS))}")
        self.name = name
        self.order = "="

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        order = state[1].decode("ascii") if isinstance(state[1], bytes) else state[1]
        if order not in "<>|=":
            raise _RefusedError(f"asks for numbers in the byte order {order!r}")
        self.order = order

    def of_numpy(self) -> np.dtype[Any]:
        return np.dtype(self.name).newbyteorder(self.order)  # type: ignore[arg-type]


class _Array:
    """Stands in for numpy.ndarray: a shape, a kind of number, and bytes."""

    def __init__(self) -> None:
        self.made: np.ndarray | None = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, by_columns, content = state
        self.made = _array(content, kind, shape, "F" if by_columns else "C")


def _array(content: Any, kind: Any, shape: Any, order: Any) -> np.ndarray:
    if not isinstance(kind, _Kind) or not isinstance(content, bytes | bytearray) or order not in ("C", "F"):
        raise _RefusedError("holds an array that is not made of plain bytes")
    wanted = math.prod(shape) * kind.of_numpy().itemsize
    if len(content) != wanted:
        raise _RefusedError(f"holds {len(content)} bytes for an array of shape {tuple(shape)}, expected {wanted}")
    return np.frombuffer(content, kind.of_numpy()).reshape(shape, order=order)


def _reconstructed(kind: object, shape: object, letter: object) -> _Array:
    return _Array()


def _from_buffer(content: Any, kind: Any, shape: Any, order: Any, *axes: object) -> np.ndarray:
    return _array(content, kind, shape, order)


def _scalar(kind: _Kind, content: bytes) -> Any:
    return _array(content, kind, (), "C").item()


def _encoded(text: str, encoding: Any = "latin1") -> bytes:
    """How protocol 2 writes bytes."""
    if encoding not in ("latin1", "latin-1", b"latin1"):
        raise _RefusedError(f"asks for the encoding {encoding!r}")
    return text.encode("latin1")


_NDARRAY = object()
"""What `_reconstruct` is told to make: an array, of whatever class."""

_STAND_INS: dict[tuple[str, str], Callable[..., Any] | object] = {
    ("numpy", "dtype"): _Kind,
    ("numpy", "ndarray"): _NDARRAY,
    ("_codecs", "encode"): _encoded,
    **{
        (f"numpy.{core}.{module}", name): made
        for core in ("core", "_core")
        for module, name, made in (
            ("multiarray", "_reconstruct", _reconstructed),
            ("multiarray", "scalar", _scalar),
            ("numeric", "_frombuffer", _from_buffer),
        )
    },
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _STAND_INS:
            raise _RefusedError(
                f"asks for {module}.{name}, which may run code; expected arrays, bytes, text, numbers, lists and "
                "dictionaries alone"
            )
        return _STAND_INS[module, name]

    def persistent_load(self, reference: Any) -> Any:
        raise _RefusedError("asks for something outside of the file")


def _plain(value: Any) -> Any:
    """With arrays in the place of their stand-ins, and nothing else that was made on the way."""
    if isinstance(value, _Array):
        if value.made is None:
            raise _RefusedError("holds an array without content")
        return value.made
    if isinstance(value, dict):
        return {_plain(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if value is None or isinstance(value, bool | int | float | str | bytes | np.ndarray):
        return value
    raise _RefusedError(f"holds a {type(value).__name__}, expected arrays, bytes, text, numbers, lists, dictionaries")
