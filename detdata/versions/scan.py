"""Makes manifests: lists what there is, takes from the cache what is known, hashes the rest."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TypeAlias

from detdata.algorithms import check_algorithm
from detdata.checks import as_int, brief
from detdata.errors import ArgumentTypeError, ArgumentValueError
from detdata.versions.cache import DigestCache
from detdata.versions.columns import encode_paths, listing_digest
from detdata.versions.errors import DatasetError
from detdata.versions.ignore import IGNORE_FILE, Symlinks, filter_for, keeps_path, read_ignore
from detdata.versions.jobs import Way, digest_all, digest_urls
from detdata.versions.manifest import CONTENTS, Manifest
from detdata.versions.means import Means, Ways
from detdata.versions.meter import Meter
from detdata.versions.names import printable, to_system
from detdata.versions.patterns import MAGIC, parse_glob, unescape_glob
from detdata.versions.pieces import check_piece_size
from detdata.versions.remote import RemoteListing, is_url, list_remote, read_remote_ignore, select_remote
from detdata.versions.stats import Stats
from detdata.versions.unfinished import Unfinished
from detdata.versions.walk import Listing, Rules, Selection, list_files, select

Paths: TypeAlias = str | PathLike[str] | Sequence[str | PathLike[str]]

_SAVE_EVERY = 30.0  # seconds after which digests made so far are put into the cache, against a SIGKILL
_ALWAYS = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Scan:
    """A manifest and how it came about.

    read_files, trusted_files: paths of files read, and of those taken from the cache. notes: for people. root: where
    the data is.
    """

    manifest: Manifest
    read_files: tuple[str, ...]
    trusted_files: tuple[str, ...]
    notes: tuple[str, ...]
    root: str

    @property
    def read(self) -> int:
        """How many files were read."""
        return len(self.read_files)

    @property
    def trusted(self) -> int:
        """How many files were taken from the cache."""
        return len(self.trusted_files)


def scan_paths(
    paths: Paths,
    algorithm: str = "xxh3-128",
    *,
    means: Means,
    content: str = "bytes",
    piece_size: int = 0,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    symlinks: Symlinks = "follow",
    part: tuple[int, int] | None = None,
) -> Scan:
    """Do what `hash_dataset` does, and say how it went."""
    check_algorithm(algorithm)
    if content not in CONTENTS:
        raise ArgumentValueError(f"content must be one of {', '.join(CONTENTS)}; got {content!r}")
    rules = Rules(include=_patterns(include, "include"), exclude=_patterns(exclude, "exclude"), symlinks=symlinks)
    ways = Ways(algorithm, content, check_piece_size(piece_size), rules)
    share = _part(part)
    _check_rows(ways, share)
    urls = _urls(paths)
    if urls:
        if share is not None:
            raise ArgumentValueError("part: files behind a URL are hashed as one; give executor= to share the work")
        url, chosen_there = (urls[0], (".",)) if len(urls) == 1 else select_remote(urls)
        ways = replace(ways, rules=replace(rules, ignore=read_remote_ignore(url)))
        return scan_url(url, ways, means, chosen_there, whole=True)
    chosen = select(paths)
    ways = replace(ways, rules=replace(rules, ignore=read_ignore(chosen.root)))
    listing = list_files(chosen.root, chosen.select, ways.rules, exclude_files=means.exclude_files)
    if not listing.paths:
        raise ArgumentValueError(f"no files under {chosen.root} ({', '.join(chosen.select)}): the dataset is empty")
    listing = replace(listing, notes=(*listing.notes, *_left_out(chosen, ways.rules)))
    return scan_listing(chosen, listing, ways, means, part=share)


def scan_listing(
    chosen: Selection,
    listing: Listing,
    ways: Ways,
    means: Means,
    *,
    part: tuple[int, int] | None = None,
    stop: int | None = None,
) -> Scan:
    """Hash what is listed. part: (i, n), every n-th file. stop: so many first rows get a version of their own."""
    root = str(chosen.root)
    if ways.content == "rows":
        _check_rows(ways, part)
        return _scan_rows(chosen, listing, ways, means, stop)
    first, step = part or (1, 1)
    paths, stats, kinds = listing.paths[first - 1 :: step], listing.stats, listing.kinds
    if step > 1:
        stats = stats.take(range(first - 1, len(stats), step))
    run = _Run(chosen, paths, stats, ways, means, part)
    hexes = run.hash()
    manifest = Manifest.build(
        paths,
        run.sizes,
        hexes,
        kinds[first - 1 :: step],
        algorithm=ways.algorithm,
        piece_size=ways.piece_size,
        rules=ways.rules,
        select=chosen.select,
        part=None if part is None else (*part, listing_digest(encode_paths(listing.paths), listing.stats.sizes())),
    )
    return _scan(manifest, run.todo, listing.notes, root)


def _scan(manifest: Manifest, read: Sequence[int], notes: tuple[str, ...], root: str) -> Scan:
    """Return the scan in which the files of the indexes `read` were read, and the others trusted."""
    paths = manifest.paths
    if len(read) == len(paths):  # the tuple that is there, not another one
        return Scan(manifest, paths, (), notes, root)
    if not read:
        return Scan(manifest, (), paths, notes, root)
    those = set(read)
    trusted = tuple(path for i, path in enumerate(paths) if i not in those)
    return Scan(manifest, tuple(paths[i] for i in sorted(those)), trusted, notes, root)


class _Run:
    """One hashing of a list of files, with cache and progress."""

    def __init__(
        self,
        chosen: Selection,
        paths: list[str],
        stats: Stats,
        ways: Ways,
        means: Means,
        part: tuple[int, int] | None,
    ) -> None:
        root = str(chosen.root)
        self.way = Way(root, ways.algorithm, ways.piece_size, ways.rules.symlinks)
        self.paths, self.stats, self.means = paths, stats, means
        self.sizes = stats.sizes()
        self.cache: DigestCache | None = None
        self.unfinished: Unfinished | None = None
        self.hexes: list[str | None] = [None] * len(paths)
        if means.cache is not None:
            key = (os.path.realpath(root), *chosen.select, repr(ways.rules), str(ways.piece_size), sys.platform)
            # Each part is remembered apart: a file is replaced as a whole, and one part knows nothing of the others.
            self.cache = DigestCache.of(means.cache, (*key, *map(str, part or ())), ways.algorithm)
            self.unfinished = Unfinished(Path(means.cache), ways.algorithm, ways.piece_size, means.quick)
            if means.quick:
                self.hexes = self.cache.look_up(paths, stats)
        self.todo = [i for i, hex in enumerate(self.hexes) if hex is None]
        self.trusted = len(paths) - len(self.todo)
        now = time.time_ns()  # before the first of them is read: the safe side
        self.read_at = [now if hex is None else _ALWAYS for hex in self.hexes]
        self.saved_at = time.monotonic()
        self.meter = Meter(means, len(paths), sum(self.sizes), self.trusted)
        self.meter.bytes = self.meter.total_bytes - sum(self.sizes[i] for i in self.todo)

    def hash(self) -> list[str]:
        self.meter.add(0)
        if self.todo:
            self.stats.settle()
        try:
            digest_all(
                self.way,
                self.paths,
                self.stats,
                self.todo,
                self._done,
                executor=self.means.executor,
                workers=self.means.workers,
                on_bytes=None if self.means.progress is None else self.meter.add,
                unfinished=self.unfinished,
            )
        finally:
            if self.todo:
                self._save()
        self.meter.add(0)
        return self.hexes  # type: ignore[return-value]  # none is missing any more

    def _done(self, digests: Sequence[tuple[int, str]]) -> None:
        for i, hex in digests:
            self.hexes[i] = hex
        self.meter.files += len(digests)
        if time.monotonic() - self.saved_at > _SAVE_EVERY:
            self._save()

    def _save(self) -> None:
        if self.cache is not None:
            hexes, read_at = self.hexes, self.read_at
            if None in hexes:  # of a run that was stopped, what it did not come to stays remembered as it was
                read_at = [_ALWAYS if hex is None else at for hex, at in zip(hexes, read_at, strict=True)]
                known = self.cache.look_up(self.paths, self.stats)
                hexes = [hex or old for hex, old in zip(hexes, known, strict=True)]
            self.cache.remember(self.paths, self.stats, hexes, read_at)
        if self.unfinished is not None:
            self.unfinished.sweep()  # only now: a file's digest is remembered before its pieces are forgotten
        self.saved_at = time.monotonic()


def _scan_rows(chosen: Selection, listing: Listing, ways: Ways, means: Means, stop: int | None) -> Scan:
    from detdata.versions.tables import hash_tables  # with pyarrow and its kin: not for those who hash bytes

    version, trusted = hash_tables(chosen, listing, ways, means, stop=stop)
    manifest = Manifest.build(
        listing.paths,
        [rows for _, rows in version.files],
        [""] * len(listing.paths),
        algorithm=ways.algorithm,
        content="rows",
        rules=ways.rules,
        select=chosen.select,
        rows=version,
    )
    return _scan(manifest, () if trusted else range(len(manifest)), listing.notes, str(chosen.root))


def scan_url(url: str, ways: Ways, means: Means, chosen: tuple[str, ...] = (".",), *, whole: bool = False) -> Scan:
    """Hash what lies behind a URL, or of it what `chosen` selects (as in a manifest).

    whole: whether each choice must select something.
    Nothing of it is remembered: a store's own tags are no proof of content.
    """
    if ways.content == "rows":
        raise ArgumentValueError(
            f"content='rows' needs files of this machine, got {url}; copy them, or hash their bytes"
        )
    listing = list_remote(url, ways.rules)
    if chosen != (".",):
        listing = _selected(listing, chosen, whole=whole)
    elif not listing.paths:
        raise ArgumentValueError(f"no files under {url}: the dataset is empty")
    sizes = listing.sizes
    hexes: list[str] = [""] * len(sizes)
    meter = Meter(means, len(sizes), sum(sizes), 0)

    def done(digests: Sequence[tuple[int, str]]) -> None:
        for i, hex in digests:
            hexes[i] = hex
        meter.files += len(digests)

    way = Way(listing.root, ways.algorithm, ways.piece_size, ways.rules.symlinks)
    digest_urls(way, listing.paths, sizes, done, executor=means.executor, workers=means.workers, on_bytes=meter.add)
    manifest = Manifest.build(
        listing.paths,
        sizes,
        hexes,
        algorithm=ways.algorithm,
        piece_size=ways.piece_size,
        rules=ways.rules,
        select=listing.select,
    )
    return _scan(manifest, range(len(manifest)), listing.notes, listing.root)


def _selected(listing: RemoteListing, chosen: tuple[str, ...], *, whole: bool) -> RemoteListing:
    """Return of a listing what paths and globs select; a path that is there is never read as a glob."""
    wanted: set[str] = set()
    for choice in chosen:
        if choice == ".":
            return replace(listing, select=chosen)
        found = {path for path in listing.paths if path == choice or path.startswith(f"{choice}/")}
        glob = parse_glob(choice) if not found and MAGIC.search(choice) else None
        if glob is not None:
            found = {path for path in listing.paths if any(glob.selects(start) for start in _starts(path))}
        if whole and not found:
            raise DatasetError(f"{listing.root.rstrip('/')}/{choice}", "matches nothing")
        wanted |= found
    keep = [i for i, path in enumerate(listing.paths) if path in wanted]
    return replace(
        listing,
        select=chosen,
        paths=[listing.paths[i] for i in keep],
        sizes=[listing.sizes[i] for i in keep],
        tags=[listing.tags[i] for i in keep],
    )


def _starts(path: str) -> Iterator[str]:
    """Yield the folders on the way to a file, and the file: a glob may select either."""
    at = path.find("/")
    while at >= 0:
        yield path[:at]
        at = path.find("/", at + 1)
    yield path


def _check_rows(ways: Ways, part: tuple[int, int] | None) -> None:
    """Raise ValueError for what cannot go together with rows."""
    if ways.content != "rows":
        return
    if part or ways.piece_size:
        raise ArgumentValueError("content='rows' counts rows over all files in order: it takes no part or piece_size")
    if ways.rules.symlinks == "record":
        raise ArgumentValueError(
            "symlinks='record' takes a link's own text, which has no rows: with content='rows' use symlinks='follow' "
            "(the tables that links lead to count) or 'refuse'"
        )


def _urls(paths: Paths) -> list[str]:
    """The URLs that are asked for."""
    asked = list(paths) if isinstance(paths, (list, tuple)) else [paths]
    urls = [str(path) for path in asked if is_url(path)]
    if urls and len(urls) < len(asked):
        raise ArgumentValueError(
            f"paths: {printable(urls[0])} is a URL, and others of the {len(asked)} paths are not; a dataset has one "
            "root, so hash them one by one"
        )
    return urls


def _left_out(chosen: Selection, rules: Rules) -> list[str]:
    """A line for people about each path that was named and doesn't count: a glob's files may be left out in silence."""
    ignored = filter_for(Rules(ignore=rules.ignore))
    if ignored is None:
        return []
    paths = (unescape_glob(path) if MAGIC.search(path) else path for path in chosen.select if path != ".")
    named = [(path, chosen.root / to_system(path)) for path in paths if path is not None]
    return [
        f"{printable(path)} was asked for by name, and {IGNORE_FILE} leaves it out"
        for path, full in named
        if full.exists() and not keeps_path(ignored, path, is_folder=full.is_dir())
    ]


def _patterns(value: Sequence[str], name: str) -> tuple[str, ...]:
    if isinstance(value, str):
        raise ArgumentTypeError(f"{name} must be a list of patterns, got {value!r}; write [{value!r}]")
    if not isinstance(value, (list, tuple)) or not all(isinstance(pattern, str) for pattern in value):
        raise ArgumentTypeError(
            f"{name} must be a list of gitignore patterns such as ['*.tmp'], () for none; "
            f"got {brief(value)} of type {type(value).__name__}"
        )
    return tuple(value)


def _part(part: tuple[int, int] | None) -> tuple[int, int] | None:
    if part is None:
        return None
    if not isinstance(part, tuple) or len(part) != 2:
        raise ArgumentTypeError(f"part must be (i, n), as in (1, 4) for the first of four; got {part!r}")
    n = as_int(part[1], "part[1]", low=1)
    return as_int(part[0], "part[0]", low=1, high=n), n
