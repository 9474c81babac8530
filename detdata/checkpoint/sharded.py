"""Tensors that lie on several ranks (DTensor, from FSDP2 or tensor parallelism): taken apart and put together.

Each rank saves the pieces that it holds, so nothing is gathered; what is replicated is saved once. A piece is a box of
the whole tensor: its offset and size in each dimension. Any other layout is cut out of the boxes that it overlaps, so
another number of ranks, another sharding, or none, gives the same values to the bit.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from detdata.checkpoint.boxes import Box, overlap, slices, volume, whole_of, why_no_tiling
from detdata.checkpoint.containers import rebuilt
from detdata.errors import ArgumentTypeError, UnknownFormat

FORMAT = "detdata.shards/1"
MARK = "detdata.sharded"  # the key by which a tree says that a tensor of it lies in pieces
INDEX = "shards.json"
_MOST = 2**62
Path: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Anywhere:
    """Says that a tensor is wanted, and that nothing tells how it is to lie: whole on every rank of the mesh.

    mesh: a DeviceMesh; None where the tensor is to be a plain one.
    """

    mesh: Any


Like: TypeAlias = Callable[[str, Path], torch.Tensor | Anywhere | None]


def shards_name(rank: int) -> str:
    """Return the name of the file with the pieces that `rank` holds."""
    return f"shards_rank{rank:05d}.pt"


@dataclass(frozen=True, slots=True)
class Piece:
    """One box of one tensor. key: `<part>#<number of the tensor in it>`."""

    key: str
    box: Box
    tensor: torch.Tensor


@dataclass(frozen=True, slots=True)
class Index:
    """Where the pieces of each tensor lie: key -> (rank, box) of each."""

    pieces: Mapping[str, tuple[tuple[int, Box], ...]]

    def to_record(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {
            "format": FORMAT,
            "pieces": {
                key: [[rank, list(offset), list(size)] for rank, (offset, size) in rows]
                for key, rows in self.pieces.items()
            },
        }

    @classmethod
    def from_record(cls, record: Any) -> Index:
        """Rebuild what `to_record` returned. Raises UnknownFormat for anything else."""
        try:
            if record["format"] != FORMAT or set(record) != {"format", "pieces"}:
                raise ValueError(record["format"])
            return cls(
                {
                    str(key): tuple((_count(rank), (_counts(offset), _counts(size))) for rank, offset, size in rows)
                    for key, rows in record["pieces"].items()
                }
            )
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise UnknownFormat(f"{INDEX} is no {FORMAT} record: {type(error).__name__}: {error}") from error


def is_sharded(value: object) -> bool:
    """Whether a value is a DTensor. Imports nothing: where there is one, its module is there."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(value, module.DTensor)


def any_sharded(tensors: Iterable[object]) -> bool:
    """Whether one of the tensors is a DTensor."""
    return any(is_sharded(tensor) for tensor in tensors)


def split(tree: Any, part: str) -> tuple[Any, list[Piece]]:
    """Return `tree` with a mark in the place of each DTensor, and all pieces that this rank holds.

    The marks are numbered in the order of the tree, so that must be the same on every rank. Pieces share memory with
    the tensors. Raises TypeError for a DTensor that holds sums yet to be reduced.
    """
    pieces: list[Piece] = []
    count = 0

    def visit(value: Any) -> Any:
        nonlocal count
        if not is_sharded(value):
            return rebuilt(value, lambda item, _: visit(item))
        key, count = f"{part}#{count}", count + 1
        if any(placement.is_partial() for placement in value.placements):
            raise ArgumentTypeError(f"{key} is a DTensor with a partial placement: its values are not final")
        pieces.extend(Piece(key, box, value.to_local().detach()) for box in boxes(value) if all(box[1]))
        return {MARK: key, "shape": list(value.shape), "dtype": value.dtype}

    return visit(tree), pieces


def boxes(value: Any) -> list[Box]:
    """Return the box of a DTensor that this rank holds; of a plain tensor the whole of it."""
    if not is_sharded(value):
        return [whole_of(value.shape)]
    chunks = value.__create_chunk_list__()  # what torch's own checkpoints ask of a DTensor
    if len(chunks) != 1:
        raise ArgumentTypeError(
            f"a DTensor with placements {value.placements} lies in {len(chunks)} pieces on one rank: not supported"
        )
    return [(tuple(chunk.offsets), tuple(chunk.sizes)) for chunk in chunks]


def marks(tree: Any, path: Path = ()) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield (path, mark) of each tensor of a saved tree that lies in pieces."""
    if isinstance(tree, dict):
        if MARK in tree:
            yield path, tree
            return
        for key, value in tree.items():
            yield from marks(value, (*path, key))
    elif isinstance(tree, (list, tuple)):
        for index, value in enumerate(tree):
            yield from marks(value, (*path, index))


def wanted_boxes(trees: Mapping[str, Any], like: Like | None) -> dict[str, list[Box]]:
    """Return key -> the boxes that this rank needs of each marked tensor; like: None for the whole of all."""
    wanted: dict[str, list[Box]] = {}
    for part, tree in trees.items():
        for path, mark in marks(tree):
            target = _target(mark, like, part, path)
            if target is not None:
                wanted.setdefault(mark[MARK], []).extend(boxes(target))
    return wanted


def ranks_needed(wanted: Mapping[str, list[Box]], index: Index) -> list[int]:
    """Return the ranks whose files hold what is wanted."""
    return sorted(
        {
            rank
            for key, some in wanted.items()
            for rank, box in index.pieces.get(key, ())
            if any(overlap(box, other) for other in some)
        }
    )


def narrowed(pieces: Mapping[str, list[Piece]], wanted: Mapping[str, list[Box]]) -> dict[str, list[Piece]]:
    """Return what is wanted of the pieces in one file, so that the memory of the rest can go."""
    found = {
        key: [Piece(key, common, piece.tensor[slices(common, piece.box[0])]) for piece, common in rows]
        for key, some in pieces.items()
        if (rows := [(one, common) for one in some for box in wanted.get(key, ()) if (common := overlap(box, one.box))])
    }
    held = sum(volume(one.box) * one.tensor.itemsize for some in pieces.values() for one in some)
    kept = sum(volume(one.box) * one.tensor.itemsize for some in found.values() for one in some)
    if kept >= held:
        return found
    return {key: [Piece(key, one.box, one.tensor.clone()) for one in some] for key, some in found.items()}


def place(part: str, tree: Any, like: Like | None, pieces: Mapping[str, list[Piece]]) -> Any:
    """Return a saved tree with every tensor in the layout of the present one that `like` names; None: each whole.

    Marks become DTensors or whole tensors, put together from `pieces`; whole tensors become DTensors where the present
    ones are. A mark for which there is nothing comes as a tensor without values, and is not loaded.
    Raises UnknownFormat unless the pieces hold every value once.
    """

    def visit(value: Any, path: Path) -> Any:
        if isinstance(value, dict) and MARK in value:
            target = _target(value, like, part, path)
            if target is None:
                return torch.empty(_shape(value), dtype=value["dtype"], device="meta")
            own = pieces.get(value[MARK], [])
            return _in_layout(target, value["dtype"], lambda box: _fill(box, value, own))
        if isinstance(value, torch.Tensor):
            present = None if like is None else like(part, path)
            if isinstance(present, torch.Tensor) and is_sharded(present) and present.shape == value.shape:
                return _in_layout(present, value.dtype, lambda box: value[slices(box)].clone())
            return value
        return rebuilt(value, lambda item, key: visit(item, (*path, key)))

    return visit(tree, ())


def pieces_of(trees: Iterable[Any]) -> dict[str, list[Piece]]:
    """Return key -> pieces from the content of files of pieces. Raises UnknownFormat."""
    found: dict[str, list[Piece]] = {}
    for tree in trees:
        try:
            if tree["format"] != FORMAT:
                raise ValueError(tree["format"])
            for key, offset, tensor in tree["pieces"]:
                piece = Piece(key, (_counts(offset), tuple(tensor.shape)), tensor)
                if len(piece.box[0]) != tensor.dim() or tensor.layout is not torch.strided or tensor.is_meta:
                    raise ValueError(f"a piece of {key!r} that is no box")
                found.setdefault(key, []).append(piece)
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise UnknownFormat(f"a file of pieces is no {FORMAT} tree: {type(error).__name__}: {error}") from error
    return found


def pieces_tree(pieces: list[Piece]) -> dict[str, Any]:
    """Return the content of this rank's file of pieces."""
    return {"format": FORMAT, "pieces": [(piece.key, list(piece.box[0]), piece.tensor) for piece in pieces]}


def describe(tensors: Iterable[Any]) -> dict[str, Any] | None:
    """Return how tensors are sharded, as plain JSON for people: meshes and placements; None if none is."""
    rows = {
        (str(value.device_mesh.mesh_dim_names), tuple(value.device_mesh.shape), str(tuple(value.placements)))
        for value in tensors
        if is_sharded(value)
    }
    layouts = [{"names": names, "mesh": list(shape), "placements": text} for names, shape, text in sorted(rows)]
    return {"layouts": layouts} if layouts else None


def _target(mark: Mapping[str, Any], like: Like | None, part: str, path: Path) -> torch.Tensor | None:
    """Return what has the layout that a marked tensor is to get; None if nobody wants it."""
    shape = _shape(mark)
    if like is None:
        return torch.empty(shape, device="meta")
    present = like(part, path)
    if present is None or (part == "model.pt" and len(path) == 1):
        return present if isinstance(present, torch.Tensor) and tuple(present.shape) == shape else None
    if isinstance(present, torch.Tensor):
        if tuple(present.shape) == shape:
            return present
        present = Anywhere(present.device_mesh if is_sharded(present) else None)  # type: ignore[attr-defined]
    whole = torch.empty(shape, device="meta")
    if present.mesh is None:
        return whole
    module: Any = sys.modules["torch.distributed.tensor"]
    replicated: torch.Tensor = module.DTensor.from_local(
        whole, present.mesh, [module.Replicate()] * present.mesh.ndim, run_check=False
    )
    return replicated


def _shape(mark: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the shape of a marked tensor. Raises UnknownFormat for what is no mark of this release."""
    try:
        shape = _counts(mark["shape"])
        sound = set(mark) == {MARK, "shape", "dtype"} and isinstance(mark[MARK], str)
        if not sound or not isinstance(mark["dtype"], torch.dtype) or volume(whole_of(shape)) >= _MOST:
            raise ValueError("of another form")
    except (TypeError, ValueError, KeyError) as error:
        raise UnknownFormat(f"a tensor in pieces is no mark of {FORMAT}: {type(error).__name__}: {error}") from error
    return shape


def _in_layout(target: Any, dtype: torch.dtype, values: Callable[[Box], torch.Tensor]) -> torch.Tensor:
    [box] = boxes(target)
    local = values(box).to(dtype)
    if not is_sharded(target):
        return local
    module: Any = sys.modules["torch.distributed.tensor"]
    whole: torch.Tensor = module.DTensor.from_local(
        local, target.device_mesh, target.placements, run_check=False, shape=target.shape, stride=target.stride()
    )
    return whole


def _fill(box: Box, mark: Mapping[str, Any], pieces: list[Piece]) -> torch.Tensor:
    """Return the values in `box`, from the pieces that overlap it. Raises UnknownFormat unless each is there once."""
    parts = [(common, piece) for piece in pieces if (common := overlap(box, piece.box)) is not None]
    why = why_no_tiling([common for common, _ in parts], box) if volume(box) else None
    if why is None and any(piece.tensor.dtype != mark["dtype"] for _, piece in parts):
        why = f"they are not all {mark['dtype']}"
    if why is not None:  # before memory is taken for what is not there
        raise UnknownFormat(
            f"{mark[MARK]}: the pieces in the checkpoint do not make up the box at {list(box[0])} of size "
            f"{list(box[1])}: {why}"
        )
    result = torch.empty(box[1], dtype=mark["dtype"], device="cpu")
    for common, piece in parts:
        result[slices(common, box[0])] = piece.tensor[slices(common, piece.box[0])]
    return result


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < _MOST:
        raise ValueError(f"{value!r} is no count")
    return value


def _counts(values: Any) -> tuple[int, ...]:
    return tuple(_count(value) for value in values)
