"""open_corpus: which files, of which format, and where their rows are."""

from __future__ import annotations

import glob
import os
from collections.abc import Container, Iterable, Sequence
from os import PathLike
from typing import Any, Literal, TypeAlias

import numpy as np

from detdata.checks import as_int, brief
from detdata.corpora.corpus import Corpus, check_cache_bytes
from detdata.corpora.errors import CorpusError
from detdata.corpora.files import DataFile, LocalFile
from detdata.corpora.formats import check_format, format_named, name_for, names
from detdata.corpora.hugging_face import saved_files
from detdata.corpora.indexing import Keep, outline_of
from detdata.corpora.map_style import MapStyle, ObjectFile, is_dataset
from detdata.corpora.opened import Entry, named
from detdata.corpora.protocol import Format, Options
from detdata.corpora.remote_file import RemoteOptions
from detdata.corpora.remote_listing import list_url, local_path, side_by_side
from detdata.corpora.skip_list import SkipList, load_skips
from detdata.errors import ArgumentTypeError, ArgumentValueError
from detdata.versions.own_files import INDEX_ENDING
from detdata.versions.remote import is_url

Paths: TypeAlias = str | PathLike[str] | Iterable[str | PathLike[str]]

_MAGIC = frozenset("*?[")


def open_corpus(
    paths: Paths | Any,
    format: str | Format | None = None,
    columns: Sequence[str] | None = None,
    seq_len: int | None = None,
    dtype: str | None = None,
    *,
    rows_per_block: int | None = None,
    cache_bytes: int = 256 << 20,
    index: Keep = "auto",
    index_folder: str | PathLike[str] | None = None,
    on_error: Literal["raise", "skip"] = "raise",
    skip_list: str | PathLike[str] | None = None,
    remote_cache: str | PathLike[str] | None = None,
    remote_cache_bytes: int = 16 << 30,
    remote_timeout: float = 60.0,
    **format_options: Any,
) -> Corpus:
    """Return the rows of files at rest as one map-style dataset, in the order of the files.

    paths: a file, a folder (all files below it of one known format), a glob, or a list of these; here or behind a URL
    of fsspec (`s3://bucket/data/*.parquet`). Files of a folder or a glob come in the order of their names, byte by
    byte; those of a list as they stand there. Or a dataset itself: one of Hugging Face, or whatever has rows by number.
    format: by default from the endings of the names. columns: names of those to give, in this order.
    seq_len, dtype: of token files: tokens of a row, and their type ("uint16").
    rows_per_block: of formats without blocks of their own; by default some 64 KiB make one.
    cache_bytes: of decoded blocks that each process may hold.
    index: where a new index is stored, if the format needs one: "auto" (beside the file, else in the cache folder),
    "beside", "cache" or "no". index_folder: the cache folder, by default the user's own.
    on_error: "raise", or "skip" for the rows on `skip_list`, a file that `detdata index --check` wrote; the next row
    that is not on it stands in for each. A broken row that is not on it is an error either way.
    remote_cache: a folder for what was read of remote files, up to remote_cache_bytes, shared by the processes of a
    machine; None: nothing is kept. remote_timeout: seconds for one request (of at most 16 MiB); it is tried 4 times.
    format_options: what else a format takes; its page in docs/formats says.

    Cost: listing, and for each file its footer or its index; one that has no index yet is read once.
    Raises CorpusError naming the file; ValueError, TypeError for arguments.

    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.jsonl").write_text('{"x": 1}\\n{"x": 2}\\n')
    >>> _ = (folder / "b.jsonl").write_text('{"x": 3}\\n')
    >>> open_corpus(folder).take([2, 0])
    [{'x': 3}, {'x': 1}]
    """
    check_keep(index, index_folder)
    limit = check_cache_bytes(cache_bytes)
    skipped = _skipped(on_error, skip_list)
    files: list[DataFile]
    if is_dataset(paths):
        if format is not None:
            raise ArgumentTypeError("format is for files, and paths is a dataset")
        files, format = [ObjectFile(paths)], MapStyle()
    else:
        files = list_files(paths, format, RemoteOptions.of(remote_cache, remote_cache_bytes, remote_timeout))
    form, options = form_and_options(
        files, format, columns=columns, seq_len=seq_len, dtype=dtype, rows_per_block=rows_per_block, **format_options
    )
    files = whole_files(form, files)

    def entry_of(file: DataFile) -> Entry:
        return Entry(file, *outline_of(form, file, options, keep=index, folder=index_folder))

    entries = side_by_side(entry_of, files, any(file.path is None for file in files))
    _check_schemas(form, entries, options)
    if not any(entry.outline.rows for entry in entries):
        raise CorpusError(files[0].name, f"the corpus is empty: no row in {len(files)} file(s); this is the first")
    skips = None if skipped is None else skipped.fit(entries)
    return Corpus(form, entries, options, cache_bytes=limit, skips=skips)


def form_and_options(
    files: Sequence[DataFile],
    format: str | Format | None,
    *,
    columns: Sequence[str] | None = None,
    seq_len: int | None = None,
    dtype: str | None = None,
    rows_per_block: int | None = None,
    **extra: Any,
) -> tuple[Format, Options]:
    """Return the one format of these files, and what was asked of it. Raises CorpusError, ValueError, TypeError."""
    form = _format(files, format, dtype)
    return form, _options(form, columns, seq_len, dtype, rows_per_block, extra)


def list_files(paths: Paths, format: str | Format | None, remote: RemoteOptions | None = None) -> list[DataFile]:
    """Return the files that `paths` stand for, at least one, in the order of their rows. Raises CorpusError."""
    if format is not None and not isinstance(format, str):
        check_format(format)
    if isinstance(paths, (str, os.PathLike)):
        asked = [_text(paths)]
    elif isinstance(paths, Iterable) and not isinstance(paths, (bytes, bytearray)):
        asked = []
        for path in paths:
            if not isinstance(path, (str, os.PathLike)):
                raise ArgumentTypeError(f"paths must be paths, got {brief(path)} among them")
            asked.append(_text(path))
    else:
        raise ArgumentTypeError(f"paths must be a path, a glob or a list of these, got {brief(paths)}")
    options = remote or RemoteOptions()
    parts = side_by_side(lambda path: _expand(path, format, options), asked, any(is_url(path) for path in asked))
    found = [file for part in parts for file in part]
    if not found:
        raise ArgumentValueError("paths is empty: there is no file to open")
    return found


def _text(path: str | PathLike[str]) -> str:
    text = os.fspath(path)
    if not isinstance(text, str):  # a path may be bytes too
        raise ArgumentTypeError(f"paths must be text, got {brief(path)}; os.fsdecode() makes text of it")
    if not text or "\0" in text:
        raise ArgumentValueError(f"a path must not {'hold a zero byte' if text else 'be empty'}, got {text!r}")
    return text


def _expand(path: str, format: str | Format | None, remote: RemoteOptions) -> list[DataFile]:
    if is_url(path):
        local = local_path(path)
        if local is not None:
            return _expand(local, format, remote)
        is_folder, found = list_url(path, remote)
        if not is_folder:
            return list(found)
        by_name: dict[str, DataFile] = {file.name: file for file in found}
        return _inside(path, by_name, format)
    if os.path.isdir(path):
        return _inside(path, {name: LocalFile(name) for name in sorted(_below(path), key=os.fsencode)}, format)
    if _MAGIC & set(path) and not os.path.exists(path):
        matches = [name for name in glob.glob(path, recursive=True) if _is_data(name) and not os.path.isdir(name)]
        if not matches:
            raise CorpusError(path, "matches no file")
        return [LocalFile(name) for name in sorted(matches, key=os.fsencode)]
    if name_for(path) is None and not os.path.exists(path) and all(map(os.path.exists, (path + ".idx", path + ".bin"))):
        return [LocalFile(path + ".idx")]  # an indexed dataset by its name without endings
    return [LocalFile(path)]


def _inside(folder: str, by_name: dict[str, DataFile], format: str | Format | None) -> list[DataFile]:
    saved = saved_files(by_name) if format is None or format == "arrow" else None
    return saved or [by_name[name] for name in _of_format(folder, list(by_name), format)]


def _of_format(folder: str, inside: list[str], format: str | Format | None) -> list[str]:
    """Return the names of the files in a folder that are data of a format, or of any known one."""
    known = [name for name in inside if name_for(name) is not None]
    if format is not None:  # files of that format, and whatever lies there only if their names say nothing
        wanted = (format if isinstance(format, str) else format.name).partition(".")[0]
        known = [name for name in known if str(name_for(name)).partition(".")[0] == wanted] or inside
    if not known:
        raise CorpusError(folder, f"holds no file of a known format ({', '.join(names())}); name one: format=")
    return known


def _below(folder: str, above: frozenset[str] = frozenset()) -> Iterable[str]:
    """Yield the files below a folder, by way of links too: data that are silently left out would be another corpus."""
    real = os.path.realpath(folder)
    if real in above:
        raise CorpusError(folder, "is a link to a folder that it lies in: there is no end of files below it, a loop")
    above |= {real}
    try:
        with os.scandir(folder) as found:
            entries = [entry for entry in found if _is_data(entry.name)]
    except OSError as error:
        raise CorpusError(folder, f"cannot be listed: {error.strerror}") from error
    for entry in entries:
        if entry.is_dir():
            yield from _below(entry.path, above)
        else:
            yield entry.path


def _is_data(name: str) -> bool:
    return not os.path.basename(name).startswith(".") and not name.endswith(INDEX_ENDING)


def whole_files(form: Format, files: Sequence[DataFile]) -> list[DataFile]:
    """Return files as their format sees them: for some, several are one."""
    whole = getattr(form, "whole", None)
    return list(files) if whole is None else list(whole(files))


def _format(files: Sequence[DataFile], format: str | Format | None, dtype: object) -> Format:
    if format is not None:
        return format_named(format) if isinstance(format, str) else format
    found: dict[str, str] = {}
    there = {file.name for file in files}
    for file in files:
        name = name_for(file.name)
        if name == "tokens" and dtype is None and _has_index(file, there):
            name = "megatron"
        if name is None:
            raise CorpusError(file.name, f"has no known ending; name its format: format= one of {', '.join(names())}")
        found.setdefault(name, file.name)
    if len(found) > 1:
        listed = ", ".join(f"{name} ({file})" for name, file in found.items())
        raise ArgumentValueError(f"files of several formats: {listed}; open each by itself, or name one: format=")
    return format_named(next(iter(found)))


def _has_index(file: DataFile, there: Container[str]) -> bool:
    """Return whether an .idx lies beside a .bin: then it is no raw file, but half of an indexed dataset."""
    beside = os.path.splitext(file.path or file.name)[0] + ".idx"
    return os.path.splitext(file.name)[0] + ".idx" in there or (file.path is not None and os.path.exists(beside))


def _options(
    form: Format,
    columns: Sequence[str] | None,
    seq_len: int | None,
    dtype: str | None,
    rows_per_block: int | None,
    extra: dict[str, Any],
) -> Options:
    listed = columns is None or (isinstance(columns, Iterable) and all(isinstance(name, str) for name in columns))
    if isinstance(columns, str) or not listed:
        raise ArgumentTypeError(f"columns must be a list of names, got {brief(columns)}")
    if columns is not None and (not columns or len(set(columns)) != len(columns)):
        raise ArgumentValueError(f"columns must name at least one column, and each once; got {brief(list(columns))}")
    unknown = sorted(set(extra) - set(getattr(form, "options", ())))
    if unknown:
        raise ArgumentTypeError(
            f"{', '.join(unknown)}: neither an argument of open_corpus nor an option of {form.name}"
        )
    return Options(
        columns=None if columns is None else tuple(columns),
        seq_len=None if seq_len is None else as_int(seq_len, "seq_len", low=1, high=2**31),
        dtype=None if dtype is None else _dtype(dtype),
        rows_per_block=None if rows_per_block is None else as_int(rows_per_block, "rows_per_block", low=1, high=2**31),
        extra=tuple(sorted(extra.items())),
    )


def _dtype(dtype: object) -> str:
    if isinstance(dtype, str):
        return dtype
    try:
        return str(np.dtype(dtype).str)  # type: ignore[call-overload]  # whatever it may be
    except TypeError as error:
        raise ArgumentTypeError(f'dtype must be the name of a type, such as "uint16", got {brief(dtype)}') from error


def check_keep(index: object, folder: object = None) -> None:
    """Raise ValueError or TypeError unless these say where indexes are stored.

    >>> check_keep("beside")
    """
    if not isinstance(index, str) or index not in {"auto", "beside", "cache", "no"}:
        raise ArgumentValueError(f'index must be "auto", "beside", "cache" or "no", got {brief(index)}')
    if folder is not None and not isinstance(folder, (str, os.PathLike)):
        raise ArgumentTypeError(f"index_folder must be a path, got {brief(folder)}")


def _skipped(on_error: object, skip_list: object) -> SkipList | None:
    if not isinstance(on_error, str) or on_error not in {"raise", "skip"}:
        raise ArgumentValueError(f'on_error must be "raise" or "skip", got {brief(on_error)}')
    if (on_error == "skip") != (skip_list is not None):
        raise ArgumentValueError(
            'on_error="skip" and skip_list= belong together: rows are skipped only by a recorded list, which '
            "`detdata index --check PATH… --skip-list FILE` writes"
        )
    if skip_list is None:
        return None
    if not isinstance(skip_list, (str, os.PathLike)):
        raise ArgumentTypeError(f"skip_list must be a path, got {brief(skip_list)}")
    return load_skips(skip_list)


def _check_schemas(form: Format, entries: Sequence[Entry], options: Options) -> None:
    first: tuple[str, Any] | None = None
    for entry in entries:
        if not entry.outline.rows:
            continue
        with named(entry.file.name):
            schema = form.schema(entry.outline, options)
        if schema is None:
            return
        if first is None:
            first = entry.file.name, schema
        elif schema != first[1]:
            raise CorpusError(
                entry.file.name,
                f"its columns differ from those of {first[0]}: {schema} there: {first[1]}. Open files of one schema "
                "together, or choose columns= that they share",
            )
