"""The manifest of a dataset: which files it consists of, and the one digest of them all.

Its columns are tuples, one item a file. An object for each file (`files`) is made only when somebody asks: a manifest
of a million files is loaded, compared and saved without.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from detdata.algorithms import ALGORITHMS, digest_size, join_digest
from detdata.checks import brief
from detdata.errors import ArgumentTypeError, UnknownFormat
from detdata.versions.columns import FILE, check_columns, digest_columns
from detdata.versions.diff import diff
from detdata.versions.ignore import Rules
from detdata.versions.manifest_file import parse, render
from detdata.versions.manifest_io import read_text, write_text
from detdata.versions.means import HashProgress, Means, check_path
from detdata.versions.names import check_relative, printable, sort_order
from detdata.versions.report import Report

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from detdata.rows import RowsVersion

Part: TypeAlias = tuple[int, int, str]  # (i, n, digest of the whole listing), i from 1

CONTENTS = ("bytes", "rows")
MAX_PIECE = 2**63 - 1
_LISTING = re.compile(r"[0-9a-f]{16,128}")


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file of a dataset. size: bytes (rows, where the content is rows). digest: hexadecimal. kind: file or link."""

    path: str
    size: int
    digest: str
    kind: str = FILE


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Manifest:
    """The version of a dataset. `hash_dataset` and `Manifest.load` make them; `Manifest.build` does from columns.

    digest: `"xxh3-128:<hex>"`, of the files' paths, kinds, sizes and digests; nothing else enters it. paths, sizes,
    hexes, kinds: one item a file, in byte order of the paths; `files` gives them as objects. algorithm, content,
    piece_size, rules, select: how the data was hashed, and what was asked for; select is relative to the root. rows:
    the version of the rows, where the content is rows. part: (i, n, digest of the listing) of the i-th of n parts, to
    be merged. path: the file it was loaded from, or None. Equal manifests have the same digest and columns.
    Raises UnknownFormat (a ValueError) for columns that are not sound. Some 1 µs and 300 bytes a file.

    >>> manifest = Manifest.build(["b", "a"], [3, 5], ["0" * 32, "1" * 32])
    >>> len(manifest), manifest.paths, manifest.digest
    (2, ('a', 'b'), 'xxh3-128:f03659491eed92a2cddc6ed6d85e69dc')
    """

    paths: tuple[str, ...]
    sizes: tuple[int, ...]
    hexes: tuple[str, ...]
    kinds: tuple[str, ...]
    algorithm: str = field(default="xxh3-128", kw_only=True)
    content: str = field(default="bytes", kw_only=True)
    piece_size: int = field(default=0, kw_only=True)
    rules: Rules = field(default_factory=Rules, kw_only=True)
    select: tuple[str, ...] = field(default=(".",), kw_only=True)
    rows: RowsVersion | None = field(default=None, kw_only=True)
    part: Part | None = field(default=None, kw_only=True)
    path: Path | None = field(default=None, kw_only=True)
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        _check_ways(self)
        length = 2 * digest_size(self.algorithm) if self.rows is None else 0
        columns = check_columns(self.paths, self.sizes, self.hexes, self.kinds, length)
        if self.rows is None:
            digest = digest_columns(self.algorithm, self.piece_size, columns)
        else:
            _check_rows(self, self.rows)
            digest = join_digest(self.algorithm, self.rows.digest)
        object.__setattr__(self, "digest", digest)

    @classmethod
    def build(
        cls,
        paths: Sequence[str],
        sizes: Sequence[int],
        hexes: Sequence[str],
        kinds: Sequence[str] | None = None,
        *,
        algorithm: str = "xxh3-128",
        content: str = "bytes",
        piece_size: int = 0,
        rules: Rules | None = None,
        select: Sequence[str] = (".",),
        rows: RowsVersion | None = None,
        part: Part | None = None,
    ) -> Manifest:
        """Return the manifest of files given in any order. kinds: all "file" by default. Raises UnknownFormat.

        >>> Manifest.build(["a"], [5], ["1" * 32]) == Manifest.build(["a"], [5], ["1" * 32], ["file"])
        True
        """
        if not isinstance(select, (list, tuple)):
            how = f"; write [{select!r}]" if isinstance(select, str) else ""
            raise ArgumentTypeError(f"select must be a list of paths, got {brief(select)}{how}")
        if not (rules is None or isinstance(rules, Rules)):
            raise ArgumentTypeError(f"rules must be detdata's own Rules or None, got {brief(rules)}")
        kinds = (FILE,) * len(paths) if kinds is None else kinds
        columns: list[tuple[Any, ...]] = [tuple(column) for column in (paths, sizes, hexes, kinds)]
        if len({len(column) for column in columns}) == 1 and all(type(path) is str for path in paths):
            with contextlib.suppress(UnicodeEncodeError):  # the constructor tells what is wrong
                order = sort_order(paths)
                if order != list(range(len(order))):
                    columns = [tuple([column[at] for at in order]) for column in columns]
        return cls(
            *columns,
            algorithm=algorithm,
            content=content,
            piece_size=piece_size,
            rules=Rules() if rules is None else rules,
            select=tuple(select),
            rows=rows,
            part=part,
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Manifest:
        """Read a manifest file, plain or gzip, wherever it comes from.

        Raises UnknownFormat (a ValueError) if it is no manifest, of another version, edited or torn; DatasetError (an
        OSError) if it cannot be read. Some 1.5 µs a file of the dataset.
        """
        check_path(path, "path", "of a manifest file such as 'data.lock.json'")
        source = os.fspath(path)
        return cls._parsed(read_text(source), source, Path(path))

    @classmethod
    def from_text(cls, text: str) -> Manifest:
        """Return the manifest that `text` is. Raises UnknownFormat.

        >>> manifest = Manifest.build(["a"], [5], ["1" * 32])
        >>> Manifest.from_text(manifest.to_text()) == manifest
        True
        """
        if not isinstance(text, str):
            raise ArgumentTypeError(
                f"text must be the text of a manifest, got {brief(text)} of type {type(text).__name__}; "
                "Manifest.load(path) reads a file"
            )
        return cls._parsed(text, "the text", None)

    @classmethod
    def _parsed(cls, text: str, source: str, path: Path | None) -> Manifest:
        try:
            record = parse(text)
            manifest = cls(
                *record.columns,
                algorithm=record.algorithm,
                content=record.content,
                piece_size=record.piece_size,
                rules=record.rules,
                select=record.select,
                rows=record.rows,
                part=record.part,
                path=path,
            )
            for name, said in record.totals.items():
                found = len(manifest) if name == "files" else getattr(manifest, name)
                if said != found:
                    told = printable(said) if name == "digest" else brief(said)
                    raise UnknownFormat(f"edited or torn: it says {name} {told}, and its entries make {found}")
        except UnknownFormat as error:
            raise UnknownFormat(f"{source}: {error}") from None
        return manifest

    def to_text(self) -> str:
        """Return the one text of this manifest: JSON with a line for each file. docs/spec.md, section 7."""
        return render(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the manifest to a file, which then is whole or as it was before; gzip if the name ends in `.gz`.

        It replaces whatever file was there.
        Raises DatasetError (an OSError) if it cannot be written.
        """
        check_path(path, "path", "of the file to write such as 'data.lock.json'")
        write_text(os.fspath(path), self.to_text())

    def diff(self, other: Manifest) -> Report:
        """Return what `other`, the newer version, has that this one has not, and the other way round.

        Raises ValueError if the two were not hashed in the same way.

        >>> old, new = Manifest.build(["a"], [5], ["1" * 32]), Manifest.build(["b"], [5], ["1" * 32])
        >>> old.diff(new).renamed
        (('a', 'b'),)
        """
        return diff(self, other)

    def verify(
        self,
        root: str | os.PathLike[str],
        *,
        quick: bool = False,
        cache: str | os.PathLike[str] | None = None,
        executor: Executor | None = None,
        progress: Callable[[HashProgress], None] | None = None,
        compare_to: str | os.PathLike[str] | None = None,
    ) -> Report:
        """Hash what lies under `root` now, in the way that is recorded here, and return what differs.

        root: the folder that was hashed, wherever it lies now, or an fsspec URL. Every byte is read, unless quick: then
        files whose device, inode, size, mtime and ctime are those of the last time are trusted, by the digests in the
        folder `cache` (by default the user's own). That doesn't see a change made with the clock moved, through a
        memory map or behind the file system's back; `report.trusted_files` names them. executor, progress: as for
        `hash_dataset`. compare_to: a good copy of the data, to say at which byte a changed file begins to differ, or
        which rows do.
        Where the content is rows, files that cannot be read as one table any more are differences, with the reason.
        Raises DatasetError (an OSError) for what cannot be listed or read; ValueError, TypeError.

        >>> import pathlib, tempfile
        >>> from detdata import hash_dataset
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "a").write_bytes(b"1")
        >>> manifest = hash_dataset(folder)
        >>> _ = (folder / "a").write_bytes(b"2")
        >>> [change.path for change in manifest.verify(folder).changed]
        ['a']
        """
        from detdata.versions.cache import default_folder
        from detdata.versions.verify import verify_manifest

        if not isinstance(quick, bool):  # "false" would trust what is to be read
            raise ArgumentTypeError(f"quick must be True or False; got {brief(quick)} of type {type(quick).__name__}")
        if quick and cache is None:
            cache = default_folder()
        means = Means(executor, cache, quick=quick, progress=progress)
        return verify_manifest(self, root, means, compare_to=compare_to)

    @property
    def files(self) -> tuple[FileEntry, ...]:
        """The files as objects, in byte order of their paths; made anew at each call."""
        return tuple(map(FileEntry, self.paths, self.sizes, self.hexes, self.kinds))

    @property
    def bytes(self) -> int:
        """The sum of the sizes: bytes, or rows where the content is rows."""
        return sum(self.sizes)

    def __len__(self) -> int:
        return len(self.paths)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Manifest):
            return NotImplemented
        return self.digest == other.digest and _columns(self) == _columns(other)

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        unit = "bytes" if self.content == "bytes" else "rows"
        return f"<Manifest of {len(self)} files, {self.bytes} {unit}, {self.digest}>"


def _columns(manifest: Manifest) -> tuple[tuple[object, ...], ...]:
    return manifest.paths, manifest.sizes, manifest.hexes, manifest.kinds


def _check_ways(manifest: Manifest) -> None:
    """Raise UnknownFormat unless this release can tell what the manifest's digests mean."""
    for name, known in (("algorithm", ALGORITHMS), ("content", CONTENTS)):
        value = getattr(manifest, name)
        if not isinstance(value, str) or value not in known:
            raise UnknownFormat(
                f"made with {name} {brief(value)}; this release has {', '.join(known)}: update detdata, or hash the "
                "data again. It says nothing about whether the data changed"
            )
    size = manifest.piece_size
    if type(size) is not int or not 0 <= size <= (MAX_PIECE if manifest.content == "bytes" else 0):
        raise UnknownFormat(f"piece_size must be a number of bytes, and 0 for rows; found {brief(size)}")
    if (manifest.rows is None) != (manifest.content == "bytes"):
        raise UnknownFormat("rows: a version of the rows comes with content 'rows', and only with it")
    if not manifest.select:
        raise UnknownFormat("select is empty: nothing was asked for")
    for path in manifest.select:
        if path != ".":
            check_relative(path)
    part = manifest.part
    if part is not None and not (
        len(part) == 3
        and (type(part[0]), type(part[1]), type(part[2])) == (int, int, str)
        and 1 <= part[0] <= part[1]
        and _LISTING.fullmatch(part[2])
    ):
        raise UnknownFormat(f"part must be (i, n, digest of the listing), i being 1 … n; found {brief(part)}")


def _check_rows(manifest: Manifest, rows: RowsVersion) -> None:
    if rows.algorithm != manifest.algorithm:
        raise UnknownFormat(f"the rows were hashed by {rows.algorithm}, not by {manifest.algorithm}")
    listed = dict(zip(manifest.paths, manifest.sizes, strict=True))
    if len(rows.files) != len(listed) or dict(rows.files) != listed:
        raise UnknownFormat("edited or torn: the rows are of other files, or of other numbers of rows, than listed")
