"""What is in the tensors of a checkpoint: name, dtype, shape, extremes, mean, how many are not finite."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from detdata.checkpoint.inspection import Opened, open_checkpoint
from detdata.checkpoint.reading import Parts
from detdata.checkpoint.remote_path import RemotePath
from detdata.checkpoint.tensor_difference import Values, finite, values
from detdata.checkpoint.tree_difference import path_text, tensors_of


@dataclass(frozen=True, slots=True)
class TensorRow:
    """One tensor. part: its file. values: what is in it."""

    part: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    values: Values

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain JSON."""
        return {
            "part": self.part,
            "name": self.name,
            "dtype": self.dtype,
            "shape": list(self.shape),
            "min": finite(self.values.minimum),
            "max": finite(self.values.maximum),
            "mean": finite(self.values.mean),
            "non_finite": self.values.non_finite,
        }


def tensor_rows(checkpoint: Opened | str | os.PathLike[str] | RemotePath) -> Iterator[TensorRow]:
    """Yield a row for each tensor of a checkpoint, part by part, each verified before it is loaded.

    Tensors in pieces come whole. Holds one part at a time. Raises CheckpointBroken, UnknownFormat, CheckpointNotFound.
    """
    parts = Parts(checkpoint if isinstance(checkpoint, Opened) else open_checkpoint(checkpoint))
    for name in parts.names:
        for path, tensor in tensors_of(parts.tree(name)):
            yield TensorRow(
                name, path_text(path), str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), values(tensor)
            )
    parts.finish()
