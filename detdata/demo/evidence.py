"""What the runs left behind, read back and compared, bits with bits."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from detdata.errors import DetdataError

Use: TypeAlias = tuple[int, int]  # epoch, sample id


class NotComparable(DetdataError, RuntimeError):
    """The runs are no evidence: they differ where nothing had happened yet, or lack a part."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step as it was logged. step counts from 1; loss and rate are the exact numbers."""

    step: int
    loss: float
    rate: float
    uses: tuple[Use, ...]


@dataclass(frozen=True, slots=True)
class Evidence:
    """A run's log; of a run that came to its end its results too."""

    arm: str
    steps: Mapping[int, Step]
    resumed_from: int = 0
    held_out_loss: float = float("nan")
    digest: str = ""
    parameters: npt.NDArray[np.float32] | None = None
    about: Mapping[str, Any] | None = None

    def uses(self, first: int, last: int) -> list[Use]:
        """Every sample used in steps first … last, both included."""
        return [use for number, step in self.steps.items() if first <= number <= last for use in step.uses]


@dataclass(frozen=True, slots=True)
class Row:
    """One run in the table, measured against the straight one. Losses in nats a byte."""

    arm: str
    resumed_from: int
    last_loss: float
    first_loss: float
    repeated: int
    skipped: int
    largest_loss_difference: float
    equal_losses: int
    compared_losses: int
    held_out_loss: float
    held_out_difference: float
    parameters_equal: bool
    largest_parameter_difference: float
    digest: str


def read_evidence(folder: Path) -> Evidence:
    """Read the log of the run in `folder`, and its results if it has come to its end."""
    lines = (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()
    steps = {step.step: step for step in map(_read_step, lines)}
    if not (folder / "result.json").is_file():
        return Evidence(folder.name, steps)
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    held_out = float.fromhex(result["held_out_loss"])
    parameters = np.load(folder / "parameters.npy", allow_pickle=False)
    return Evidence(folder.name, steps, result["resumed_from"], held_out, result["digest"], parameters, result)


def _read_step(line: str) -> Step:
    record = json.loads(line)
    uses = tuple(zip(record["epochs"], record["ids"], strict=True))
    return Step(record["step"], float.fromhex(record["loss"]), float.fromhex(record["rate"]), uses)


def count_uses(seen: Iterable[Use], expected: Iterable[Use]) -> tuple[int, int]:
    """Return (repeated, skipped): uses of a sample in an epoch beyond those expected, and expected ones that are not.

    >>> count_uses(seen=[(0, 7), (0, 7), (0, 8)], expected=[(0, 7), (0, 8), (0, 9)])
    (1, 1)
    """
    have, want = Counter(seen), Counter(expected)
    return (have - want).total(), (want - have).total()


def measure(arm: Evidence, straight: Evidence, interrupted: Evidence) -> Row:
    """Compare a run that went on from the interrupted one's checkpoint with the straight run.

    Its samples are those of the interrupted run up to the checkpoint and its own from there on.
    """
    done, last = arm.resumed_from, max(straight.steps)
    missing = [number for number in range(done + 1, last + 1) if number not in arm.steps]
    if missing or arm.parameters is None or straight.parameters is None:
        raise NotComparable(f"the run {arm.arm!r} lacks steps {missing[:5]} or its results")
    repeated, skipped = count_uses(
        [*interrupted.uses(1, done), *arm.uses(done + 1, last)],
        straight.uses(1, last),
    )
    pairs = [(arm.steps[number].loss, straight.steps[number].loss) for number in range(done + 1, last + 1)]
    return Row(
        arm=arm.arm,
        resumed_from=done,
        last_loss=interrupted.steps[done].loss,
        first_loss=arm.steps[done + 1].loss,
        repeated=repeated,
        skipped=skipped,
        largest_loss_difference=max(abs(mine - theirs) for mine, theirs in pairs),
        equal_losses=sum(mine.hex() == theirs.hex() for mine, theirs in pairs),
        compared_losses=len(pairs),
        held_out_loss=arm.held_out_loss,
        held_out_difference=abs(arm.held_out_loss - straight.held_out_loss),
        parameters_equal=arm.parameters.tobytes() == straight.parameters.tobytes() and arm.digest == straight.digest,
        largest_parameter_difference=float(np.abs(arm.parameters - straight.parameters).max()),
        digest=arm.digest,
    )


def check_ground(straight: Evidence, interrupted: Evidence) -> None:
    """Raise NotComparable where straight and interrupted run differ before the kill: then nothing can be shown here."""
    for number, step in interrupted.steps.items():
        if _bits(step) != _bits(straight.steps[number]):
            raise NotComparable(
                f"two runs of the same script differ on this machine at step {number}, before anything was killed "
                f"(loss {step.loss!r} and {straight.steps[number].loss!r}): what a resume changes cannot be seen here"
            )


def differences(arm: Evidence, straight: Evidence, row: Row) -> list[str]:
    """Return what differs, each in a sentence; none if the run is the straight one bit for bit from its resume on."""
    found = []
    for number in range(row.resumed_from + 1, max(straight.steps) + 1):
        mine, theirs = arm.steps[number], straight.steps[number]
        if _bits(mine) != _bits(theirs):
            parts = [("samples", mine.uses, theirs.uses), ("rate", mine.rate, theirs.rate)]
            parts += [("loss", mine.loss, theirs.loss)]
            words = [f"{name} {a!r}, straight {b!r}" for name, a, b in parts if a != b]
            found.append(f"step {number} is the first that differs: {'; '.join(words)}")
            break
    if row.repeated or row.skipped:
        found.append(f"{row.repeated} samples repeated, {row.skipped} skipped")
    if arm.held_out_loss.hex() != straight.held_out_loss.hex():
        found.append(f"held-out loss {arm.held_out_loss!r}, straight {straight.held_out_loss!r}")
    if not row.parameters_equal:
        largest = row.largest_parameter_difference
        found.append(f"parameters {arm.digest}, straight {straight.digest}; largest difference {largest:.4e}")
    return found


def _bits(step: Step) -> tuple[str, str, tuple[Use, ...]]:
    return step.loss.hex(), step.rate.hex(), step.uses
