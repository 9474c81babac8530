"""The Checkpointer: when to save, what to resume from. All work is in the modules beside it."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import torch

from detdata.checkpoint.agreement import collect
from detdata.checkpoint.compare import check_accept
from detdata.checkpoint.cursor import Cursor
from detdata.checkpoint.deepspeed import check_options
from detdata.checkpoint.environment import snapshot
from detdata.checkpoint.errors import CheckpointNotSaved, Preempted, RankMissing
from detdata.checkpoint.group import groups
from detdata.checkpoint.keeping import retain_periodic, warn_of_higher, warn_of_unresumed
from detdata.checkpoint.manifest import KINDS
from detdata.checkpoint.meta import plain_metric
from detdata.checkpoint.pace import Pace
from detdata.checkpoint.policy import SavePolicy
from detdata.checkpoint.probe import Probe
from detdata.checkpoint.remote_path import AnyPath, RemotePath, as_path
from detdata.checkpoint.resuming import resume, tell
from detdata.checkpoint.run import describe_run
from detdata.checkpoint.saver import Saver, SaveReport
from detdata.checkpoint.schedule import Schedule
from detdata.checkpoint.store import folder_name
from detdata.checkpoint.writing import Content, Writer
from detdata.checks import as_int
from detdata.errors import ArgumentTypeError, ArgumentValueError
from detdata.progress import Progress


class Checkpointer:
    """Saves the whole state of a training run so that a resumed run is the run that was never interrupted.

    root: folder of the checkpoints, made by the first save, or a URL of an object store (`s3://…`, with
    detdata[remote]); one run writes to it at a time. model: may be wrapped in
    DistributedDataParallel or torch.compile. optimizer, scheduler (one or several), scaler, loader: what the run has.
    extra: name -> object with state_dict and load_state_dict (an EMA, …); NumPy arrays in its state come back as
    tensors. generators: name -> torch.Generator, numpy.random.Generator, … of yours, saved for each rank.
    config: recorded as JSON. topology: by default the loader's, else detected. policy: when `step` saves.
    dataset_version: a string or an object with a `.digest`. precision: a word of yours, such as "bf16-mixed".
    probe: a function without arguments that gives a number, the loss of one fixed batch, say; runs in evaluation mode,
    without gradients, and must give the same after a resume. gradients: True lets `save` work inside an accumulation
    window, with the gradients so far.
    background: True copies the state to host memory and writes it while training goes on; when_busy: what a save does
    while one is still being written, "wait" for it or "refuse" (`save` raises, `step` tries again later).
    strict: a broken checkpoint on the way to a whole one is an error instead of a warning. timeout_seconds: how long
    the slowest rank may be behind.

    Call `resume` once, after everything is built, and `step` after each optimizer step (and scheduler step). Saving
    blocks until the bytes are on disk (background: are copied), and changes nothing in the process: no random state,
    tensor or learning rate.
    With an initialised process group of several ranks every call is collective, the making of it too: rank 0 writes
    what is the same on all of them, each rank its random states, and a checkpoint is there when all have.
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
        root: str | os.PathLike[str] | RemotePath,
        *,
        model: torch.nn.Module,
        optimizer: Any = None,
        scheduler: Any = None,
        scaler: Any = None,
        loader: Any = None,
        extra: Mapping[str, Any] | None = None,
        generators: Mapping[str, Any] | None = None,
        config: Any = None,
        topology: Any = None,
        policy: SavePolicy = SavePolicy(),  # noqa: B008 - a frozen value
        dataset_version: Any = None,
        precision: str | None = None,
        probe: Probe | None = None,
        gradients: bool = False,
        background: bool = False,
        when_busy: Literal["wait", "refuse"] = "wait",
        strict: bool = False,
        timeout_seconds: float = 1800.0,
    ) -> None:
        if not isinstance(policy, SavePolicy):
            raise ArgumentTypeError(f"policy must be a SavePolicy, got {type(policy).__name__}")
        if probe is not None and not callable(probe):
            raise ArgumentTypeError(f"probe must be a function that gives a number, got {probe!r}")
        if when_busy not in ("wait", "refuse"):
            raise ArgumentValueError(f"when_busy must be 'wait' or 'refuse', got {when_busy!r}")
        self.root = as_path(root).absolute()  # a later chdir must not split the run over two roots
        if isinstance(self.root, Path) and self.root.exists() and not self.root.is_dir():
            raise ArgumentValueError(f"root must be a folder, but {self.root} is a file")
        self.policy = policy
        self._run = describe_run(
            model=model,
            optimizer=optimizer,
            scheduler=scheduler,
            scaler=scaler,
            loader=loader,
            extra=extra,
            generators=generators,
            topology=topology,
            dataset_version=dataset_version,
            precision=precision,
            config=snapshot(config),
        )
        check_options(self._run.engine, background=background, gradients=gradients)
        if gradients and loader is None:
            raise ArgumentValueError(
                "gradients=True needs a loader: its progress says whether a save is inside an accumulation window"
            )
        self._probe, self._strict = probe, bool(strict)
        self._gradients, self._background, self._when_busy = bool(gradients), bool(background), when_busy
        self._control, commit = groups(self._run.rank, timeout_seconds)
        self._writer = Writer(self.root, commit)
        self._saver = Saver(self._writer, self._retain)
        self._schedule, self._watch = Schedule(policy, self._control), Pace(self._control, None)
        self._cursor = Cursor(self.root)
        self._history = self._schedule.history
        self._counted = Progress()
        self._resumed_from: AnyPath | None = None
        self._saved_step = 0
        self._warned_of_higher = False
        self._began = False  # whether it was asked what there is: by resume, else by the first step or save
        self._closed = False

    @property
    def progress(self) -> Progress:
        """Where training stands: the loader's progress, or without a loader the number of `step` calls."""
        return self._counted if self._run.loader is None else self._run.loader.progress

    @property
    def last_save(self) -> SaveReport | None:
        """The newest save that is on disk: its folder, bytes, how long training waited, and how long it took."""
        return self._saver.last

    def resume(self, step: int | None = None, accept: Iterable[str] = ()) -> Progress | None:
        """Load the newest whole checkpoint into the objects, or that of global step `step`; return where it stands.

        Newest is by global step, then by the time of saving. Broken checkpoints are passed over, each with a warning
        that says why; a given `step` never falls back. None: nothing was ever published here.
        Every byte is verified, every part read, and everything compared before anything is loaded, on all ranks.
        accept: names of differences to go on with on purpose: "world_size" (a rank without random states of its own
        gets derived ones), "batch_size" (from here on), "topology", "dataset_version", "precision" (values are cast),
        "rng" (what is missing is left as it is), "probe", and "optimizer", "scheduler", "scaler", "extra", "loader"
        (what does not match is not loaded and starts afresh). What was accepted is recorded in the checkpoints that
        follow. Random states are restored last, so build everything, iterators too, before.

        One line says where it stands, with learning rates and loss scale, and how many samples are done again, where
        the run had gone on after the checkpoint: to the logger "detdata", or to stderr if that shows no such lines.

        Raises CheckpointMismatch listing every difference; CheckpointBroken if none is whole; OSError if the newest may
        not be read; FileNotFoundError for a step that is not there; UnknownFormat for a newer release's checkpoint;
        ProbeFailed; RankMissing; ValueError for an unknown `accept`. Holds one copy of the checkpoint in memory.
        """
        self._check_open()
        names = check_accept(accept)
        self._began = True
        wanted = None if step is None else as_int(step, "step")
        found = resume(self._run, self.root, self._control, wanted, names, strict=self._strict, probe=self._probe)
        if found is None:
            self._content()  # what could not be saved should fail here, not ten minutes into the run
            return None
        self._counted = found.saved.progress
        self._saved_step = self._counted.global_step
        self._history.accepted = [
            {"field": one.field, "saved": one.saved, "found": one.found} for one in found.differences
        ]
        self._history.resumed = found.record()
        self._history.best = found.saved.meta.get("best")
        self._resumed_from = found.saved.path
        self._schedule.latest_at = time.monotonic()
        if self._control.rank == 0:
            tell(found.summary(self._run))
        return self.progress

    def step(self, **metrics: Any) -> bool:
        """Tell that an optimizer step is done; save if the policy says so. Returns True when it saved, or began to.

        metrics: numbers, strings or tensors of one element; the last ones given are recorded in the checkpoint. Every
        rank passes the same names; rank 0's values count.
        Inside an accumulation window (`loader.progress.micro_step` is not 0) nothing is saved: it waits for the
        boundary. Without a process group, ranks other than 0 never save. Costs some 30 µs when nothing is due, and
        with several ranks some milliseconds about once a second, to agree on clock and signals.
        A save that fails is a warning and tried again, as the policy says. After SIGTERM or SIGUSR1 it saves and raises
        Preempted (a SystemExit with code 128 + signal). Raises RankMissing, and CheckpointNotSaved at last.
        """
        self._begin()
        given = {name: plain_metric(name, value) for name, value in metrics.items()}
        self._history.metrics.update(given)
        self._counted = replace(self._counted, global_step=self._counted.global_step + 1)
        progress = self.progress
        if self._control.rank == 0:
            self._cursor.note(progress)
        self._collect()
        if progress.micro_step:
            return False
        kinds, signal = self._schedule.due(progress.global_step, given)
        if not self._saves:
            kinds = []
        if signal:
            self._save_at_last(kinds)
            raise Preempted(128 + signal)
        for place, kind in enumerate(kinds):
            if not self._attempt(kind):
                self._schedule.later(kinds[place + 1 :])
                return bool(place)
        return bool(kinds)

    def save(self, kind: str = "latest") -> AnyPath:
        """Save now, as `ckpt_latest` or as `ckpt_step_<n>`; return the folder, whole and on disk.

        With background=True it returns when the state is copied; the folder is there when `wait` returns.
        Raises ValueError inside an accumulation window, where the gradients so far would be lost (gradients=True saves
        them); TypeError for state that could not be loaded without running code; CheckpointNotSaved (an OSError) if the
        disk refuses, or an earlier save behind the training has failed. What was published before is then still there.
        """
        self._begin()
        if kind not in KINDS:
            raise ArgumentValueError(f"kind must be one of {KINDS}, got {kind!r}")
        if not self._saves:
            raise ArgumentValueError(
                f"only rank 0 saves; this is rank {self._run.rank} of the topology, and there is no process group"
            )
        progress = self.progress
        if progress.micro_step and not self._gradients:
            raise ArgumentValueError(
                f"cannot save inside an accumulation window: micro_step is {progress.micro_step} at global step "
                f"{progress.global_step}, and the gradients accumulated so far are not part of a checkpoint. "
                "Call save() after optimizer.step(), when loader.progress.micro_step is 0, let step() do it, or make "
                "the Checkpointer with gradients=True"
            )
        if self._when_busy == "refuse" and self._busy():
            raise CheckpointNotSaved(
                f"the checkpoint of global step {progress.global_step} was not saved: an earlier one is still being "
                'written. wait() for it, or make the Checkpointer with when_busy="wait"'
            )
        return self._save(kind)

    def _save(self, kind: str) -> AnyPath:
        """Save, after a save that is still under way."""
        begun = time.monotonic()
        self._saver.collect(wait=True)
        content, step = self._content(kind), self.progress.global_step
        if self._background:
            self._saver.start(content, kind, step, begun)
            path = self.root / folder_name(kind, step)
        else:
            path = self._saver.save(content, kind, step, begun).path
        self._saved_step = step
        if kind == "latest":
            self._schedule.latest_at = time.monotonic()
        if self._control.rank == 0:
            self._warned_of_higher = self._warned_of_higher or warn_of_higher(self.root, step)
        return path

    def wait(self) -> None:
        """Return when every save that has begun is on disk. Raises what went wrong with it."""
        self._saver.collect(wait=True)

    def close(self) -> None:
        """Wait, refuse further use, and let other processes save to the root. Does not save."""
        try:
            self.wait()
        finally:
            self._writer.close()
            self._cursor.close()
            self._schedule.close()
            self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal = 0 if kind is not None or self._closed else self._schedule.signal
        try:
            if kind is None and self.policy.on_exit and self._saves and not self._closed:
                failed, progress = self._earlier_failed(), self.progress
                if (failed or progress.global_step > self._saved_step) and not progress.micro_step:
                    self._save_at_last(["latest"])
        finally:
            self.close()
        if signal:  # it came after the last step: nobody else would act upon it
            raise Preempted(128 + signal)

    @property
    def _saves(self) -> bool:
        return self._control.size > 1 or self._control.rank == 0

    def _busy(self) -> bool:
        return any(row[0] for row in self._control.flags(int(self._saver.busy)))

    def _attempt(self, kind: str) -> bool:
        """Save; a failure is a warning until there are too many of them."""
        if self._background and self._when_busy == "refuse" and self._busy():
            self._schedule.put_off(kind)
            return False
        if not self._collect(wait=True):
            self._schedule.later([kind])
            return False
        try:
            self._save(kind)
        except RankMissing:
            raise
        except CheckpointNotSaved as error:
            self._schedule.failed(kind, error)
            return False
        self._schedule.begun(kind)
        if not self._background:
            self._schedule.succeeded()
        return True

    def _save_at_last(self, kinds: list[str]) -> None:
        """Save all these kinds, with no next chance: on disk when this returns, or what went wrong is raised."""
        self._earlier_failed()
        errors = []
        for kind in kinds:
            try:
                self._save(kind)
                self._saver.collect(wait=True)
            except RankMissing:
                raise
            except CheckpointNotSaved as error:
                errors.append(error)
        if errors and len(errors) == len(kinds):
            raise errors[-1]
        for failure in errors:
            warnings.warn(str(failure), stacklevel=3)

    def _earlier_failed(self) -> bool:
        """Wait for a save behind the training; if it fails, warn and return True: there is one more chance."""
        try:
            self._saver.collect(wait=True)
        except RankMissing:
            raise
        except CheckpointNotSaved as error:
            warnings.warn(f"{error}. It is tried once more", stacklevel=3)
            return True
        return False

    def _collect(self, *, wait: bool = False) -> bool:
        """Look at what became of a save behind the training; return False if it has failed, and is planned anew."""
        saver = self._saver
        # The ranks look together: one that alone knew of a failure would alone try again.
        if not saver.begun or not (wait or self._watch.all_are(self.progress.global_step, not saver.busy)):
            return True
        try:
            if saver.collect(wait=wait):
                self._schedule.succeeded()
        except RankMissing:
            raise
        except CheckpointNotSaved as error:
            self._schedule.failed(saver.kind, error)
            return False
        return True

    def _content(self, kind: str = "latest") -> Content:
        return collect(self._run, self._control, kind, self.progress, self._history, probe=self._probe)

    def _retain(self, report: SaveReport) -> None:
        """Remove the periodic checkpoints that the policy does not keep; in the thread that has saved, on rank 0."""
        if report.kind == "periodic" and not self._control.rank:
            kept = {report.path} | ({self._resumed_from} if self._resumed_from is not None else set())
            retain_periodic(self.root, self.policy, self._schedule.best_steps(report.step), kept)

    def _begin(self) -> None:
        self._check_open()
        if not self._began:
            self._began = True
            if self._control.rank == 0 and self._saves:
                warn_of_unresumed(self.root, self.progress.global_step)

    def _check_open(self) -> None:
        if self._closed:
            raise ArgumentValueError("this Checkpointer is closed; make another one")
