"""One writer to a root: a POSIX record lock on `root/.lock`, which the kernel drops when the process dies.

Forked DataLoader workers do not hold it, so a killed run's workers never block its successor. Where there are no such
locks (Windows, some network file systems) nothing is locked.
"""

from __future__ import annotations

import errno
import json
import os
import socket
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

NAME = ".lock"
_held: dict[tuple[int, Path], tuple[int, int]] = {}  # (process, root) -> (descriptor, holders)


class RootInUse(OSError):
    """Another process writes checkpoints to the same root."""


def acquire(root: Path) -> None:
    """Take the root for this process, once for each holder in it. Raises RootInUse naming the process that has it."""
    key = os.getpid(), root.resolve()
    if key in _held:
        descriptor, holders = _held[key]
        _held[key] = descriptor, holders + 1
        return
    if fcntl is None:
        return
    descriptor = os.open(root / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        owner = os.pread(descriptor, 4096, 0).decode("utf-8", "replace").strip()
        os.close(descriptor)
        if error.errno in (errno.EACCES, errno.EAGAIN):
            raise RootInUse(
                f"another process is saving checkpoints to {root} ({owner or 'unknown'}); two runs in one root would "
                "replace each other's checkpoints. Give this run a root of its own, or end the other one"
            ) from error
        return  # a file system without locks
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode(), 0)
    _held[key] = descriptor, 1


def release(root: Path) -> None:
    """Give the root back; it is free for others when the last holder in this process has."""
    key = os.getpid(), root.resolve()
    if key not in _held:
        return
    descriptor, holders = _held.pop(key)
    if holders > 1:
        _held[key] = descriptor, holders - 1
    else:
        os.close(descriptor)
