"""How far a run has come, noted at every step without waiting for the disk: so that a resume can say what is repeated.

    {"consumed_samples": …, "digest": "xxh3-128:…", "format": "detdata.cursor/1", "global_step": …}

One line of canonical JSON in `root/.cursor`, padded with spaces, written over in place. It is a note and no part
of any checkpoint: one that is torn, missing or older than the checkpoint says nothing, and changes nothing. In an
object store none is kept: a request for each step would cost more than it tells.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from typing import Any

from detdata.checkpoint.files import open_note, read_bounded
from detdata.checkpoint.remote_path import AnyPath, RemotePath
from detdata.progress import Progress
from detdata.records import canonical_json, own_digest

FORMAT = "detdata.cursor/1"
NAME = ".cursor"
_BYTES = 256
_KEYS = {"format", "global_step", "consumed_samples", "digest"}


@dataclass(frozen=True, slots=True)
class Repeated:
    """What a resume does again: steps and samples (over all ranks) between the checkpoint and the point of death."""

    died_at_step: int
    steps: int
    samples: int

    def to_dict(self) -> dict[str, int]:
        """Return the three integers as plain JSON."""
        return {"died_at_step": self.died_at_step, "steps": self.steps, "samples": self.samples}


class Cursor:
    """The open note of a root. Writing one takes some 10 µs; a disk that refuses is no reason to stop a training."""

    def __init__(self, root: AnyPath) -> None:
        self._path = None if isinstance(root, RemotePath) else root / NAME
        self._file: int | None = None

    def note(self, progress: Progress) -> None:
        """Note where training stands, if the root is there already."""
        if self._path is None:
            return
        record: dict[str, Any] = {
            "format": FORMAT,
            "global_step": progress.global_step,
            "consumed_samples": progress.consumed_samples,
        }
        record["digest"] = own_digest(record)
        with contextlib.suppress(OSError):
            if self._file is None:
                self._file = open_note(self._path, os.O_WRONLY)
            os.lseek(self._file, 0, os.SEEK_SET)
            os.write(self._file, canonical_json(record).ljust(_BYTES - 1) + b"\n")

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def repeated(root: AnyPath, progress: Progress) -> Repeated | None:
    """Return what a run that goes on from `progress` does again; None where that is not known."""
    if isinstance(root, RemotePath):
        return None
    try:
        record = json.loads(read_bounded(root / NAME, _BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or set(record) != _KEYS or record["format"] != FORMAT:
        return None
    if record["digest"] != own_digest(record):
        return None
    step, samples = record["global_step"], record["consumed_samples"]
    if type(step) is not int or type(samples) is not int or step < progress.global_step:
        return None
    return Repeated(step, step - progress.global_step, max(samples - progress.consumed_samples, 0))
