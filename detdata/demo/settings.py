"""What a demonstration run is made of, as plain JSON that the children read."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from detdata.checks import as_int, as_seed
from detdata.demo.formats import CORPORA
from detdata.errors import ArgumentTypeError, ArgumentValueError
from detdata.keys import derive_seed

Fault: TypeAlias = Literal["none", "rng", "position"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All that fixes a demonstration; equal settings give equal figures on one machine.

    samples: passages of text to train on; each epoch takes every one once, `batch_size` a step. context: bytes of a
    passage that a sample shows. save_every: steps between checkpoints. kill_step: the step, counted from 1, in which
    the interrupted run is killed, after its backward pass and before its update; None: chosen from the seed.
    fault: spoils the exact resume on purpose, to see that the comparison notices. corpus: one of CORPORA: the passages
    are written as files of that format, and every run reads them from there; None: they are kept in memory.
    Raises TypeError and ValueError.

    >>> Settings().steps, Settings().steps_per_epoch
    (112, 28)
    """

    seed: int = 0
    samples: int = 448
    batch_size: int = 16
    epochs: int = 4
    layers: int = 4
    heads: int = 4
    width: int = 144
    context: int = 64
    dropout: float = 0.1
    learning_rate: float = 3e-3
    warmup: int = 10
    workers: int = 2
    save_every: int = 6
    held_out_windows: int = 128
    kill_step: int | None = None
    fault: Fault = "none"
    corpus: str | None = None

    def __post_init__(self) -> None:
        as_seed(self.seed)
        for name in ("samples", "batch_size", "epochs", "layers", "heads", "width", "context", "held_out_windows"):
            as_int(getattr(self, name), name, low=1)
        as_int(self.save_every, "save_every", low=2)
        if self.kill_step is not None:
            why = f": at least one checkpoint must be there, saved every {self.save_every} steps"
            as_int(self.kill_step, "kill_step", low=self.save_every + 1, high=self.steps, why=why)
        if self.fault not in get_args(Fault):
            raise ArgumentValueError(f"fault must be one of {', '.join(get_args(Fault))}; got {self.fault!r}")
        if self.corpus is not None and self.corpus not in CORPORA:
            raise ArgumentValueError(f"corpus must be None or one of {', '.join(CORPORA)}; got {self.corpus!r}")

    @property
    def steps_per_epoch(self) -> int:
        """Steps of one epoch."""
        return self.samples // self.batch_size

    @property
    def steps(self) -> int:
        """Steps of the whole run."""
        return self.steps_per_epoch * self.epochs

    def with_kill_step(self) -> Settings:
        """Return these settings with the step of the kill fixed.

        >>> Settings(seed=1).with_kill_step() == Settings(seed=1).with_kill_step()
        True
        """
        return self if self.kill_step is not None else replace(self, kill_step=choose_kill_step(self))

    def save(self, path: Path) -> None:
        """Write as JSON."""
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Settings:
        """Read what `save` wrote."""
        record = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(record, dict):
            raise ArgumentTypeError(f"{path} must hold a JSON object, got {type(record).__name__}")
        return cls(**record)


# Little enough for a test: some seconds for all runs, most of them imports.
SMALL = Settings(
    samples=64,
    batch_size=4,
    epochs=3,
    layers=2,
    heads=2,
    width=32,
    context=24,
    warmup=4,
    save_every=3,
    held_out_windows=8,
)


def choose_kill_step(settings: Settings) -> int:
    """Return a step in mid-epoch and between two checkpoints, at random by the seed.

    The checkpoint before it lies in the middle half of the same epoch; first and last epoch are left out where there
    are others.

    >>> step = choose_kill_step(Settings(seed=5))
    >>> 28 < step <= 84
    True
    """
    fits = [step for step in range(settings.save_every + 1, settings.steps + 1) if _fits(step, settings)]
    if not fits:
        fits = list(range(settings.save_every + 1, settings.steps + 1))
    if not fits:
        raise ArgumentValueError(f"{settings.steps} steps are too few for a checkpoint every {settings.save_every}")
    return fits[derive_seed(settings.seed, "demo", "kill") % len(fits)]


def _fits(step: int, settings: Settings) -> bool:
    done = step - 1
    saved = done - done % settings.save_every
    epoch, position = divmod(saved, settings.steps_per_epoch)
    middle = settings.steps_per_epoch / 4 <= position <= settings.steps_per_epoch * 3 / 4
    inner = settings.epochs < 3 or 0 < epoch < settings.epochs - 1
    lost = done - saved
    return middle and inner and lost >= min(2, settings.save_every - 1) and done // settings.steps_per_epoch == epoch
