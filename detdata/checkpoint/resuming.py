"""A resume: every rank finds the same checkpoint whole and fitting, or none changes anything."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from detdata.checkpoint.agreement import agree, together
from detdata.checkpoint.compare import compare, notes
from detdata.checkpoint.cursor import Repeated, repeated
from detdata.checkpoint.errors import CheckpointNotLoaded
from detdata.checkpoint.group import Group
from detdata.checkpoint.parts import present_tensors, restore
from detdata.checkpoint.probe import Probe, check_probe, run_probe
from detdata.checkpoint.remote_path import AnyPath
from detdata.checkpoint.run import Run, layout_sizes
from detdata.checkpoint.saved import Saved
from detdata.checkpoint.selection import select
from detdata.errors import CheckpointMismatch, Difference

_log = logging.getLogger("detdata")


@dataclass(frozen=True, slots=True)
class Resumed:
    """What a resume found.

    differences: those that were accepted. repeated: steps and samples that are done again, because the run had gone on
    after the checkpoint; None where that is not known.
    """

    saved: Saved
    differences: tuple[Difference, ...]
    repeated: Repeated | None

    def summary(self, run: Run) -> str:
        """Return one line for people: step, learning rates, loss scale, what is repeated."""
        progress = self.saved.progress
        words = [f"resumed from {self.saved.path} at global step {progress.global_step}, epoch {progress.epoch}"]
        if run.loader is not None:
            words.append(f"{progress.consumed_samples} samples consumed")
        if run.optimizer is not None:
            rates = [_rate(group.get("lr")) for group in run.optimizer.param_groups]
            words.append(f"learning rate {', '.join(rates)}")
        if run.scaler_state() is not None:
            words.append(f"loss scale {run.scaler.get_scale():g}")
        if self.repeated is not None:
            again = self.repeated
            amount = f"{again.steps} steps, {again.samples} samples, again" if again.steps else "nothing is done again"
            words.append(f"the run had come to step {again.died_at_step}: {amount}")
        return "; ".join(words)

    def record(self) -> dict[str, Any]:
        """Return what meta.json says of it from now on."""
        return {
            "from": self.saved.path.name,
            "step": self.saved.progress.global_step,
            "saved_ns": self.saved.manifest.saved_ns,
            "repeated": None if self.repeated is None else self.repeated.to_dict(),
        }


def resume(
    run: Run, root: AnyPath, group: Group, step: int | None, accept: Sequence[str], *, strict: bool, probe: Probe | None
) -> Resumed | None:
    """Find, verify, compare, agree, and only then load; None if nothing was ever published. Collective."""
    doing = "resuming"
    mine = {
        "step": "the newest" if step is None else step,
        "accept": sorted(accept),
        "topology": layout_sizes(run.layout()),
    }
    agree(group.all_gather(mine, doing), doing)
    like = present_tensors(run) if run.is_sharded() else None
    saved = select(root, step, group, strict=strict, like=like)
    if saved is None:
        return None

    def look() -> tuple[tuple[Difference, ...], list[dict[str, Any]]]:
        found = compare(run, saved, group.rank)
        return found, [asdict(one) for one in found if one.accept not in accept]

    differences, refused = together(group, doing, look)
    for others in refused:
        if others:
            raise CheckpointMismatch(str(saved.path), tuple(Difference(**one) for one in others))
    skip = [difference.accept or "" for difference in differences]
    lines = notes(run, saved, group.rank, skip)
    noted = repeated(root, saved.progress) if group.rank == 0 else None

    def load() -> tuple[list[str], None]:
        restore(run, saved, skip, group.rank)
        return _probe(run, saved, group.rank, probe, accepted="probe" in accept), None

    lines += together(group, "loading", load, CheckpointNotLoaded)[0]
    if lines:
        listed = "\n  ".join(lines)
        warnings.warn(f"resumed from {saved.path}, saved under other conditions:\n  {listed}", stacklevel=3)
    return Resumed(saved, differences, noted)


def _probe(run: Run, saved: Saved, rank: int, probe: Probe | None, *, accepted: bool) -> list[str]:
    before = saved.meta.get("probe")
    if before is None or probe is None:
        return [] if before is None else ["it has the value of a probe, and no probe is given now: it was not compared"]
    found = run_probe(probe, run.model, run.generators)
    if not accepted:
        check_probe(found, before, rank, saved.path)
        return []
    was = before["values"][rank if rank < len(before["values"]) else 0]
    return [] if was == found else [f"probe: {float.fromhex(was)!r} was accepted as {float.fromhex(found)!r}"]


def _rate(value: Any) -> str:
    """Return a learning rate as text; there are optimizers that find their own and have None."""
    try:
        return f"{float(value):g}"
    except (TypeError, ValueError, RuntimeError):
        return f"{value}"


def tell(line: str) -> None:
    """Say a line to the logger "detdata", or on stderr where that shows no such lines."""
    if _log.isEnabledFor(logging.INFO) and _log.hasHandlers():
        _log.info("%s", line)
    else:
        sys.stderr.write(f"detdata: {line}\n")
