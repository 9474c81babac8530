"""Two tensors beside each other, bit by bit, and how far apart their values are; what is in one tensor.

Elements are compared by their bits: a NaN equals a NaN of the same bits, and 0.0 is not -0.0. Works through a tensor in
pieces, so that it takes some megabytes beside the tensors.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

PIECE = 1 << 20  # elements looked at at a time
_WORDS: dict[int, Any] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


@dataclass(frozen=True, slots=True)
class Unequal:
    """How two tensors of one shape differ.

    count: unequal elements, of `total`. max_abs, max_rel: the largest |a - b|, and the largest |a - b| / max(|a|, |b|),
    over those that are numbers on both sides; None where there is none. nan: of `count`, how many are NaN on a side.
    first: the index of the first one, in the order of rows; a, b: its values as text.
    """

    count: int
    total: int
    max_abs: float | int | None
    max_rel: float | None
    nan: int
    first: tuple[int, ...]
    a: str
    b: str

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain JSON; infinity is the string "inf"."""
        return {
            "count": self.count,
            "total": self.total,
            "max_abs": finite(self.max_abs),
            "max_rel": finite(self.max_rel),
            "nan": self.nan,
            "first": list(self.first),
            "a": self.a,
            "b": self.b,
        }

    def __str__(self) -> str:
        text = f"{self.count:,} of {self.total:,} elements differ"
        if self.max_abs is not None and self.max_rel is not None:
            text += f" by up to {number(self.max_abs)}, relative {number(self.max_rel)}"
        if self.nan:
            text += f", {self.nan:,} with NaN on a side"
        at = ", ".join(map(str, self.first))
        return f"{text}; the first at [{at}]: {self.a} and {self.b}"


@dataclass(frozen=True, slots=True)
class Values:
    """What is in a tensor: the extremes and the mean of its finite elements (None where there are none).

    non_finite: how many are infinite or NaN. Complex numbers count by their absolute value.
    """

    minimum: float | int | None
    maximum: float | int | None
    mean: float | None
    non_finite: int


def finite(value: float | None) -> float | str | None:
    """Return a number as JSON can have it.

    >>> finite(float("inf")), finite(0.5)
    ('inf', 0.5)
    """
    return value if value is None or math.isfinite(value) else str(value)


def number(value: float) -> str:
    """Return a number for people, an integer with all its digits."""
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}"


def components(tensor: torch.Tensor) -> dict[str, torch.Tensor] | None:
    """Return the dense tensors that a sparse or quantized one consists of; None if it is an ordinary one."""
    if tensor.is_quantized:
        return {"stored": tensor.int_repr(), "values": tensor.dequantize()}
    if tensor.layout == torch.sparse_coo:
        return {"indices": tensor._indices(), "values": tensor._values()}
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return {"rows": tensor.crow_indices(), "columns": tensor.col_indices(), "values": tensor.values()}
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return {"columns": tensor.ccol_indices(), "rows": tensor.row_indices(), "values": tensor.values()}
    return None


def unequal(a: torch.Tensor, b: torch.Tensor) -> Unequal | None:
    """Return how two dense tensors of one shape differ; None if no bit does.

    Of one dtype they are compared by bits, of two by value. Reads each once.
    """
    by_bits = a.dtype == b.dtype
    count = nan = 0
    first: int | None = None
    max_abs: float | int | None = None
    max_rel: float | None = None
    flat_a, flat_b = _flat(a), _flat(b)
    for start in range(0, a.numel(), PIECE):
        x, y = flat_a[start : start + PIECE], flat_b[start : start + PIECE]
        differ = _bits_differ(x, y) if by_bits else _values_differ(x, y)
        where = np.flatnonzero(differ)
        if not len(where):
            continue
        first = start + int(where[0]) if first is None else first
        count += len(where)
        left, right = _numbers(x), _numbers(y)
        if left is not None and right is not None:
            far, relative, odd = _distance(left[where], right[where])
            max_abs, max_rel, nan = _larger(max_abs, far), _larger(max_rel, relative), nan + odd
    if first is None:
        return None
    index = tuple(int(place) for place in np.unravel_index(first, a.shape)) if a.dim() else ()
    texts = _texts(flat_a[first : first + 1], flat_b[first : first + 1])
    return Unequal(count, a.numel(), max_abs, max_rel, nan, index, *texts)


def values(tensor: torch.Tensor) -> Values:
    """Return what is in a dense tensor. Reads it once."""
    low: float | int | None = None
    high: float | int | None = None
    sums: list[float] = []
    counted = non_finite = 0
    for numbers in _pieces(tensor):
        if np.iscomplexobj(numbers):
            numbers = np.abs(numbers)  # noqa: PLW2901
        good = np.isfinite(numbers)
        non_finite += int(len(numbers) - good.sum())
        kept = numbers if good.all() else numbers[good]
        if len(kept):
            low, high = _smaller(low, kept.min().item()), _larger(high, kept.max().item())
            with np.errstate(over="ignore"):
                sums.append(float(kept.sum(dtype=np.float64)))
            counted += len(kept)
    mean = sum(sums) / counted if counted else None
    return Values(low, high, mean, non_finite)


def _pieces(tensor: torch.Tensor) -> Iterator[np.ndarray[Any, Any]]:
    flat = _flat(tensor)
    for start in range(0, len(flat), PIECE):
        numbers = _numbers(flat[start : start + PIECE])
        if numbers is not None:
            yield numbers


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """Return the elements in the order of rows; copies a tensor only where it does not lie in that order."""
    return tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)


def _bits_differ(x: torch.Tensor, y: torch.Tensor) -> np.ndarray[Any, Any]:
    size = x.element_size()
    raw = [side.view(torch.uint8).numpy().reshape(-1) for side in (x, y)]
    if size in _WORDS:
        left, right = (side.view(_WORDS[size]) for side in raw)
        return np.asarray(left != right)
    left, right = (side.reshape(-1, size) for side in raw)
    return np.asarray((left != right).any(axis=1))


def _values_differ(x: torch.Tensor, y: torch.Tensor) -> np.ndarray[Any, Any]:
    left, right = _numbers(x), _numbers(y)
    if left is None or right is None:
        return np.ones(len(x), dtype=bool)
    return np.asarray((left != right) & ~(np.isnan(left) & np.isnan(right)))


def _numbers(x: torch.Tensor) -> np.ndarray[Any, Any] | None:
    """Return elements as NumPy numbers of the same values: integers as they are, floats as float64; None if unknown."""
    try:
        if x.dtype == torch.bool:
            return x.to(torch.uint8).numpy()
        if x.is_complex():
            return x.to(torch.complex128).numpy()
        if x.is_floating_point():
            return x.to(torch.float64).numpy()
        return x.numpy()
    except (RuntimeError, TypeError):  # a dtype of packed or raw bits
        return None


def _distance(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> tuple[float | int | None, float | None, int]:
    """Return the largest absolute and relative difference, and how many pairs have a NaN."""
    with np.errstate(all="ignore"):
        if x.dtype.kind in "iu" and y.dtype == x.dtype:
            wide = np.int64 if x.dtype.kind == "i" else np.uint64
            upper, lower = np.maximum(x, y).astype(wide), np.minimum(x, y).astype(wide)
            apart: Any = upper.astype(np.uint64) - lower.astype(np.uint64)  # exact: it wraps round to the difference
            scale = np.maximum(np.abs(x.astype(np.float64)), np.abs(y.astype(np.float64)))
            return int(apart.max()), float((apart.astype(np.float64) / scale).max()), 0
        if not (np.iscomplexobj(x) or np.iscomplexobj(y)):
            x, y = x.astype(np.float64), y.astype(np.float64)
        odd = np.isnan(x) | np.isnan(y)
        x, y = x[~odd], y[~odd]
        if not len(x):
            return None, None, int(odd.sum())
        apart, scale = np.abs(x - y), np.maximum(np.abs(x), np.abs(y))
        apart = np.where(np.isnan(apart), np.inf, apart)
        relative = np.where(scale == 0, 0.0, np.where(np.isinf(apart), np.inf, apart / scale))
        return float(apart.max()), float(relative.max()), int(odd.sum())


def _texts(x: torch.Tensor, y: torch.Tensor) -> tuple[str, str]:
    """Return two unequal elements as texts that differ."""
    sides = (x, y)
    texts = [_text(side) for side in sides]
    if texts[0] == texts[1] and x.dtype == y.dtype:
        texts = [f"{text} (0x{bytes(reversed(_raw(side))).hex()})" for text, side in zip(texts, sides, strict=True)]
    return texts[0], texts[1]


def _text(x: torch.Tensor) -> str:
    numbers = _numbers(x)
    if numbers is None:
        return "?"
    if x.dtype == torch.bool:
        return str(bool(numbers[0]))
    value = numbers[0].item()
    return f"{value:.9g}" if isinstance(value, float) and x.dtype != torch.float64 else str(value)


def _raw(x: torch.Tensor) -> bytes:
    return bytes(x.view(torch.uint8).numpy().tobytes())


def _larger(old: Any, new: Any) -> Any:
    return new if old is None else old if new is None else max(old, new)


def _smaller(old: Any, new: Any) -> Any:
    return new if old is None else min(old, new)
