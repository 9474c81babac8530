"""A DeepSpeed engine in a checkpoint: it saves and loads itself, inside our staging, manifest and verification.

    every rank: engine.save_checkpoint into a folder of the stage · each rank hashes and syncs its share of the files
    that have appeared · rank 0 moves them beside the other members: `state/mp_rank_00_model_states.pt` becomes
    `engine--state--mp_rank_00_model_states.pt.bin`

The engine writes its files itself, so they are read once more for their digests. It loads them with pickle, which runs
whatever code they hold: verification finds accidents, no forgery, so `trust_pickle` is asked for.
Relies on what DeepSpeed documents: `save_checkpoint(save_dir, tag, client_state, save_latest)` and
`load_checkpoint(load_dir, tag)`, each collective, and `module`.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import torch

from detdata.checkpoint.errors import CheckpointNotSaved
from detdata.checkpoint.files import FileRecord, hash_file, open_regular, remove_tree, write_file
from detdata.checkpoint.manifest import is_member_name, read_manifest
from detdata.checkpoint.remote_path import AnyPath, RemotePath, as_path
from detdata.errors import ArgumentTypeError, ArgumentValueError, Difference

TAG = "state"
_AREA = "engine"  # the folder in a stage that an engine saves to
_FIRST, _BETWEEN, _LAST = "engine--", "--", ".bin"
_KEY = "detdata.engine/1"
_SHOWN = 3
_PIECE = 1 << 23  # bytes copied at a time


class DeepSpeedModel(torch.nn.Module):
    """What to give the Checkpointer as `model` for an engine of `deepspeed.initialize`.

    The engine saves what it manages (model, optimizer, its schedule and loss scale); the Checkpointer the rest: leave
    its `optimizer` and `scaler` out, and `scheduler` too if the engine has it. Save at the boundaries of accumulation.
    trust_pickle: True lets `resume` load the engine's files, which runs whatever code is in them: say so if you trust
    everybody who can write to the folder. False: such a checkpoint can be saved and verified, not loaded.
    Not with background=True, gradients=True, or an engine that writes behind the training. Where the root is in an
    object store the engine's files are on this machine's disk for a while, on the way there and back.
    The same number of ranks, as DeepSpeed has it, unless ZeRO is off. Raises TypeError, ValueError.

    >>> DeepSpeedModel(torch.nn.Linear(2, 1))
    Traceback (most recent call last):
    detdata.errors.ArgumentTypeError: engine must be what deepspeed.initialize returns, got Linear
    """

    def __init__(self, engine: Any, *, trust_pickle: bool = False) -> None:
        super().__init__()
        if not is_engine(engine):
            raise ArgumentTypeError(f"engine must be what deepspeed.initialize returns, got {type(engine).__name__}")
        if not isinstance(trust_pickle, bool):
            raise ArgumentTypeError(f"trust_pickle must be True or False, got {trust_pickle!r}")
        if _ask(getattr(engine, "checkpoint_engine", None), "is_decoupled"):
            raise ArgumentValueError(
                "the engine's checkpoint engine writes behind the training, and would still write to a checkpoint that "
                'is published: take the one of torch (no "checkpoint" writer in the DeepSpeed config)'
            )
        if _ask(engine, "use_node_local_storage"):
            raise ArgumentValueError(
                'the engine saves to each node\'s own storage ("use_node_local_storage"): a checkpoint is in one folder'
            )
        self.engine = engine
        self.trust_pickle = trust_pickle

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the engine."""
        return self.engine(*args, **kwargs)

    def state_dict(self, *_args: Any, **_kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        """Return what describes the engine; its tensors are in files of its own."""
        module = self.engine.module
        named = [*module.named_parameters(), *module.named_buffers()]
        # ZeRO 3 leaves a parameter empty while nobody computes with it, and notes its shape.
        rows = [[name, list(getattr(value, "ds_shape", value.shape)), str(value.dtype)] for name, value in named]
        distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
        return {
            _KEY: {
                "zero_stage": _ask(self.engine, "zero_optimization_stage") or 0,
                "ranks": torch.distributed.get_world_size() if distributed else 1,
                "structure": rows,
            }
        }

    def load_state_dict(self, *_args: Any, **_kwargs: Any) -> Any:
        """Do nothing: `load` has the engine load its files."""

    def save(self, stage: AnyPath, rank: int, size: int) -> dict[str, FileRecord]:
        """Have the engine save into `stage`; return member name -> record of this rank's share, synced.

        For an object store each rank has it save into a folder of its own on this machine, and sends what is there.
        Collective, by the engine's barriers: what fails on one rank alone leaves the others waiting in them.
        Raises CheckpointNotSaved, OSError.
        """
        if isinstance(stage, Path):
            self._save(stage)
            return {name: _sealed(path) for name, path in _members(stage)[rank::size]}
        with tempfile.TemporaryDirectory(prefix="detdata-") as folder:
            own = Path(folder)
            (own / _AREA / TAG).mkdir(parents=True)  # the engine makes it on one rank
            self._save(own)
            return {name: write_file(stage / name, partial(_copy, path)) for name, path in _members(own)}

    def _save(self, stage: Path) -> None:
        try:
            done = self.engine.save_checkpoint(str(stage / _AREA), tag=TAG, client_state={}, save_latest=False)
        except Exception as error:
            raise CheckpointNotSaved(f"engine.save_checkpoint: {type(error).__name__}: {error}") from error
        if done is False:
            raise CheckpointNotSaved("engine.save_checkpoint returned False")

    def settle(self, stage: AnyPath, known: Collection[str]) -> dict[str, FileRecord]:
        """Move the engine's files to where members are; return the records of those that no rank saw. On rank 0."""
        found: dict[str, FileRecord] = {}
        if not isinstance(stage, Path):  # they are there
            return found
        for name, path in _members(stage):
            if name not in known:  # a network file system may show them late
                found[name] = _sealed(path)
            path.rename(stage / name)
        remove_tree(stage / _AREA)
        return found

    def load(self, checkpoint: AnyPath) -> None:
        """Have the engine load its files of a checkpoint that was verified. Collective. Raises what the engine does."""
        with tempfile.TemporaryDirectory(prefix="detdata-") as folder:
            lay_out_deepspeed(checkpoint, folder)
            found, _ = self.engine.load_checkpoint(folder, tag=TAG)
        if found is None:
            raise RuntimeError("engine.load_checkpoint found nothing that it can load")

    def differences(self, saved: Mapping[str, Any], rank: int) -> list[Difference]:
        """Return what keeps the engine from loading a checkpoint whose model.pt is `saved`."""
        before, now = saved.get(_KEY), self.state_dict()[_KEY]
        if before is None:
            return [Difference("model", "not of a DeepSpeed engine", "a DeepSpeed engine", None)]
        found = []
        if before["zero_stage"] != now["zero_stage"]:
            found.append(_difference("zero_stage", before["zero_stage"], now["zero_stage"]))
        elif now["zero_stage"] and before["ranks"] != now["ranks"]:
            # Its "universal checkpoint" is made by a tool, from a folder of lay_out_deepspeed.
            found.append(_difference("ZeRO partitions", f"of {before['ranks']} ranks", f"of {now['ranks']} ranks"))
        sides = [{tuple(map(str, row)) for row in one["structure"]} for one in (before, now)]
        if rank == 0 and sides[0] != sides[1]:  # what is described is rank 0's part of the model
            here, there = (sorted(one - other)[:_SHOWN] for one, other in (sides, sides[::-1]))
            found.append(_difference("model", *(", ".join(map(" ".join, rows)) or "no more" for rows in (here, there))))
        if not self.trust_pickle:
            found.append(
                _difference(
                    "trust_pickle",
                    "pickled files of a DeepSpeed engine: to load them runs whatever code they hold",
                    "False. If you trust everybody who can write to them: DeepSpeedModel(engine, trust_pickle=True)",
                )
            )
        return found


def lay_out_deepspeed(checkpoint: str | os.PathLike[str] | RemotePath, folder: str | os.PathLike[str]) -> Path:
    """Link the engine's files of a checkpoint into `folder` under DeepSpeed's own names; return `folder`/state.

    For DeepSpeed's tools, such as zero_to_fp32.py and ds_to_universal.py. Costs no copy: symbolic links. Does not
    verify: `verify_checkpoint` does. From an object store the files are copied instead, and verified on the way.
    Raises FileExistsError, OSError.
    """
    source, target = as_path(checkpoint, "checkpoint").absolute(), Path(folder)
    manifest = read_manifest(source)
    members = manifest.members_in(source)
    for name, expected in manifest.files.items():
        if not name.startswith(_FIRST):
            continue
        place = target.joinpath(*name.removeprefix(_FIRST).removesuffix(_LAST).split(_BETWEEN))
        place.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(members, Path):
            place.symlink_to(members / name)
            continue
        with open_regular(members / name) as remote, place.open("xb") as file:
            shutil.copyfileobj(remote, file, _PIECE)
        if hash_file(place) != expected:
            raise OSError(f"{name} is not what the manifest in {source} says")
    return target / TAG


def _copy(path: Path, file: BinaryIO) -> None:
    with path.open("rb") as source:
        shutil.copyfileobj(source, file, _PIECE)


def is_engine(model: object) -> bool:
    """Whether `model` is a DeepSpeed engine, by what it has."""
    methods = ("save_checkpoint", "load_checkpoint", "backward", "step")
    return isinstance(getattr(model, "module", None), torch.nn.Module) and all(
        callable(getattr(model, name, None)) for name in methods
    )


def check_options(engine: DeepSpeedModel | None, **given: Any) -> None:
    """Raise ArgumentValueError for arguments of the Checkpointer that cannot go with an engine.

    given: those that must be None or False.
    """
    wrong = [name for name, value in given.items() if value not in (None, False)]
    if engine is not None and wrong:
        raise ArgumentValueError(
            f"{', '.join(wrong)} cannot go with a DeepSpeed engine: it saves its own optimizer and loss scale, in the "
            "thread of the training, at the boundaries of accumulation"
        )


def engine_differences(model: object, saved: Mapping[str, Any], rank: int) -> list[Difference]:
    """Return what keeps the engine from loading a checkpoint, or a checkpoint of an engine from loading without one."""
    if isinstance(model, DeepSpeedModel):
        return model.differences(saved, rank)
    return [Difference("model", "a DeepSpeed engine", "none", None)] if _KEY in saved else []


def _difference(field: str, saved: object, found: object) -> Difference:
    return Difference(field, str(saved), str(found), None)


def _ask(thing: Any, name: str) -> Any:
    """Return what `thing.name()` gives; None if it has no such method."""
    method = getattr(thing, name, None)
    return method() if callable(method) else None


def _members(stage: Path) -> list[tuple[str, Path]]:
    """Return the files that the engine has written, with the name of each as a member, in the order of names."""
    area, found = stage / _AREA, []
    for path in area.rglob("*"):
        if path.is_dir() and not path.is_symlink():
            continue
        parts = path.relative_to(area).parts
        name = _FIRST + _BETWEEN.join(parts) + _LAST
        if not is_member_name(name) or any(_BETWEEN in f"-{part}-" for part in parts):
            raise CheckpointNotSaved(f"the engine has written {'/'.join(parts)!r}, which cannot be a member's name")
        found.append((name, path))
    return sorted(found)


def _sealed(path: Path) -> FileRecord:
    """Return the record of a file that somebody else has written; it is on disk then."""
    record = hash_file(path)
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return record
