"""Two trees of state beside each other: what is on one side only, and what differs, by name.

The order of the keys of a dict doesn't count, nor how a tensor's elements lie in memory.
"""

from __future__ import annotations

import reprlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from detdata.checkpoint.tensor_difference import Unequal, components, unequal
from detdata.errors import UnknownFormat

Path: TypeAlias = tuple[Any, ...]
MAX_DEPTH = 200  # twice what a save writes
_DICTS = dict
_LISTS = (list, tuple)
_brief = reprlib.Repr()
_brief.maxstring = _brief.maxother = _brief.maxlong = 80


@dataclass(frozen=True, slots=True)
class StateDifference:
    """One place in which two states differ.

    part: the file. name: the place in it, keys joined by `/`, `[0]` for the first of a list. kind: `only_a`, `only_b`,
    `type`, `shape`, `dtype`, `elements` (of a tensor) or `value`. a, b: what is there, as text; None where nothing is.
    elements: how the tensors differ, where their shapes agree.
    """

    part: str
    name: str
    kind: str
    a: str | None
    b: str | None
    elements: Unequal | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain JSON."""
        elements = None if self.elements is None else self.elements.to_dict()
        return {
            "part": self.part,
            "name": self.name,
            "kind": self.kind,
            "a": self.a,
            "b": self.b,
            "elements": elements,
        }

    def __str__(self) -> str:
        name = self.name or "all of it"
        if self.kind in ("only_a", "only_b"):
            return f"{name}: only in {self.kind[-1]}: {self.b if self.a is None else self.a}"
        if self.kind == "elements":
            return f"{name}  {self.a}: {self.elements}"
        more = "" if self.elements is None else f"; {self.elements}"
        return f"{name}: {self.kind} {self.a} in a, {self.b} in b{more}"


@dataclass(frozen=True, slots=True)
class TreeDiff:
    """differences: all of them. tensors: how many there are on either side; differing: how many of these differ."""

    differences: tuple[StateDifference, ...]
    tensors: int
    differing: int


def diff_trees(a: Any, b: Any, part: str = "") -> TreeDiff:
    """Return what differs between two trees of dicts, lists, tuples, tensors and plain values, to the bit.

    Floats and tensors are compared by their bits. What is on one side only is told once, by its uppermost name. Cost:
    one pass over both. Raises UnknownFormat for trees that are nested too deep.

    >>> [difference] = diff_trees({"lr": 0.1, "x": torch.zeros(2)}, {"lr": 0.2, "x": torch.zeros(2)}).differences
    >>> str(difference)
    'lr: value 0.1 in a, 0.2 in b'
    """
    walk = _Walk(part)
    walk.visit(a, b, ())
    return TreeDiff(tuple(walk.found), walk.tensors, walk.differing)


def tensors_of(tree: Any) -> Iterator[tuple[Path, torch.Tensor]]:
    """Yield (path, tensor) of every dense tensor in a tree; one that is there twice, by the same object, once."""
    yield from _tensors(tree, (), set())


def path_text(path: Path) -> str:
    """Return a path of keys as text.

    >>> path_text(("state", "0.weight", "exp_avg")), path_text(("groups", 0, "a/b"))
    ('state/0.weight/exp_avg', "groups/[0]/['a/b']")
    """
    return "/".join(key if _is_plain(key) else f"[{key!r}]" for key in path)


def _is_plain(key: Any) -> bool:
    return type(key) is str and bool(key) and key.isprintable() and not set(key) & set("/[]")


class _Walk:
    def __init__(self, part: str) -> None:
        self.part = part
        self.found: list[StateDifference] = []
        self.tensors = self.differing = 0
        self._seen: set[tuple[int, int]] = set()

    def visit(self, a: Any, b: Any, path: Path) -> None:
        """Compare what is at `path` on both sides."""
        if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
            self._tensor(a, b, path)
        elif _same_family(a, b):
            if (id(a), id(b)) in self._seen:  # a file made to hurt may hold one list a million times
                return
            self._seen.add((id(a), id(b)))
            _check_depth(path)
            if type(a) is not type(b):
                self._add(path, "type", type(a).__name__, type(b).__name__)
            left, right = _children(a), _children(b)
            for identity, (key, item) in left.items():
                if identity in right:
                    self.visit(item, right[identity][1], (*path, key))
                else:
                    self._one_sided(item, (*path, key), "only_a")
            for identity, (key, item) in right.items():
                if identity not in left:
                    self._one_sided(item, (*path, key), "only_b")
        elif type(a) is not type(b):
            self._count(a)
            self._count(b)
            self._add(path, "type", describe(a), describe(b))
        elif not _same_value(a, b):
            self._add(path, "value", describe(a), describe(b))

    def _tensor(self, a: torch.Tensor, b: torch.Tensor, path: Path) -> None:
        self.tensors += 1
        before = len(self.found)
        parts_a, parts_b = components(a), components(b)
        if a.shape != b.shape:
            self._add(path, "shape", describe(a), describe(b))
        elif (parts_a is None) != (parts_b is None) or a.layout != b.layout:
            self._add(path, "type", f"{describe(a)} {a.layout}", f"{describe(b)} {b.layout}")
        elif parts_a is not None and parts_b is not None:
            for name, one in parts_a.items():
                self._dense(one, parts_b[name], (*path, name))
        else:
            self._dense(a, b, path)
        self.differing += len(self.found) > before

    def _dense(self, a: torch.Tensor, b: torch.Tensor, path: Path) -> None:
        if a.shape != b.shape:
            self._add(path, "shape", describe(a), describe(b))
            return
        found = unequal(a, b)
        if a.dtype != b.dtype:
            self._add(path, "dtype", describe(a), describe(b), found)
        elif found is not None:
            self._add(path, "elements", describe(a), describe(b), found)

    def _one_sided(self, value: Any, path: Path, kind: str) -> None:
        self._count(value)
        text = describe(value)
        self._add(path, kind, text if kind == "only_a" else None, text if kind == "only_b" else None)

    def _count(self, value: Any) -> None:
        found = sum(1 for _ in _tensors(value, (), set()))
        self.tensors += found
        self.differing += found

    def _add(self, path: Path, kind: str, a: str | None, b: str | None, elements: Unequal | None = None) -> None:
        self.found.append(StateDifference(self.part, path_text(path), kind, a, b, elements))


def describe(value: Any) -> str:
    """Return a value for people: a tensor by dtype and shape, a container by its size, the rest as Python writes it.

    >>> describe(torch.zeros(2, 3)), describe({"a": 1}), describe(0.5)
    ('float32 [2, 3]', 'dict of 1', '0.5')
    """
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    if isinstance(value, (_DICTS, *_LISTS)) and type(value) is not torch.Size:
        return f"{type(value).__name__} of {len(value)}"
    return _brief.repr(value)


def _same_family(a: Any, b: Any) -> bool:
    if isinstance(a, _DICTS):
        return isinstance(b, _DICTS)
    listed = type(a) in _LISTS
    return listed and type(b) in _LISTS


def _children(value: Any) -> dict[str, tuple[Any, Any]]:
    """Return identity -> (key, item); keys that Python takes for equal and are not (1, True, 1.0) stay apart."""
    if not isinstance(value, _DICTS):
        return {str(index): (index, item) for index, item in enumerate(value)}
    found = {repr(key): (key, item) for key, item in value.items()}
    metadata = getattr(value, "_metadata", None)
    if metadata is not None:  # versions of the modules, which torch keeps beside a model's state
        found["._metadata"] = ("_metadata", metadata)
    return found


def _same_value(a: Any, b: Any) -> bool:
    if type(a) is float:
        return struct.pack("<d", a) == struct.pack("<d", b)
    if type(a) is complex:
        return struct.pack("<dd", a.real, a.imag) == struct.pack("<dd", b.real, b.imag)
    return bool(a == b)


def _tensors(value: Any, path: Path, seen: set[int]) -> Iterator[tuple[Path, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        parts = components(value)
        if parts is None:
            yield path, value
        else:
            for name, one in parts.items():
                yield (*path, name), one
    elif isinstance(value, (_DICTS, *_LISTS)) and id(value) not in seen:
        seen.add(id(value))
        _check_depth(path)
        for key, item in _children(value).values():
            yield from _tensors(item, (*path, key), seen)


def _check_depth(path: Path) -> None:
    if len(path) > MAX_DEPTH:
        raise UnknownFormat(
            f"{path_text(path[:5])} … is nested more than {MAX_DEPTH} deep: no checkpoint of this library"
        )
