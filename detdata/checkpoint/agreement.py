"""What every rank brings to a save or a resume, and that they mean the same: before a byte is written or loaded.

Ranks that come to the same call at different steps, with another kind, model, layout or probe, would make a checkpoint
that is whole and wrong. What fails on one rank fails on all, at once and by its own words.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias, TypeVar

import torch

from detdata.checkpoint.boxes import Box, whole_of, why_no_tiling
from detdata.checkpoint.environment import host
from detdata.checkpoint.errors import RankMissing
from detdata.checkpoint.group import Group
from detdata.checkpoint.members import PROGRESS_FORMAT, rank_of
from detdata.checkpoint.meta import History, make_meta, structure_of
from detdata.checkpoint.parts import capture, data_record
from detdata.checkpoint.probe import Probe, run_probe
from detdata.checkpoint.run import Run, layout_sizes
from detdata.checkpoint.sharded import MARK, Index, is_sharded, marks, shards_name
from detdata.checkpoint.writing import Content
from detdata.errors import ArgumentValueError, DetdataError
from detdata.progress import Progress
from detdata.records import canonical_json, digest
from detdata.topology import DATA_DIMENSIONS

_T = TypeVar("_T")
_Json: TypeAlias = dict[str, Any]
_ALIKE = {
    "kind": "Every rank calls save() with the same kind",
    "step": "Every rank calls step() as often as the others, and saves or resumes in the same place",
    "probe": "Give every rank a probe, or none",
    "topology": "Every rank is given its own place in one layout: Topology.from_mesh",
    "model": "Every rank must have the whole model, or its pieces as DTensors (fully_shard, parallelize_module). The "
    "stages of a pipeline cannot be in one checkpoint",
    "sharded tensors": "Every rank must have state for the same parameters",
    "accept": "Every rank calls resume() with the same arguments",
}


def together(
    group: Group, doing: str, work: Callable[[], tuple[_T, Any]], failed: type[DetdataError] = ArgumentValueError
) -> tuple[_T, list[Any]]:
    """Return the first of the two things that `work` gives, and the second, plain JSON, of each rank. Collective.

    If it raises anywhere, nobody goes on: its own error here, `failed` with its text on the other ranks.
    """
    if group.size == 1:
        result, said = work()
        return result, [said]
    error: Exception | None = None
    try:
        result, said = work()
    except RankMissing:
        raise
    except Exception as caught:  # noqa: BLE001 - raised below
        error, said = caught, None
    text = None if error is None else f"{type(error).__name__}: {error}"
    try:
        rows = group.all_gather([text, said], doing)
    finally:
        if error is not None:
            raise error
    for rank, (text, _) in enumerate(rows):
        if text is not None:
            raise failed(f"{doing}: rank {rank} failed, so all ranks stop: {text}")
    return result, [value for _, value in rows]


def agree(rows: Iterable[Mapping[str, Any]], doing: str) -> None:
    """Raise ArgumentValueError, the same on all ranks, unless all rows say the same. rows: what each rank says."""
    first, *others = rows
    for rank, row in enumerate(others, 1):
        for name, value in row.items():
            if value != first[name]:
                raise ArgumentValueError(
                    f"{doing}: the ranks are not of one mind. {name}: rank 0 has {first[name]}, rank {rank} has "
                    f"{value}. {_ALIKE[name]}. Nothing was written or loaded"
                )


def collect(run: Run, group: Group, kind: str, progress: Progress, history: History, *, probe: Probe | None) -> Content:
    """Return what this rank puts into a checkpoint; its tensors share memory with the run's. Collective.

    Raises TypeError, ValueError for state that could not be loaded without running code, on every rank, and for ranks
    that are not of one mind.
    """
    rank, doing = group.rank, f"saving global step {progress.global_step}"

    def work() -> tuple[tuple[dict[str, Any], _Json, _Json], _Json]:
        value = None if probe is None else run_probe(probe, run.model, run.generators)
        trees = capture(run, rank, gradients=bool(progress.micro_step))
        records, meta = {}, {}
        if rank == 0:
            records = {
                "progress.json": {"format": PROGRESS_FORMAT, **progress.to_dict()},
                "data.json": data_record(run),
            }
            meta = make_meta(run, structure_of(trees["model.pt"]), history)
        pieces = trees.get(shards_name(rank), {"pieces": []})["pieces"]
        many = group.size > 1
        return (trees, records, meta), {
            "facts": _facts(run, kind, progress, trees, probed=probe is not None) if many else {},
            "values": _sample(run) if many else "",
            "pieces": [[key, list(offset), list(tensor.shape)] for key, offset, tensor in pieces],
            "process": {**host(), "topology": run.layout()},
            "probe": value,
        }

    (trees, records, meta), rows = together(group, doing, work)
    agree([row["facts"] for row in rows], doing)
    _check_values(run, rows, rank)
    marked = {name: tree for name, tree in trees.items() if rank_of(name) is None}
    index = _index([row["pieces"] for row in rows], marked, doing)
    own = {name: tree for name, tree in trees.items() if rank == 0 or name not in marked}
    if index is not None:
        own = _own_pieces(own, index, rank)
    if rank == 0:
        values = [row["probe"] for row in rows]
        meta["processes"] = [row["process"] for row in rows]
        meta["probe"] = None if values[0] is None else {"values": values}
    return Content(own, records, meta, run.engine, index)


def _facts(run: Run, kind: str, progress: Progress, trees: Mapping[str, Any], *, probed: bool) -> _Json:
    """What must be the same on all ranks, as short plain JSON."""
    model = run.bare_model()
    named = [] if run.engine is not None else [*model.named_parameters(), *model.named_buffers()]
    rows = [[name, list(value.shape), str(value.dtype)] for name, value in named]
    pieces = [
        [name, [str(key) for key in path], list(mark["shape"]), str(mark["dtype"])]
        for name, tree in trees.items()
        for path, mark in (marks(tree) if rank_of(name) is None else ())
    ]
    return {
        "step": progress.global_step,
        "kind": kind,
        "topology": layout_sizes(run.layout()),
        "model": f"{len(rows)} tensors, {digest(canonical_json(rows))}",
        "sharded tensors": f"{len(pieces)}, {digest(canonical_json(pieces))}",
        "probe": "one" if probed else "none",
    }


def _sample(run: Run) -> str:
    """Return a digest of the first and the last value of each parameter that is no DTensor: the same on all ranks."""
    if run.engine is not None:
        return ""
    found: list[torch.Tensor] = []
    for parameter in run.bare_model().parameters():
        value = parameter.detach()
        if is_sharded(value) or not value.is_floating_point() or not value.numel() or value.is_meta:
            continue
        if value.layout is torch.strided:
            found += [value[(0,) * value.dim()], value[tuple(size - 1 for size in value.shape)]]
    alike: dict[tuple[torch.device, torch.dtype], list[torch.Tensor]] = {}
    for one in found:
        alike.setdefault((one.device, one.dtype), []).append(one)
    return digest(b"".join(torch.stack(some).double().cpu().numpy().tobytes() for some in alike.values()))


def _check_values(run: Run, rows: list[Any], rank: int) -> None:
    """Say so where plain parameters are not the same on all ranks: rank 0's alone are saved."""
    other = next((place for place, row in enumerate(rows) if row["values"] != rows[0]["values"]), None)
    if other is None:
        return
    split = [
        name
        for name, size in layout_sizes(run.layout()).items()
        if name.endswith("_size") and isinstance(size, int) and size > 1 and not _is_data(name.removesuffix("_size"))
    ]
    text = (
        f"parameters that are no DTensors have other values on rank {other} than on rank 0, and of such parameters "
        "rank 0's alone are saved"
    )
    if split:
        raise ArgumentValueError(
            f"{text}: the others' would be lost. {', '.join(split)} above 1: shard the model with DTensors "
            "(parallelize_module, fully_shard). Nothing was written"
        )
    if rank == 0:
        warnings.warn(f"{text}: after a resume all ranks have these. Have the ranks diverged?", stacklevel=6)


def _is_data(name: str) -> bool:
    return name == "world" or name.startswith("dp") or name in DATA_DIMENSIONS


def _index(pieces: list[list[Any]], marked: Mapping[str, Any], doing: str) -> Index | None:
    """Return which rank saves which piece: of the same box on several the first. None if nothing is sharded.

    Raises ArgumentValueError unless the pieces of each tensor make it up.
    """
    owners: dict[str, dict[Box, int]] = {mark[MARK]: {} for tree in marked.values() for _, mark in marks(tree)}
    if not owners:
        return None
    for rank, rows in enumerate(pieces):
        for key, offset, size in rows:
            owners[key].setdefault((tuple(offset), tuple(size)), rank)
    for name, tree in marked.items():
        for path, mark in marks(tree):
            why = why_no_tiling(list(owners[mark[MARK]]), whole_of(mark["shape"]))
            if why is not None:
                where = "".join(f"[{key!r}]" for key in path)
                raise ArgumentValueError(
                    f"{doing}: {name}{where} of shape {list(mark['shape'])} is not made up by the pieces that the "
                    f"ranks hold: {why}. Nothing was written"
                )
    return Index({key: tuple((rank, box) for box, rank in rows.items()) for key, rows in owners.items() if rows})


def _own_pieces(trees: dict[str, Any], index: Index, rank: int) -> dict[str, Any]:
    name = shards_name(rank)
    if name not in trees:
        return trees
    mine = {(key, box) for key, rows in index.pieces.items() for owner, box in rows if owner == rank}
    rows = [
        (key, offset, tensor)
        for key, offset, tensor in trees[name]["pieces"]
        if (key, (tuple(offset), tuple(tensor.shape))) in mine
    ]
    rest = {one: tree for one, tree in trees.items() if one != name}
    return {**rest, name: {**trees[name], "pieces": rows}} if rows else rest
