"""Where checkpoints are saved: a folder of this machine, or an object store. Only here the two part ways."""

from __future__ import annotations

from collections.abc import Collection

from detdata.checkpoint import lock, remote, store
from detdata.checkpoint.remote import RemoteStage
from detdata.checkpoint.remote_path import AnyPath, RemotePath
from detdata.checkpoint.store import Stage, make_root


def acquire(root: AnyPath) -> None:
    """Make the root where it is missing, and take it for this process. Raises OSError. In a store there is no lock."""
    if not isinstance(root, RemotePath):
        make_root(root)
        lock.acquire(root)


def release(root: AnyPath) -> None:
    """Let other processes save to the root."""
    if not isinstance(root, RemotePath):
        lock.release(root)


def open_stage(root: AnyPath, kind: str, step: int) -> Stage | RemoteStage:
    """Begin a checkpoint; what cut saves have left is removed. Raises OSError."""
    return RemoteStage(root, kind, step) if isinstance(root, RemotePath) else Stage(root)


def retain(root: AnyPath, keep: int, protected: Collection[AnyPath]) -> list[AnyPath]:
    """Remove all periodic checkpoints but the `keep` of the highest steps and those `protected`; return the removed."""
    steps = store.periodic_steps(root)
    old = sorted(steps, key=steps.__getitem__, reverse=True)[keep:]
    removed = [path for path in old if path not in protected]
    for path in removed:
        remote.discard(path) if isinstance(path, RemotePath) else store.discard(path)
    return removed
