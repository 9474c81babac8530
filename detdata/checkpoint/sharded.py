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

from detdata.checkpoint.containers import rebuilt
from detdata.errors import ArgumentTypeError, UnknownFormat

FORMAT = "detdata.shards/1"
MARK = "detdata.sharded"  # the key by which a tree says that a tensor of it lies in pieces
INDEX = "shards.json"
Box: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]  # offset and size in each dimension
Path: TypeAlias = tuple[Any, ...]
Like: TypeAlias = Callable[[str, Path], torch.Tensor | None]


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
    """Return `tree` with a mark in the place of each DTensor, and the pieces that this rank is to save.

    The marks are numbered in the order of the tree, which is the same on every rank. Pieces share memory with the
    tensors. Raises TypeError for a DTensor that holds sums yet to be reduced.
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
        if _first_of_replicas(value):
            pieces.extend(Piece(key, box, value.to_local().detach()) for box in boxes(value) if all(box[1]))
        return {MARK: key, "shape": list(value.shape), "dtype": value.dtype}

    return visit(tree), pieces


def boxes(value: Any) -> list[Box]:
    """Return the box of a DTensor that this rank holds; of a plain tensor the whole of it."""
    if not is_sharded(value):
        return [((0,) * value.dim(), tuple(value.shape))]
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


def ranks_needed(trees: Mapping[str, Any], index: Index, like: Like | None) -> set[int]:
    """Return the ranks whose files hold what this rank needs of the marked tensors; like: None for the whole of all."""
    needed = set()
    for part, tree in trees.items():
        for path, mark in marks(tree):
            target = _target(mark, like, part, path)
            if target is not None:
                wanted = boxes(target)
                rows = index.pieces.get(mark[MARK], ())
                needed |= {rank for rank, box in rows if any(_overlap(box, other) for other in wanted)}
    return needed


def place(part: str, tree: Any, like: Like | None, pieces: Mapping[str, list[Piece]]) -> Any:
    """Return a saved tree with every tensor in the layout of the present one that `like` names; None: each whole.

    Marks become DTensors or whole tensors, put together from `pieces`; whole tensors become DTensors where the present
    ones are. What has no counterpart of the same shape comes as a tensor without values: it can be compared, and not
    loaded. Raises UnknownFormat if a piece is missing.
    """

    def visit(value: Any, path: Path) -> Any:
        if isinstance(value, dict) and MARK in value:
            target = _target(value, like, part, path)
            if target is None:
                return torch.empty(value["shape"], dtype=value["dtype"], device="meta")
            own = pieces.get(value[MARK], [])
            return _in_layout(target, value["dtype"], lambda box: _fill(box, value, own))
        if isinstance(value, torch.Tensor):
            target = None if like is None else like(part, path)
            if is_sharded(target) and target is not None and target.shape == value.shape:
                return _in_layout(target, value.dtype, lambda box: value[_slices(box)].clone())
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


def _first_of_replicas(value: Any) -> bool:
    mesh = value.device_mesh
    return all(
        not placement.is_replicate() or mesh.get_local_rank(dimension) == 0
        for dimension, placement in enumerate(value.placements)
    )


def _target(mark: Mapping[str, Any], like: Like | None, part: str, path: Path) -> torch.Tensor | None:
    if like is None:
        return torch.empty(mark["shape"], device="meta")
    present = like(part, path)
    return present if present is not None and list(present.shape) == list(mark["shape"]) else None


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
    """Return the values in `box`, from the pieces that overlap it. Raises UnknownFormat if some are missing."""
    result = torch.empty(box[1], dtype=mark["dtype"], device="cpu")
    filled = 0
    for piece in pieces:
        common = _overlap(box, piece.box)
        if common is not None:
            result[_slices(common, box[0])] = piece.tensor[_slices(common, piece.box[0])]
            filled += _volume(common)
    if filled != result.numel():
        raise UnknownFormat(
            f"{mark[MARK]}: the pieces in the checkpoint hold {filled} of the {result.numel()} values of the box at "
            f"{list(box[0])} of size {list(box[1])}"
        )
    return result


def _overlap(a: Box, b: Box) -> Box | None:
    if len(a[0]) != len(b[0]):
        return None
    low = tuple(max(x, y) for x, y in zip(a[0], b[0], strict=True))
    high = tuple(min(x + m, y + n) for x, m, y, n in zip(a[0], a[1], b[0], b[1], strict=True))
    if any(end <= start for start, end in zip(low, high, strict=True)):
        return None
    return low, tuple(end - start for start, end in zip(low, high, strict=True))


def _slices(box: Box, origin: tuple[int, ...] | None = None) -> tuple[slice, ...]:
    origin = (0,) * len(box[0]) if origin is None else origin
    return tuple(slice(at - zero, at - zero + size) for at, zero, size in zip(box[0], origin, box[1], strict=True))


def _volume(box: Box) -> int:
    volume = 1
    for size in box[1]:
        volume *= size
    return volume


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**62:
        raise ValueError(f"{value!r} is no count")
    return value


def _counts(values: Any) -> tuple[int, ...]:
    return tuple(_count(value) for value in values)
