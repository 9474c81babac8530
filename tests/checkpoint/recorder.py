"""A recording file system: every operation on a folder, in order, as the real calls make them.

The calls that change names and that sync are watched in `os`. Bytes are found by looking: before each watched call the
folder is compared with what is known, and what is new in it becomes a `create` and a `write`. So it does not matter
how the bytes get there.
"""

import copy
import os
import stat
from pathlib import Path
from typing import NamedTuple

from tests.checkpoint.disk import Disk

NAMES = ("mkdir", "rename", "replace", "unlink", "remove", "rmdir", "fsync", "fdatasync")


class Killed(BaseException):
    """The process is dead: no operation of it happens any more."""


class Operation(NamedTuple):
    """One change of the tree. node, folder: numbers of `Disk`; what does not apply is None."""

    kind: str
    node: int
    folder: int | None = None
    name: str | None = None
    target: str | None = None
    content: bytes | None = None

    def __str__(self):
        return f"{self.kind} {self.name or self.node}{f' -> {self.target}' if self.target else ''}"


class Recorder:
    """Records what happens below `base` while it is installed. What was there before counts as synced.

    counts: (path, is a folder) -> whether a sync of it takes effect; for protocols that forget one.
    kill_at: the number of the watched call that is not made, nor any after it.
    """

    def __init__(self, base, counts=lambda path, folder: True, kill_at=None):
        self.base = Path(base)
        self.counts, self.kill_at = counts, kill_at
        self.calls = 0
        self.operations = []
        self.saves = []  # (operations when it had returned, content of the folder by name)
        self.disk = Disk()
        self._nodes = {}  # inode -> node
        self._real = {name: getattr(os, name) for name in NAMES}
        self._load(self.base, self.disk.root)
        self.before = copy.deepcopy(self.disk)

    def install(self, patch):
        for name in NAMES:
            patch.setattr(os, name, self._watched(name))

    def returned(self, path):
        """Tell that the save of `path` has returned."""
        self._look()
        self.saves.append((len(self.operations), contents(path)))

    def finish(self):
        """See what the last calls wrote, and that nothing was missed."""
        self._look()
        assert self.disk.live(self.disk.root) == _real_tree(self.base)

    def _load(self, path, node):
        self._nodes[path.stat().st_ino] = node
        for entry in sorted(os.scandir(path), key=lambda entry: entry.name):
            child = self.disk.load(node, entry.name, None if entry.is_dir() else Path(entry.path).read_bytes())
            if entry.is_dir():
                self._load(Path(entry.path), child)
            else:
                self._nodes[entry.inode()] = child

    def _add(self, *fields, **more):
        operation = Operation(*fields, **more)
        self.operations.append(operation)
        self.disk.apply(operation)

    def _look(self, path=None, node=None):
        path, node = path or self.base, self.disk.root if node is None else node
        known = self.disk.entries(node)
        for entry in sorted(os.scandir(path), key=lambda entry: entry.name):
            child = known.get(entry.name)
            if entry.is_dir(follow_symlinks=False):
                assert child is not None, f"{entry.path} was made by a call that is not watched"
                self._look(Path(entry.path), child)
                continue
            if child is None:
                child = self.disk.new_number()
                self._nodes[entry.inode()] = child
                self._add("create", child, node, entry.name)
            content = Path(entry.path).read_bytes()
            if content != self.disk.content(child):
                self._add("write", child, name=entry.name, content=content)

    def _watched(self, name):
        def call(*args, **options):
            if self.kill_at is not None and self.calls >= self.kill_at:
                raise Killed
            self.calls += 1
            self._look()
            return getattr(self, f"_{name}")(self._real[name], *args, **options)

        return call

    def _place(self, path, dir_fd):
        """The folder's node and the name, or (None, name) outside the base."""
        path = Path(os.fspath(path))
        folder = os.fstat(dir_fd) if dir_fd is not None else path.parent.stat()
        return self._nodes.get(folder.st_ino), path.name

    def _mkdir(self, real, path, mode=0o777, *, dir_fd=None):
        real(path, mode, dir_fd=dir_fd)
        folder, name = self._place(path, dir_fd)
        if folder is not None:
            node = self.disk.new_number()
            self._nodes[os.stat(path, dir_fd=dir_fd).st_ino] = node
            self._add("mkdir", node, folder, name)

    def _rename(self, real, source, target, *, src_dir_fd=None, dst_dir_fd=None):
        before, after = self._place(source, src_dir_fd), self._place(target, dst_dir_fd)
        real(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        if before[0] is None and after[0] is None:
            return
        assert before[0] == after[0], "a rename from one folder to another is not part of the protocol"
        self._add("rename", self.disk.entries(before[0])[before[1]], before[0], before[1], after[1])

    _replace = _rename

    def _unlink(self, real, path, *, dir_fd=None):
        folder, name = self._place(path, dir_fd)
        inode = os.lstat(path, dir_fd=dir_fd).st_ino if dir_fd is None else os.stat(path, dir_fd=dir_fd).st_ino
        real(path, dir_fd=dir_fd)
        if folder is not None:
            self._nodes.pop(inode)  # the number of an inode is used again
            self._add("unlink", self.disk.entries(folder)[name], folder, name)

    _remove = _rmdir = _unlink

    def _fsync(self, real, descriptor):
        found = os.fstat(descriptor)
        node = self._nodes.get(found.st_ino)
        if node is None:
            return  # outside, or above the base: taken as on disk
        folder = stat.S_ISDIR(found.st_mode)
        path = self.disk.path_of(node)
        if self.counts(path, folder):
            self._add("sync folder" if folder else "sync file", node, name=path)

    _fdatasync = _fsync


def contents(folder):
    """Name -> bytes of each file of `folder`."""
    return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def _real_tree(path):
    return {
        entry.name: _real_tree(entry.path) if entry.is_dir() else Path(entry.path).read_bytes()
        for entry in os.scandir(path)
    }
