"""Walks a tree of files: finds all that count, with their stat values, and everything that is in the way.

Effects and speed are here, choices are in the rules. One directory entry costs one system call. Nothing is left out in
silence: what cannot be listed is a trouble, and the caller raises it.
"""

# One path object for each file would cost more than its system call.
# ruff: noqa: PTH100, PTH114, PTH116, PTH120, PTH208

from __future__ import annotations

import errno
import os
import stat
from array import array
from collections.abc import Callable, Iterable
from itertools import chain

from detdata.versions.files import as_int64
from detdata.versions.ignore import IGNORE_FILE, Rules, filter_for
from detdata.versions.names import SYSTEM_IS_UTF8, from_system, to_system
from detdata.versions.own_files import HEAD_BYTES, OWN_ENDINGS, is_own
from detdata.versions.patterns import MAGIC, Glob, parse_glob
from detdata.versions.stats import values_of

_WINDOWS = os.name == "nt"  # where a directory entry knows neither device nor inode
# A way to a folder's files that doesn't begin at / for each of them; O_DIRECTORY: a pipe in its place isn't opened.
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
_BY_DESCRIPTOR = os.stat in os.supports_dir_fd and os.listdir in os.supports_fd and hasattr(os, "O_DIRECTORY")
_NOT_THERE = {errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EINVAL}
_KINDS = (
    (stat.S_ISFIFO, "a pipe (FIFO)"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
)


class Walker:
    """Collects what lies below `root`, in no particular order, and some paths twice if they are asked for twice.

    paths: relative. rows: dev, inode, size, mtime_ns, ctime_ns of each. links: indexes of recorded links.
    troubles: (relative path, reason) of all that is in the way.
    """

    def __init__(self, root: str, rules: Rules, exclude_files: Iterable[str] = ()) -> None:
        self.paths: list[str] = []
        self.rows = array("q")
        self.links: set[int] = set()
        self.troubles: list[tuple[str, str]] = []
        self._root = root
        self._symlinks = rules.symlinks
        self._filter = filter_for(rules)
        self._excluded: dict[str, list[os.stat_result]] = {}
        for file in exclude_files:
            folder, name = os.path.split(os.path.abspath(file))
            try:
                self._excluded.setdefault(from_system(name), []).append(os.stat(folder))
            except OSError:
                continue  # nothing of the tree lies in a folder that isn't there
        self._odd = (IGNORE_FILE, *OWN_ENDINGS, *self._excluded)  # how a path ends that may be no data

    def take(self, choice: str) -> None:
        """Collect what `choice` selects: `.`, a path or a glob; of what isn't there, nothing."""
        if choice == ".":
            self._walk([("", None)])
        elif self._look(choice, os.lstat, quietly=MAGIC.search(choice) is not None) is not None:
            if self._can_reach(choice):
                self._take_one(choice)
        elif MAGIC.search(choice):
            glob, parts = parse_glob(choice), choice.split("/")
            fixed = next(i for i, part in enumerate(parts) if MAGIC.search(part))
            top = "/".join(parts[:fixed])
            found = self._look(top, os.stat)
            if glob and found and stat.S_ISDIR(found.st_mode) and self._can_reach(f"{top}/x" if top else "x"):
                self._walk([(top, glob)])

    def _look(self, path: str, how: Callable[[str], os.stat_result], *, quietly: bool = False) -> os.stat_result | None:
        """Return the stat values of `path`, None where nothing is; where nobody can know, that is a trouble."""
        try:
            return how(self.full(path))
        except OSError as error:
            if error.errno not in _NOT_THERE and not quietly:
                self._failed(path, error)
            return None

    def full(self, path: str) -> str:
        """Return the path that the system's calls take."""
        return f"{self._root}/{to_system(path)}" if path else self._root or "/"

    def _can_reach(self, path: str) -> bool:
        """Return whether the rules let one come to `path` through its parents."""
        parts = path.split("/")
        for depth in range(1, len(parts)):
            folder = "/".join(parts[:depth])
            if not self._enters(folder):
                return False
            if self._symlinks != "follow" and os.path.islink(self.full(folder)):
                self._trouble(folder, "is a symbolic link on the way to what was asked for; give the path it leads to")
                return False
        return True

    def _take_one(self, path: str) -> None:
        stack: list[tuple[str, Glob | None]] = []
        try:
            found = os.lstat(self.full(path))
            if stat.S_ISDIR(found.st_mode):
                stack = [(path, None)] if self._enters(path) else []
            elif not stat.S_ISREG(found.st_mode):
                self._take_odd(path, found, None, stack)
            elif self._keeps(path):
                self._add(path, found)
        except OSError as error:
            self._failed(path, error)
        self._walk(stack)

    def _walk(self, stack: list[tuple[str, Glob | None]]) -> None:
        """Collect what the folders of `stack` hold: all of it, or what a glob selects."""
        while stack:
            folder, glob = stack.pop()
            if glob is None and self._filter is None and _BY_DESCRIPTOR:
                try:
                    self._walk_all(folder, stack)
                except OSError as error:
                    self._failed(folder, error)
                continue
            prefix = f"{folder}/" if folder else ""
            path = folder
            try:
                with os.scandir(self.full(folder)) as entries:
                    for entry in entries:
                        path = prefix + from_system(entry.name)
                        try:
                            # A folder that a glob selects counts with all below it, as it does in a shell.
                            inside = None if glob is None or glob.selects(path) else glob
                            if entry.is_file(follow_symlinks=False):
                                if inside is None and (self._filter is None or self._filter.keeps(path)):
                                    self._add(path, _stat(entry))
                            elif not entry.is_dir(follow_symlinks=False):
                                self._take_odd(path, _stat(entry), inside, stack)
                            elif (inside is None or inside.enters(path)) and self._enters(path):
                                stack.append((path, inside))
                        except OSError as error:
                            self._failed(path, error)
            except OSError as error:
                self._failed(folder, error)

    def _walk_all(self, folder: str, stack: list[tuple[str, Glob | None]]) -> None:
        """Collect all that a folder holds: as `_walk` does, with no call more for a file than there must be."""
        prefix = f"{folder}/" if folder else ""
        descriptor = os.open(self.full(folder), _FOLDER)
        try:
            names = os.listdir(descriptor)
            names.sort()  # so that the whole list is all but sorted
            text = "\0".join((*names, ""))
            odd = self._odd if any(f"{end}\0" in text for end in self._odd) else ()
            folders: list[tuple[str, Glob | None]] = []
            paths, values = list[str](), list[tuple[int, ...]]()
            for name in names:
                path = prefix + (name if SYSTEM_IS_UTF8 else from_system(name))
                try:
                    found = os.lstat(name, dir_fd=descriptor)
                    if stat.S_ISREG(found.st_mode):
                        if odd and path.endswith(odd):
                            self._add(path, found)
                        else:
                            paths.append(path)
                            values.append(values_of(found))
                    elif stat.S_ISDIR(found.st_mode):
                        folders.append((path, None))
                    else:
                        self._take_odd(path, found, None, folders)
                except OSError as error:
                    self._failed(path, error)
        finally:
            os.close(descriptor)
        self._put_all(paths, values)
        stack.extend(reversed(folders))

    def _take_odd(
        self, path: str, found: os.stat_result, inside: Glob | None, stack: list[tuple[str, Glob | None]]
    ) -> None:
        """Collect a link, or refuse what is neither file nor folder. `found` is its own, not what it leads to."""
        wanted = inside is None and self._keeps(path)
        if not stat.S_ISLNK(found.st_mode):
            if wanted:
                self._refuse_special(path, found)
            return
        if self._symlinks == "record":
            if wanted:
                self.links.add(len(self.paths))
                self._add(path, found)
            return
        try:
            target = os.stat(self.full(path))
        except OSError as error:
            if wanted:
                self._trouble(path, f"is a symbolic link that leads nowhere ({error.strerror}); {_LINK_WAYS}")
            return
        is_folder = stat.S_ISDIR(target.st_mode)
        if not ((inside is None or inside.enters(path)) and self._enters(path) if is_folder else wanted):
            return
        if self._symlinks == "refuse":
            self._trouble(path, f"is a symbolic link, and symlinks='refuse'; {_LINK_WAYS}")
        elif is_folder and self._is_above(target, path):
            self._trouble(path, f"is a symbolic link to a folder that it lies in itself, a loop; {_LINK_WAYS}")
        elif is_folder:
            stack.append((path, inside))
        elif stat.S_ISREG(target.st_mode):
            self._add(path, target)
        else:
            self._refuse_special(path, target)

    def _is_above(self, target: os.stat_result, link: str) -> bool:
        """Return whether the folder `target` holds the link: by the way one came to it, or by where it really is."""
        parts = link.split("/")[:-1]
        above = [self.full("/".join(parts[:depth])) for depth in range(len(parts) + 1)]
        real = os.path.realpath(above[-1])
        while (parent := os.path.dirname(real)) != real:
            above.append(real)
            real = parent
        return any(os.path.samestat(target, os.stat(folder)) for folder in (*above, real))

    def _add(self, path: str, found: os.stat_result) -> None:
        if path == IGNORE_FILE or (path.endswith(OWN_ENDINGS) and self._is_own(path, found)):
            return
        if self._excluded and self._is_excluded(path):
            return
        self._put(path, found)

    def _put(self, path: str, found: os.stat_result) -> None:
        self._put_all([path], [values_of(found)])

    def _put_all(self, paths: list[str], values: list[tuple[int, ...]]) -> None:
        try:
            rows = array("q", chain.from_iterable(values))
        except OverflowError:  # inodes of some file systems have all 64 bits and more, and dates may lie far ahead
            rows = array("q", map(as_int64, chain.from_iterable(values)))
        self.rows += rows
        self.paths += paths

    def _is_excluded(self, path: str) -> bool:
        folders = self._excluded.get(path.rpartition("/")[2], ())
        return any(os.path.samestat(os.stat(os.path.dirname(self.full(path))), folder) for folder in folders)

    def _is_own(self, path: str, found: os.stat_result) -> bool:
        if not stat.S_ISREG(found.st_mode):
            return False
        try:
            descriptor = os.open(self.full(path), os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
            try:
                return is_own(path, os.read(descriptor, HEAD_BYTES))
            finally:
                os.close(descriptor)
        except OSError:
            return False  # it counts, and reading it will tell

    def _enters(self, folder: str) -> bool:
        return self._filter is None or self._filter.enters(folder)

    def _keeps(self, path: str) -> bool:
        return self._filter is None or self._filter.keeps(path)

    def _refuse_special(self, path: str, found: os.stat_result) -> None:
        kind = next((name for is_kind, name in _KINDS if is_kind(found.st_mode)), "no regular file")
        self._trouble(path, f"is {kind}, which has no content to hash; move it away, or exclude it by a pattern")

    def _failed(self, path: str, error: OSError) -> None:
        if isinstance(error, FileNotFoundError):
            self._trouble(path, "vanished while the folder was listed; go on when nothing changes the data")
        else:
            why = error.strerror or type(error).__name__
            self._trouble(path, f"cannot be listed ({why}); see to that, or exclude it by a pattern")

    def _trouble(self, path: str, reason: str) -> None:
        self.troubles.append((path, reason))


_LINK_WAYS = "mend or remove it, exclude it by a pattern, or choose another way with symlinks="


def _stat(entry: os.DirEntry[str]) -> os.stat_result:
    return os.lstat(entry.path) if _WINDOWS else entry.stat(follow_symlinks=False)


def any_match(folder: str, glob: Glob) -> bool:
    """Return whether anything below `folder` matches; what cannot be listed doesn't."""
    seen: set[tuple[int, int]] = set()
    stack = [""]
    while stack:
        prefix = stack.pop()
        full = f"{folder}/{to_system(prefix)}"
        try:
            found = os.stat(full)
            if (found.st_dev, found.st_ino) in seen:
                continue
            seen.add((found.st_dev, found.st_ino))
            with os.scandir(full) as entries:
                for entry in entries:
                    path = prefix + from_system(entry.name)
                    if glob.selects(path):
                        return True
                    if entry.is_dir() and glob.enters(path):
                        stack.append(f"{path}/")
        except OSError:
            continue
    return False
