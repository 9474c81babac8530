"""Files of tensors: torch's own zip format, written as torch.save does and read without running code."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch.utils.serialization import config as _torch_config

from detdata.checkpoint.files import open_regular

_config: Any = _torch_config  # its options are typed nowhere


class Unreadable(Exception):
    """A part that passed its checksum and still cannot be loaded; the text says why."""


def tree_writer(tree: Any) -> Callable[[BinaryIO], object]:
    """Return what writes `tree` to an open file as torch.save does, without the CRC that torch.load never reads."""

    def write(file: BinaryIO) -> None:
        with _config.patch("save.compute_crc32", False):
            torch.save(tree, file)

    return write


def read_tree(path: Path) -> Any:
    """Return the tree in the file `path`, tensors on the CPU. Raises Unreadable, OSError."""
    try:
        with open_regular(path) as file:
            return torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        # torch's text goes on to say how to run the code, which is no advice of ours
        why = str(error).partition("WeightsUnpickler error: ")[2].partition(". ")[0] or "not a torch file"
        raise Unreadable(f"{path.name} holds objects that only running code could rebuild: {why}") from error
    except (RuntimeError, EOFError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise Unreadable(f"{path.name} cannot be loaded: {type(error).__name__}: {error}") from error
