"""Trees of files for tests: written from a dict, with whatever a file system can hold, and listed by a naive oracle."""

import contextlib
import hashlib
import os
import shutil
import socket
import stat
import tempfile
from pathlib import Path

import pytest
import xxhash

posix = pytest.mark.skipif(os.name == "nt", reason="POSIX file systems")
# Names that sort differently by locale, by case, by number and by byte, and those that break careless tools.
NAMES = [
    "9", "10", "a", "B", "é", "z.txt", ".hidden", "name with spaces", "tab\tin it", "line\nbreak", "back\\slash",
    "star*", "ques?", "[set]", "quote'\"", "-dash", "~tilde", "日本", "a.b", "a-b", "A", "#hash", "!bang", "c:drive",
    os.fsdecode(b"not-\xff-utf8"), os.fsdecode(b"\x80"), "\uffff", "\U00010000", "con.", " lead", "trail ",
]  # fmt: skip
PLAIN = {"a.txt": b"one", "b/c.txt": b"two", "b/d/e.txt": b"three", "b.txt": b"four", ".hidden/f": b"five"}
DENIED = PermissionError(13, "Permission denied")


def make_tree(root, files):
    """Write {relative path: bytes, or None for an empty folder} below `root`, in the order of the dict."""
    root = Path(root)
    root.mkdir(parents=True, exist_ok=True)
    for path, data in files.items():
        file = root / path
        if data is None:
            file.mkdir(parents=True, exist_ok=True)
            continue
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    return root


def odd_files():
    """50 files and more: each odd name at the top and in folders, some of them with odd names too."""
    files = {name: os.fsencode(name) for name in NAMES}
    files |= {f"folder {i}/{name}": os.fsencode(name) * i for i, name in enumerate(NAMES)}
    return files | {os.fsdecode(b"f\xfe/g\xfd"): b"1", "new\nline/x": b"2", "a.d/x": b"3"}


def small_files(root, count, size, per_folder=1000):
    """Write `count` files of `size` bytes, no two alike, in folders of `per_folder`; for measuring."""
    for i in range(count):
        folder = Path(root) / f"part-{i // per_folder:04d}"
        if i % per_folder == 0:
            folder.mkdir(parents=True)
        (folder / f"sample-{i:08d}.bin").write_bytes((i.to_bytes(8, "little") * (size // 8 + 1))[:size])


def make_socket(path):
    """Leave a socket in the file system."""
    with socket.socket(socket.AF_UNIX) as end, contextlib.chdir(path.parent):  # its address may have 107 bytes only
        end.bind(path.name)


def make_device(path):
    """Leave a character device (that of /dev/null), if this system lets us."""
    os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))


def oracle(root):
    """Relative paths of all regular files below `root`, in byte order: by os.walk and bytes, slow and plain."""
    top = os.fsencode(root)
    found = []
    for folder, _, names in os.walk(top):
        found += [os.path.relpath(folder + b"/" + name, top) for name in names]
    return [path.decode("utf-8", "surrogateescape") for path in sorted(found)]


@contextlib.contextmanager
def closed_folder():
    """A folder to which permissions apply, for root too: `open/` and `shut` and `file`, the latter two without any."""
    root = Path(tempfile.mkdtemp())
    make_tree(root, {"open/x": b"x", "shut/x": b"x", "file": b"x"})
    root.chmod(0o755)
    for name in ("shut", "file"):
        (root / name).chmod(0)
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65534)
    try:
        yield root
    finally:
        if is_root:
            os.seteuid(0)
        (root / "shut").chmod(0o700)
        shutil.rmtree(root)


class ScandirWith:
    """Stands in for os.scandir: `change` gets the list of entries and returns another one."""

    def __init__(self, change, real=os.scandir):
        self.change, self.real = change, real

    @contextlib.contextmanager
    def __call__(self, path="."):
        with self.real(path) as entries:
            yield iter(self.change(list(entries)))


def change_listings(monkeypatch, change):
    """Let `change` make another list of what each folder gives: of entries by os.scandir, of names by os.listdir."""
    real = os.listdir
    monkeypatch.setattr(os, "scandir", ScandirWith(change))
    monkeypatch.setattr(os, "listdir", lambda path=".": change(real(path)))


def refusing(real, *refused, error=DENIED):
    """Return `real`, a function of a path, that raises for paths that end in one of `refused`."""

    def call(path, *arguments, **options):
        if os.fsdecode(path).endswith(refused):
            raise error
        return real(path, *arguments, **options)

    return call


def content(size, salt=0):
    return (hashlib.sha256(str(salt).encode()).digest() * (size // 32 + 1))[:size]


def xxh3(data):
    return xxhash.xxh3_128_hexdigest(data)
