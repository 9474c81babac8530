"""One writer to a root: a POSIX record lock on `root/.lock`, which the kernel drops when the process dies.

Forked DataLoader workers do not hold it, so a killed run's workers never block its successor. It is also dropped when
anything in the process closes a descriptor of that file (a backup of the folder, say), and it is of no use once
somebody has removed the file: so each save takes it anew (`renew`), and finds out if another process has it by then.
Where there are no such locks (Windows, some network file systems) nothing is locked; the latter is warned of.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import warnings
from pathlib import Path
from typing import TypeAlias

from detdata.checkpoint.files import open_note

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

NAME = ".lock"
_Key: TypeAlias = tuple[int, Path]  # process, root
_held: dict[_Key, tuple[int, int]] = {}  # -> (descriptor, holders)


class RootInUse(OSError):
    """Another process writes checkpoints to the same root."""


def acquire(root: Path) -> None:
    """Take the root for this process, once for each holder in it. Raises RootInUse naming the process that has it."""
    key = os.getpid(), root.resolve()
    renew(root)
    if key in _held:
        descriptor, holders = _held[key]
        _held[key] = descriptor, holders + 1
    else:
        _open(key, 1)


def renew(root: Path) -> None:
    """Make sure of a root that this process has taken; do nothing for another. Raises RootInUse."""
    key = os.getpid(), root.resolve()
    if key not in _held:
        return
    descriptor, holders = _held[key]
    try:
        there = os.path.samestat(os.fstat(descriptor), (key[1] / NAME).stat())
    except FileNotFoundError:
        there = False
    if there:
        _lock(key[1], descriptor)
    else:
        _open(key, holders)
        os.close(descriptor)


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


def _open(key: _Key, holders: int) -> None:
    if fcntl is None:
        return
    root = key[1]
    descriptor = open_note(root / NAME, os.O_RDWR)
    try:
        locked = _lock(root, descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    _held[key] = descriptor, holders
    if locked:
        with contextlib.suppress(OSError):  # a full disk: the lock is there, only its owner has no name
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode(), 0)


def _lock(root: Path, descriptor: int) -> bool:
    """Take the lock, or take it again. False: the file system has none. Raises RootInUse."""
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in {errno.EACCES, errno.EAGAIN}:
            raise RootInUse(
                f"another process is saving checkpoints to {root}: {_owner(descriptor)}. Two runs in one root would "
                "replace each other's checkpoints. Give this run a root of its own, or end the other one"
            ) from error
        warnings.warn(  # the usual filter shows it once
            f"{root} cannot be locked ({error}): nothing will stop a second run from saving to it", stacklevel=4
        )
        return False
    return True


def _owner(descriptor: int) -> str:
    try:
        record = json.loads(os.pread(descriptor, 4096, 0))
        return f"process {int(record['pid'])} on {record['host']!s:.200}"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "it does not say which"
