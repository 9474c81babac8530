"""Files of tensors: torch's own zip format, written as torch.save does and read without running code."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Callable
from typing import Any, BinaryIO

import torch
from torch.utils.serialization import config as _torch_config

from detdata.checkpoint.memory import Held

_config: Any = _torch_config  # its options are typed nowhere


class Unreadable(Exception):
    """A part that passed its checksum and still cannot be loaded; the text says why."""


def tree_writer(tree: Any) -> Callable[[BinaryIO], object]:
    """Return what writes `tree` to an open file as torch.save does, without the CRC that torch.load never reads."""

    def write(file: BinaryIO) -> None:
        # The option is the thread's own: another thread's torch.save meanwhile keeps its CRC.
        with _config.patch("save.compute_crc32", False):
            torch.save(tree, file)

    return write


def load_tree(name: str, held: Held) -> Any:
    """Return the tree in a file that was read, tensors on the CPU, in the memory of `held`. Raises Unreadable."""
    if not held.is_archive:  # torch reads older formats too, and unpacks what is packed, to any size
        raise Unreadable(
            f"{name} is no plain archive of tensors as torch.save writes it: anything else could need running code to "
            "load it, or more memory than it has bytes"
        )
    try:
        return held.load()
    except pickle.UnpicklingError as error:
        # torch's text goes on to say how to run the code, which is no advice of ours
        why = str(error).partition("WeightsUnpickler error: ")[2].partition(". ")[0] or "not a torch file"
        raise Unreadable(f"{name} holds objects that only running code could rebuild: {why}") from error
    except (RuntimeError, EOFError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise Unreadable(f"{name} cannot be loaded: {type(error).__name__}: {error}") from error
