"""Every error that detdata raises on purpose.

    DetdataError
    ├── UnknownFormat (ValueError)       a record of a kind or version that this release cannot read
    ├── StateMismatch (ValueError)       saved loader or sampler state belongs to another plan
    ├── CheckpointMismatch (ValueError)  a checkpoint belongs to another run set-up; lists every difference
    ├── CheckpointBroken (OSError)       checkpoints exist, and none of them is whole
    ├── NoInverse (NotImplementedError)  the position of a sample in an order where it has no one position
    └── MissingExtra (ImportError)       an optional package that is needed for what was asked

Wrong arguments raise plain `TypeError`, `ValueError` or `IndexError` (by way of the subclasses below, which are also
`DetdataError`), so that both `except ValueError` and `except DetdataError` work.
"""

from __future__ import annotations

from dataclasses import dataclass


class DetdataError(Exception):
    """Base of all errors that detdata raises on purpose."""


class ArgumentTypeError(DetdataError, TypeError):
    """An argument of the wrong type; the message names it, its value and what is allowed."""


class ArgumentValueError(DetdataError, ValueError):
    """An argument outside its range; the message names it, its value and what is allowed."""


class OutOfRange(DetdataError, IndexError):
    """A position or sample id that the order does not have."""


class NoInverse(DetdataError, NotImplementedError):
    """Asked for the position of a sample id of an order in which an id has no one position."""


class UnknownFormat(DetdataError, ValueError):
    """A record whose format this release does not know, or whose keys are not those of its format."""


class StateMismatch(DetdataError, ValueError):
    """Saved loader or sampler state that belongs to another plan, seed or dataset."""


@dataclass(frozen=True)
class Difference:
    """One field in which a checkpoint and the present set-up differ.

    field: what differs (`"world_size"`, `"model"`, …); saved: what the checkpoint has; found: what is there now;
    accept: the name to pass in `accept=(…)` to go on all the same, or None where going on is impossible.
    """

    field: str
    saved: str
    found: str
    accept: str | None

    def __str__(self) -> str:
        way = f'accept=("{self.accept}",)' if self.accept else "set it up as it was saved; this cannot be accepted"
        return f"{self.field}\n    saved  {self.saved}\n    found  {self.found}\n    go on  {way}"


class CheckpointMismatch(DetdataError, ValueError):
    """The checkpoint is whole, but the present set-up is another one. Nothing has been loaded or changed.

    `differences` lists every one of them.
    """

    def __init__(self, path: str, differences: tuple[Difference, ...]) -> None:
        self.path = path
        self.differences = differences
        lines = "\n  ".join(str(difference) for difference in differences)
        names = tuple(d.accept for d in differences if d.accept)
        hint = ""
        if names and len(names) == len(differences):
            listed = ", ".join(f'"{name}"' for name in names)
            hint = f"\nTo go on with all of these on purpose: resume(accept=({listed},))"
        super().__init__(f"cannot resume from {path}: {len(differences)} mismatch(es)\n  {lines}{hint}")

    def __reduce__(self) -> tuple[type[CheckpointMismatch], tuple[str, tuple[Difference, ...]]]:
        return (CheckpointMismatch, (self.path, self.differences))


class CheckpointBroken(DetdataError, OSError):
    """Checkpoints are there, and not one is whole. `broken` maps each path to the reasons."""

    def __init__(self, root: str, broken: dict[str, list[str]]) -> None:
        self.root = root
        self.broken = broken
        lines = "\n".join(f"  {path}\n" + "\n".join(f"    - {why}" for why in whys) for path, whys in broken.items())
        super().__init__(
            f"no whole checkpoint in {root}; {len(broken)} refused:\n{lines}\n"
            "Restore one of them from a copy, or move them away to start from nothing."
        )

    def __reduce__(self) -> tuple[type[CheckpointBroken], tuple[str, dict[str, list[str]]]]:
        return (CheckpointBroken, (self.root, self.broken))


class MissingExtra(DetdataError, ImportError):
    """A package that is not installed; the message says what for and how to install it."""

    def __init__(self, what: str, extra: str) -> None:
        self.what = what
        self.extra = extra
        super().__init__(f"{what}: pip install 'detdata[{extra}]'")

    def __reduce__(self) -> tuple[type[MissingExtra], tuple[str, str]]:
        return (MissingExtra, (self.what, self.extra))
