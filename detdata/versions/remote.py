"""Datasets behind a URL that fsspec knows (`s3://`, `memory://`, …): the same names and digests as for local files.

Needs detdata[remote] and fsspec's package for the protocol. An object has no inode and often no mtime; what tells that
it is the same is its size and whatever tag the store keeps (etag, generation, version, mtime), compared before and
after reading. Retries and credentials are fsspec's business.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from detdata.algorithms import check_algorithm, new_hasher
from detdata.checks import as_int
from detdata.errors import ArgumentValueError, MissingExtra
from detdata.versions.errors import DatasetError
from detdata.versions.ignore import IGNORE_FILE, Rules, filter_for, keeps_path, parse_ignore
from detdata.versions.names import check_relative, clash_notes, path_key, printable, sort_order
from detdata.versions.own_files import HEAD_BYTES, OWN_ENDINGS, is_own
from detdata.versions.patterns import MAGIC, Glob, escape_glob, parse_glob
from detdata.versions.pieces import Joiner, piece_digests
from detdata.versions.remote_tree import StoreErrors, StoreFile, refuse_odd, walk_store

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]+(::[A-Za-z][A-Za-z0-9+.\-]+)*(://|::)")  # two letters: `C:` is a drive
_BLOCK = 8 << 20  # bytes asked for at once: a request costs tens of milliseconds
_IGNORE_BYTES = (1 << 20) + 1
# What stores call the mark of an object's content, and its time.
_TAGS = (
    "ETag", "etag", "e_tag", "md5Hash", "md5", "content_md5", "checksum", "generation", "VersionId", "version_id",
    "LastModified", "Last-Modified", "last_modified", "updated", "mtime", "modified", "created", "ino", "blob_id",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RemoteListing:
    """All files of a remote dataset in byte order of their paths.

    root: the URL that paths are relative to. select: as in a `Selection`. paths: n of them. sizes: bytes of each.
    tags: what the store says of each file's content and time, as text; equal tags and sizes mean the same file.
    """

    root: str
    select: tuple[str, ...]
    paths: list[str]
    sizes: list[int]
    tags: list[str]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.paths)


class RemoteDigest(NamedTuple):
    """size: bytes read. hex: their digest. tag: what the store said of the file before and after."""

    size: int
    hex: str
    tag: str


def is_url(path: object) -> bool:
    """Return whether `path` is a URL for fsspec and no path of this machine.

    >>> is_url("s3://bucket/data"), is_url("C:/data"), is_url("data/train")
    (True, False, False)
    """
    return isinstance(path, str) and _URL.match(path) is not None


def list_remote(url: str, rules: Rules) -> RemoteListing:
    """Return all files below `url` that `rules` make data of; a folder, one file, or a glob as in `select`.

    Raises DatasetError if there is nothing at `url`, for folders that cannot be listed, links, names that cannot be in
    a manifest and whatever the store reports; MissingExtra (an ImportError) without fsspec or its package for the
    protocol. Cost: see `walk_store`.

    >>> list_remote("memory://no-such-folder", Rules())
    Traceback (most recent call last):
    detdata.versions.errors.DatasetError: memory://no-such-folder: there is no such file or folder
    """
    system, top, choice = resolve(url)
    glob = parse_glob(choice)
    rules_filter = filter_for(rules)

    def enters(folder: str) -> bool:
        if rules_filter is not None and not rules_filter.enters(folder):
            return False
        return choice == "." or (glob is not None and (glob.enters(folder) or _selects(glob, folder)))

    with StoreErrors(url):
        single = choice != "." and system.isfile(_join(top, choice))
        one = [StoreFile(choice, _join(top, choice), system.info(_join(top, choice)))] if single else []
    protocols = (system.protocol,) if isinstance(system.protocol, str) else tuple(system.protocol)
    paths, sizes, tags = [], [], []
    for file in one or walk_store(system, url, top, enters):
        path = file.path
        wanted = single or choice == "." or (glob is not None and _selects(glob, path))
        if path == IGNORE_FILE or not wanted or not keeps_path(rules_filter, path):
            continue
        refuse_odd(file, url, protocols)
        if path.endswith(OWN_ENDINGS) and is_own(path, _head(system, file.key)):
            continue
        paths.append(path)
        sizes.append(size_of(file.info))
        tags.append(tag_of(file.info))
    order = sort_order(paths)
    paths = [paths[i] for i in order]
    root = system.unstrip_protocol(top)
    if choice != "." and not paths and not single:
        raise DatasetError(url, "matches nothing; `*` stays within a name, `**` stands for any number of folders")
    return RemoteListing(
        root, (choice,), paths, [sizes[i] for i in order], [tags[i] for i in order], clash_notes(paths)
    )


def select_remote(urls: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Return the URL of the deepest folder that holds all that is asked for, and what of it is (as in a manifest).

    urls: folders, files and globs of one store. Raises as `resolve` does; ValueError for URLs of several stores.
    Cost: a few requests for each.

    >>> import fsspec
    >>> fsspec.filesystem("memory").pipe({"/some/a/x": b"", "/some/b/y": b""})
    >>> select_remote(["memory://some/a", "memory://some/b/y"])
    ('memory:///some', ('a', 'b/y'))
    """
    found = [resolve(url) for url in urls]
    system = found[0][0]
    tops = [top.rstrip("/").split("/") for _, top, _ in found]
    depth = min(map(len, tops))
    shared = next((i for i in range(depth) if len({top[i] for top in tops}) > 1), depth)
    for url, (other, _, _) in zip(urls, found, strict=True):
        if other is not system or not shared:
            raise ArgumentValueError(
                f"paths: {printable(urls[0])} and {printable(url)} lie in different stores; a dataset has one root, so "
                "hash them one by one"
            )
    chosen = []
    for top, (_, folder, choice) in zip(tops, found, strict=True):
        way = "/".join(top[shared:])
        if choice == ".":
            chosen.append(way or choice)
        elif MAGIC.search(choice) and not system.exists(_join(folder, choice)):
            chosen.append(f"{escape_glob(way)}/{choice}" if way else choice)
        else:
            chosen.append(f"{way}/{choice}" if way else choice)
    select = (".",) if "." in chosen else tuple(sorted(set(chosen), key=path_key))
    return system.unstrip_protocol("/".join(tops[0][:shared])), select


def digest_remote(
    url: str, path: str, algorithm: str, piece_size: int = 0, on_bytes: Callable[[int], None] | None = None
) -> RemoteDigest:
    """Return the digest of one file below the URL `url`: that which `digest_file` gives for the same bytes.

    url: the `root` of a listing. piece_size and on_bytes as for `digest_file`. Picklable by its name, so an executor
    can run it elsewhere. Raises DatasetError if the file is gone, cannot be read or changes meanwhile. Memory: two
    blocks of 8 MiB, and the digests of the pieces.

    >>> import fsspec
    >>> fsspec.filesystem("memory").pipe("/example/a", b"a")
    >>> digest_remote("memory://example", "a", "xxh3-128").hex
    'a96faf705af16834e6c632b61e964e1f'
    """
    check_algorithm(algorithm)
    step = as_int(piece_size, "piece_size")
    check_relative(path)
    system, top = connect(url)
    key = _join(top, path)
    name = f"{url.rstrip('/')}/{path}"
    count = 0

    def counted(size: int) -> None:
        nonlocal count
        count += size
        if on_bytes is not None:
            on_bytes(size)

    before = _info(system, key, name)
    blocks = _blocks(system, key, name, counted)
    if step:
        digests = b"".join(piece_digests(blocks, algorithm, step))
    else:
        hasher = new_hasher(algorithm)
        for block in blocks:
            hasher.update(block)
    after = _info(system, key, name)
    if before != after or before[0] not in {count, -1}:
        size = f"{before[0]} bytes before, {count} read, {after[0]} after"
        raise DatasetError(name, f"changed while it was read ({size}); go on when nothing writes to it")
    if step:
        joiner = Joiner(algorithm, step, count)
        joiner.add(digests)
    return RemoteDigest(count, joiner.hex() if step else hasher.digest().hex(), before[1])


def _blocks(system: Any, key: str, name: str, on_bytes: Callable[[int], None]) -> Iterator[bytes]:
    with StoreErrors(name):
        file = system.open(key, "rb", block_size=_BLOCK)
    with file:
        while True:
            with StoreErrors(name):
                data: bytes = file.read(_BLOCK)
            if not data:
                return
            yield data
            on_bytes(len(data))


def read_remote_ignore(url: str) -> tuple[str, ...]:
    """Return the patterns of `.detdataignore` at a URL, as `read_ignore` does for a folder; () where there is none.

    >>> read_remote_ignore("memory://no-such-folder")
    ()
    """
    try:
        system, top, _ = resolve(url)
    except DatasetError:
        return ()  # listing it will tell
    name = f"{system.unstrip_protocol(top)}/{IGNORE_FILE}"
    with StoreErrors(name):
        try:
            system.info(_join(top, IGNORE_FILE))  # `isfile` would say no where the answer is that nobody may know
        except FileNotFoundError:
            return ()
        with system.open(_join(top, IGNORE_FILE), "rb") as file:
            return parse_ignore(file.read(_IGNORE_BYTES), name)


def connect(url: str) -> tuple[Any, str]:
    """Return fsspec's file system for a URL, and the path in it. After a fork it is another one, as it has to be.

    Raises MissingExtra (an ImportError), ValueError for a protocol that nobody knows.
    """
    try:
        import fsspec  # type: ignore[import-untyped]  # ships no annotations
    except ImportError as error:
        raise MissingExtra(f"{printable(url)} needs the package fsspec", "remote") from error
    try:
        system, path = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise MissingExtra(f"{printable(url)}: {error}; and fsspec itself", "remote") from error
    except ValueError as error:
        raise ArgumentValueError(f"{printable(url)}: {error}; fsspec lists the protocols it knows") from error
    return system, path


def resolve(url: str) -> tuple[Any, str, str]:
    """Return the file system, the folder in it that is the root, and what is chosen there: `.`, a name or a glob.

    Raises DatasetError for a path without a pattern that is not there.
    """
    system, path = connect(url)
    with StoreErrors(url):
        if system.isdir(path):
            return system, path, "."
        if system.exists(path):
            folder, _, name = path.rpartition("/")
            return system, folder, name
    if not MAGIC.search(path):
        with StoreErrors(url), suppress(FileNotFoundError):
            system.info(path)  # `exists` says no to whatever goes wrong
        raise DatasetError(url, "there is no such file or folder")
    parts = path.split("/")
    fixed = next(i for i, part in enumerate(parts) if MAGIC.search(part))
    return system, "/".join(parts[:fixed]), "/".join(parts[fixed:])


def _join(top: str, path: str) -> str:
    return f"{top.rstrip('/')}/{path}"


def _info(system: Any, key: str, name: str) -> tuple[int, str]:
    with StoreErrors(name):
        system.invalidate_cache(key)  # what a listing said some time ago is no witness
        info = system.info(key)
    return size_of(info), tag_of(info)


def size_of(info: dict[str, Any]) -> int:
    """Return the bytes of a file by what the store says of it, or -1 if it does not say."""
    size = info.get("size")
    return -1 if size is None else int(size)


def tag_of(info: dict[str, Any]) -> str:
    """Return all that a store says of a file's content and time, as text; "{}" if that is nothing."""
    return json.dumps({name: _tag_text(info[name]) for name in _TAGS if info.get(name) is not None}, sort_keys=True)


def _tag_text(value: object) -> str:
    if not isinstance(value, datetime):
        return str(value)
    # Some stores tell a time as seconds when they list, and as a date when asked for one file.
    return str((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp())


def _head(system: Any, key: str) -> bytes:
    with StoreErrors(key), system.open(key, "rb") as file:
        return bytes(file.read(HEAD_BYTES))


def _selects(glob: Glob, path: str) -> bool:
    parts = path.split("/")
    return any(glob.selects("/".join(parts[:depth])) for depth in range(1, len(parts) + 1))
