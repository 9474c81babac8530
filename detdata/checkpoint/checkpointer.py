"""The Checkpointer: when to save, what to resume from. All work is in the modules beside it."""

from __future__ import annotations

import logging
import os
import time
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch

from detdata.checkpoint import lock
from detdata.checkpoint.compare import check_accept, compare, notes
from detdata.checkpoint.environment import snapshot
from detdata.checkpoint.errors import CheckpointNotSaved
from detdata.checkpoint.manifest import KINDS
from detdata.checkpoint.meta import make_meta, structure_of
from detdata.checkpoint.parts import capture, data_record, json_writer, restore
from detdata.checkpoint.policy import SavePolicy
from detdata.checkpoint.run import describe_run
from detdata.checkpoint.saved import PROGRESS_FORMAT
from detdata.checkpoint.selection import select
from detdata.checkpoint.store import Stage, make_root, periodic_steps, retain
from detdata.checkpoint.tensors import tree_writer
from detdata.checks import as_int
from detdata.errors import ArgumentTypeError, ArgumentValueError, CheckpointMismatch
from detdata.progress import Progress

_log = logging.getLogger("detdata")


class Checkpointer:
    """Saves the whole state of a training run so that a resumed run is the run that was never interrupted.

    root: folder of the checkpoints, made by the first save; one run writes to it at a time. model: may be wrapped in
    DistributedDataParallel or torch.compile. optimizer, scheduler (one or several), scaler, loader: what the run has.
    extra: name -> object with state_dict and load_state_dict (an EMA, …); NumPy arrays in its state come back as
    tensors. config: recorded as JSON. topology: by default the loader's, else detected; only rank 0 saves.
    policy: when `step` saves. dataset_version: a string or an object with a `.digest`. precision: a word of yours, such
    as "bf16-mixed". strict: a broken checkpoint on the way to a whole one is an error instead of a warning.

    Call `resume` once, after everything is built, and `step` after each optimizer step (and scheduler step). Saving
    blocks until the bytes are on disk, and changes nothing in the process: no random state, tensor or learning rate.
    Raises TypeError, ValueError for wrong arguments.

    >>> import tempfile, torch
    >>> root = tempfile.mkdtemp()
    >>> model = torch.nn.Linear(2, 1)
    >>> policy = SavePolicy(latest_every_seconds=None, latest_every_steps=2)
    >>> with Checkpointer(root, model=model, policy=policy) as checkpointer:
    ...     start = checkpointer.resume()
    ...     saved = [checkpointer.step(loss=0.5) for _ in range(4)]
    >>> start, saved
    (None, [False, True, False, True])
    >>> Checkpointer(root, model=torch.nn.Linear(2, 1)).resume()
    Progress(global_step=4, epoch=0, consumed_samples=0, micro_step=0)
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        model: torch.nn.Module,
        optimizer: Any = None,
        scheduler: Any = None,
        scaler: Any = None,
        loader: Any = None,
        extra: Mapping[str, Any] | None = None,
        config: Any = None,
        topology: Any = None,
        policy: SavePolicy = SavePolicy(),  # noqa: B008 - a frozen value
        dataset_version: Any = None,
        precision: str | None = None,
        strict: bool = False,
    ) -> None:
        if not isinstance(policy, SavePolicy):
            raise ArgumentTypeError(f"policy must be a SavePolicy, got {type(policy).__name__}")
        if not isinstance(root, (str, os.PathLike)) or not os.fspath(root):
            raise ArgumentTypeError(f"root must be the path of a folder, got {root!r}")
        self.root = Path(root).absolute()  # a later chdir must not split the run over two roots
        if self.root.exists() and not self.root.is_dir():
            raise ArgumentValueError(f"root must be a folder, but {self.root} is a file")
        self.policy = policy
        self._run = describe_run(
            model=model,
            optimizer=optimizer,
            scheduler=scheduler,
            scaler=scaler,
            loader=loader,
            extra=extra,
            topology=topology,
            dataset_version=dataset_version,
            precision=precision,
            config=snapshot(config),
        )
        self._strict = bool(strict)
        self._counted = Progress()
        self._metrics: dict[str, Any] = {}
        self._accepted: list[dict[str, Any]] = []
        self._resumed_from: Path | None = None
        self._latest_at = time.monotonic()
        self._warned_of_higher = False
        self._closed = False
        self._locked = False

    @property
    def progress(self) -> Progress:
        """Where training stands: the loader's progress, or without a loader the number of `step` calls."""
        return self._counted if self._run.loader is None else self._run.loader.progress

    def resume(self, step: int | None = None, accept: Iterable[str] = ()) -> Progress | None:
        """Load the newest whole checkpoint into the objects, or that of global step `step`; return where it stands.

        Newest is by global step, then by the time of saving. Broken checkpoints are passed over, each with a warning
        that says why; a given `step` never falls back. None: nothing was ever published here.
        Every byte is verified, every part read, and everything compared before anything is loaded. accept: names of
        differences to go on with on purpose: "world_size" (a rank without random states of its own gets derived ones),
        "batch_size" (from here on), "topology", "dataset_version", "precision" (values are cast), "rng" (what is
        missing is left as it is), and "optimizer", "scheduler", "scaler", "extra", "loader" (what does not match is
        not loaded and starts afresh). What was accepted is recorded in the checkpoints that follow.
        Random states are restored last, so build everything, iterators too, before.

        Raises CheckpointMismatch listing every difference; CheckpointBroken if none is whole; FileNotFoundError for a
        step that is not there; UnknownFormat for a newer release's checkpoint; ValueError for an unknown `accept`.
        Reads every byte twice (once to verify) and holds one copy of the checkpoint in memory.
        """
        self._check_open()
        names = check_accept(accept)
        wanted = None if step is None else as_int(step, "step")
        saved = select(self.root, wanted, rank=self._run.rank, strict=self._strict)
        if saved is None:
            self._records(capture(self._run))  # what could not be saved should fail here, not ten minutes into the run
            return None
        differences = compare(self._run, saved)
        refused = tuple(difference for difference in differences if difference.accept not in names)
        if refused:
            raise CheckpointMismatch(str(saved.path), refused)
        lines = notes(self._run, saved)
        restore(self._run, saved, [difference.accept or "" for difference in differences])
        self._counted = saved.progress
        self._accepted = [{"field": one.field, "saved": one.saved, "found": one.found} for one in differences]
        self._resumed_from = saved.path
        self._latest_at = time.monotonic()
        if lines:
            listed = "\n  ".join(lines)
            warnings.warn(f"resumed from {saved.path}, saved under other conditions:\n  {listed}", stacklevel=2)
        _log.info("resumed from %s at global step %d", saved.path, saved.progress.global_step)
        return self.progress

    def step(self, **metrics: Any) -> bool:
        """Tell that an optimizer step is done; save if the policy says so. Returns True when it saved.

        metrics: numbers, strings or tensors of one element; the last ones given are recorded in the checkpoint.
        Inside an accumulation window (`loader.progress.micro_step` is not 0) nothing is saved: it waits for the
        boundary. Ranks other than 0 never save. Costs next to nothing when nothing is due. Raises what `save` raises.
        """
        self._check_open()
        self._metrics.update({name: _metric(name, value) for name, value in metrics.items()})
        self._counted = replace(self._counted, global_step=self._counted.global_step + 1)
        progress = self.progress
        if progress.micro_step or self._run.rank:
            return False
        kinds = self.policy.due(progress.global_step, time.monotonic() - self._latest_at)
        for kind in kinds:
            self.save(kind)
        return bool(kinds)

    def save(self, kind: str = "latest") -> Path:
        """Save now, as `ckpt_latest` or as `ckpt_step_<n>`; return the folder, whole and on disk.

        Raises ValueError inside an accumulation window, where the gradients so far would be lost; TypeError for state
        that could not be loaded without running code; CheckpointNotSaved (an OSError) if the disk refuses. Whatever
        had been published before is then still there.
        """
        self._check_open()
        if kind not in KINDS:
            raise ArgumentValueError(f"kind must be one of {KINDS}, got {kind!r}")
        if self._run.rank:
            raise ArgumentValueError(f"only rank 0 saves; this is rank {self._run.rank} of the topology")
        progress = self.progress
        if progress.micro_step:
            raise ArgumentValueError(
                f"cannot save inside an accumulation window: micro_step is {progress.micro_step} at global step "
                f"{progress.global_step}, and the gradients accumulated so far are not part of a checkpoint. "
                "Call save() after optimizer.step(), when loader.progress.micro_step is 0, or let step() do it"
            )
        path = self._write(kind, progress)
        if kind == "latest":
            self._latest_at = time.monotonic()
        elif self.policy.keep_periodic is not None:
            protected = {path} | ({self._resumed_from} if self._resumed_from is not None else set())
            retain(self.root, self.policy.keep_periodic, protected)
        self._warn_of_higher(progress.global_step)
        return path

    def _write(self, kind: str, progress: Progress) -> Path:
        trees = capture(self._run)
        records = {"progress.json": {"format": PROGRESS_FORMAT, **progress.to_dict()}, **self._records(trees)}
        stage = None
        try:
            make_root(self.root)
            if not self._locked:
                lock.acquire(self.root)
                self._locked = True
            stage = Stage(self.root)
            for name, tree in trees.items():
                stage.write(name, tree_writer(tree))
            for name, record in records.items():
                stage.write(name, json_writer(record))
            return stage.publish(kind, progress.global_step)
        except OSError as error:
            raise CheckpointNotSaved(
                f"the checkpoint of global step {progress.global_step} was not saved to {self.root}: {error}. "
                "Checkpoints published before are untouched"
            ) from error
        finally:
            if stage is not None:
                stage.abandon()  # nothing is there any more once it is published

    def _records(self, trees: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        structure = structure_of(trees["model.pt"])
        return {
            "data.json": data_record(self._run),
            "meta.json": make_meta(self._run, structure, self._metrics, self._accepted),
        }

    def _warn_of_higher(self, step: int) -> None:
        if self._warned_of_higher:
            return
        higher = sorted(path.name for path, other in periodic_steps(self.root).items() if other > step)
        if higher:
            self._warned_of_higher = True
            warnings.warn(
                f"{self.root} holds checkpoints of higher steps than the {step} just saved ({', '.join(higher[:3])}): "
                "resume() takes the highest step. If they are an old run's, move them away",
                stacklevel=3,
            )

    def wait(self) -> None:
        """Return when every save that has begun is on disk. Saves are synchronous, so that is at once."""

    def close(self) -> None:
        """Wait, refuse further use, and let other processes save to the root. Does not save."""
        self.wait()
        if self._locked:
            lock.release(self.root)
            self._locked = False
        self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise ArgumentValueError("this Checkpointer is closed; make another one")


def _metric(name: str, value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        return value.detach().clone()  # read at the next save: a look at it now would wait for the device
    if value is None or isinstance(value, (bool, int, float, str, np.generic)):
        return value
    raise ArgumentTypeError(f"metric {name!r} must be a number, a string or a tensor of one element, got {value!r}")
