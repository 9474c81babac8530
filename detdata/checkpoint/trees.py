"""Trees of plain values: what `torch.load(weights_only=True)` gives back, checked before it is written.

Allowed: None, bool, int, float, complex, str, bytes (not empty), tensors, and list, tuple, dict, OrderedDict, Counter
of them, torch.Size, dtype, device; exactly these types, not subclasses. NumPy scalars become the Python scalars of
the same value; NumPy arrays become tensors where the caller says so. The copy shares tensor memory with the original,
and equal strings become one object, so that equal trees give equal bytes.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import Any

import numpy as np
import torch

from detdata.checkpoint.sharded import is_sharded
from detdata.errors import ArgumentTypeError, ArgumentValueError

MAX_DEPTH = 100
MAX_INT_BITS = 2000  # the restricted reader takes integers of up to 255 bytes
_ATOMS = (type(None), bool, float, complex, torch.dtype, torch.device)


def plain(value: Any, part: str, *, arrays: bool = False) -> Any:
    """Return a copy of `value` that consists of allowed values only; tensors are detached, not copied.

    part: what it belongs to, for the message. arrays: NumPy arrays become tensors (copied) instead of an error.
    Raises TypeError naming the part, the path of keys and the type found. Cost O(number of values).

    >>> plain({"lr": np.float64(0.5), "betas": (0.9, 0.99)}, "optimizer")
    {'lr': 0.5, 'betas': (0.9, 0.99)}
    """
    return _Copy(part, arrays).value(value, (), 0)


class _Copy:
    def __init__(self, part: str, arrays: bool) -> None:
        self.part = part
        self.arrays = arrays
        self.seen: dict[str | bytes, str | bytes] = {}

    def value(self, value: Any, path: tuple[Any, ...], depth: int) -> Any:
        kind = type(value)
        if kind in _ATOMS:
            return value
        if kind is int:
            if value.bit_length() > MAX_INT_BITS:
                raise self.refuse(value, path, f"an integer of {value.bit_length()} bits")
            return value
        if kind is str:
            try:
                value.encode()
            except UnicodeEncodeError:
                raise self.refuse(value, path, "a string that is not valid Unicode") from None
            return self.seen.setdefault(value, value)
        if kind is bytes:
            if not value:  # pickled as a call of bytes(), which the restricted reader does not make
                raise self.refuse(value, path, "an empty bytes object")
            return self.seen.setdefault(value, value)
        if kind in (torch.Tensor, torch.nn.Parameter):
            return self.tensor(value, path)
        if is_sharded(value):
            return value.detach()
        if isinstance(value, np.generic):
            return self.scalar(value, path, depth)
        if kind is np.ndarray and self.arrays:
            return self.array(value, path)
        return self.container(value, path, depth)

    def container(self, value: Any, path: tuple[Any, ...], depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise ArgumentValueError(f"{self.part}{_where(path[:5])} … is nested more than {MAX_DEPTH} deep")
        kind = type(value)
        if kind is torch.Size:
            return torch.Size(tuple(value))
        if kind in (list, tuple):
            return kind(self.value(item, (*path, index), depth + 1) for index, item in enumerate(value))
        if kind in (dict, OrderedDict, Counter):
            copy: Any = kind()
            for key, item in value.items():
                copy[self.key(key, path)] = self.value(item, (*path, key), depth + 1)
            metadata = getattr(value, "_metadata", None)
            if metadata is not None:  # versions of the modules, which torch keeps beside a model's state
                copy._metadata = self.value(dict(metadata), (*path, "_metadata"), depth + 1)
            return copy
        raise self.refuse(value, path, f"a {kind.__module__}.{kind.__qualname__}")

    def key(self, key: Any, path: tuple[Any, ...]) -> Any:
        if isinstance(key, np.generic):
            key = self.scalar(key, path, 0)
        if type(key) is tuple:
            return tuple(self.key(item, path) for item in key)
        if type(key) not in (type(None), bool, int, float, complex, str, bytes):
            raise self.refuse(key, path, f"a key of type {type(key).__module__}.{type(key).__qualname__}")
        return self.value(key, (*path, key), 0)

    def tensor(self, value: torch.Tensor, path: tuple[Any, ...]) -> torch.Tensor:
        if value.is_meta:
            raise self.refuse(value, path, "a tensor on the meta device, which has no values")
        return value.detach()

    def scalar(self, value: Any, path: tuple[Any, ...], depth: int) -> Any:
        item = value.item()
        if type(item) in (bool, int, float, complex, str, bytes):
            return self.value(item, path, depth)
        raise self.refuse(value, path, f"a numpy.{type(value).__name__}, which no Python number equals")

    def array(self, value: Any, path: tuple[Any, ...]) -> torch.Tensor:
        try:
            return torch.from_numpy(value.copy(order="C"))
        except TypeError:
            raise self.refuse(value, path, f"a NumPy array of {value.dtype}, for which torch has no dtype") from None

    def refuse(self, value: object, path: tuple[Any, ...], what: str) -> ArgumentTypeError:
        return ArgumentTypeError(
            f"{self.part}{_where(path)} is {what}, which cannot be loaded without running code. Allowed: None, bool, "
            "int, float, complex, str, bytes, Tensor, list, tuple, dict, OrderedDict, Counter, torch.Size, dtype, "
            "device. Let state_dict() return these and rebuild the object in load_state_dict()"
        )


def _where(path: tuple[Any, ...]) -> str:
    return "".join(f"[{key!r}]" for key in path)
