"""Files of tensors: torch's own zip format, written as torch.save does and read without running code."""

from __future__ import annotations

import pickle
import threading
import zipfile
from collections.abc import Callable
from types import TracebackType
from typing import Any, BinaryIO, final

import torch
from torch.utils.serialization import config as _torch_config

from detdata.checkpoint.memory import Held

_config: Any = _torch_config  # its options are typed nowhere


class Unreadable(Exception):
    """A part that passed its checksum and still cannot be loaded; the text says why."""


def tree_writer(tree: Any) -> Callable[[BinaryIO], object]:
    """Return what writes `tree` to an open file as torch.save does, without the CRC that torch.load never reads."""

    def write(file: BinaryIO) -> None:
        with _without_crc:
            torch.save(tree, file)

    return write


@final
class _WithoutCrc:
    """Turns torch's CRC off, which is an option of the whole process, while any thread is within."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._within = 0
        self._before = True

    def __enter__(self) -> None:
        with self._lock:
            if not self._within:
                self._before = _config.save.compute_crc32
                _config.save.compute_crc32 = False
            self._within += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._within -= 1
            if not self._within:
                _config.save.compute_crc32 = self._before


_without_crc = _WithoutCrc()


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
