"""open_corpus: which files, of which format, and where their rows are."""

from __future__ import annotations

import glob
import os
from collections.abc import Container, Iterable, Sequence
from os import PathLike
from typing import Any, Literal, TypeAlias

from detdata.checks import as_int, brief
from detdata.corpora.corpus import Corpus, Entry, check_cache_bytes
from detdata.corpora.errors import CorpusError
from detdata.corpora.files import DataFile, LocalFile
from detdata.corpora.formats import format_named, name_for, names
from detdata.corpora.indexing import Keep, outline_of
from detdata.corpora.protocol import Format, Options
from detdata.corpora.skip_list import read_skips
from detdata.errors import ArgumentTypeError, ArgumentValueError
from detdata.versions.own_files import INDEX_ENDING

Paths: TypeAlias = str | PathLike[str] | Iterable[str | PathLike[str]]

_MAGIC = frozenset("*?[")


def open_corpus(
    paths: Paths,
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
    **format_options: Any,
) -> Corpus:
    """Return the rows of files at rest as one map-style dataset, in the order of the files.

    paths: a file, a folder (all files below it of one known format), a glob, or a list of these. Files of a folder or
    a glob come in the order of their names, byte by byte; those of a list as they stand there.
    format: by default from the endings of the names. columns: names of those to give, in this order.
    seq_len, dtype: of token files: tokens of a row, and their type ("uint16").
    rows_per_block: of formats without blocks of their own; by default some 64 KiB make one.
    cache_bytes: of decoded blocks that each process may hold.
    index: where a new index is stored, if the format needs one: "auto" (beside the file, else in the cache folder),
    "beside", "cache" or "no". index_folder: the cache folder, by default the user's own.
    on_error: "raise", or "skip" for the rows on `skip_list`, a file that `detdata index --check` wrote; the next row
    that is not on it stands in for each. A broken row that is not on it is an error either way.
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
    files = list_files(paths, format)
    form, options = form_and_options(
        files, format, columns=columns, seq_len=seq_len, dtype=dtype, rows_per_block=rows_per_block, **format_options
    )
    files = whole_files(form, files)
    entries = []
    for file in files:
        outline, identity = outline_of(form, file, options, keep=_keep(index), folder=index_folder)
        entries.append(Entry(file, outline, identity))
    _check_schemas(form, entries, options)
    rows = sum(entry.outline.rows for entry in entries)
    if rows == 0:
        raise ArgumentValueError(f"the corpus is empty: {len(files)} file(s), no row; the first is {files[0].name!r}")
    if on_error not in {"raise", "skip"}:
        raise ArgumentValueError(f'on_error must be "raise" or "skip", got {on_error!r}')
    if (on_error == "skip") != (skip_list is not None):
        raise ArgumentValueError(
            'on_error="skip" and skip_list= belong together: rows are skipped only by a recorded list, which '
            "`detdata index --check PATH… --skip-list FILE` writes"
        )
    skips = None if skip_list is None else read_skips(skip_list, entries)
    return Corpus(form, entries, options, cache_bytes=check_cache_bytes(cache_bytes), skips=skips)


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


def list_files(paths: Paths, format: str | Format | None) -> list[DataFile]:
    """Return the files that `paths` stand for, at least one, in the order of their rows. Raises CorpusError."""
    if isinstance(paths, (str, os.PathLike)):
        found = _expand(os.fspath(paths), format)
    elif isinstance(paths, Iterable):
        found = []
        for path in paths:
            if not isinstance(path, (str, os.PathLike)):
                raise ArgumentTypeError(f"paths must be paths, got {brief(path)} among them")
            found += _expand(os.fspath(path), format)
    else:
        raise ArgumentTypeError(f"paths must be a path, a glob or a list of these, got {brief(paths)}")
    if not found:
        raise ArgumentValueError("paths is empty: there is no file to open")
    return found


def _expand(path: str, format: str | Format | None) -> list[DataFile]:
    if os.path.isdir(path):
        inside = sorted(_below(path), key=os.fsencode)
        known = [name for name in inside if name_for(name) is not None]
        if format is not None:  # files of that format, and whatever lies there only if their names say nothing
            wanted = (format if isinstance(format, str) else format.name).partition(".")[0]
            known = [name for name in known if str(name_for(name)).partition(".")[0] == wanted] or inside
        if not known:
            raise CorpusError(path, f"holds no file of a known format ({', '.join(names())}); name one: format=")
        return [LocalFile(name) for name in known]
    if _MAGIC & set(path) and not os.path.exists(path):
        matches = sorted((name for name in glob.glob(path, recursive=True) if _is_data(name)), key=os.fsencode)
        if not matches:
            raise CorpusError(path, "matches no file")
        return [LocalFile(name) for name in matches]
    if name_for(path) is None and not os.path.exists(path) and all(map(os.path.exists, (path + ".idx", path + ".bin"))):
        return [LocalFile(path + ".idx")]  # an indexed dataset by its name without endings
    return [LocalFile(path)]


def _below(folder: str) -> Iterable[str]:
    for parent, folders, files in os.walk(folder, onerror=_raise):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (os.path.join(parent, name) for name in files if _is_data(name))


def _raise(error: OSError) -> None:
    raise CorpusError(str(error.filename), f"cannot be listed: {error.strerror}") from error


def _is_data(name: str) -> bool:
    return not os.path.basename(name).startswith(".") and not name.endswith(INDEX_ENDING) and not os.path.isdir(name)


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
    if isinstance(columns, str) or not (columns is None or all(isinstance(name, str) for name in columns)):
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
        dtype=dtype,
        rows_per_block=None if rows_per_block is None else as_int(rows_per_block, "rows_per_block", low=1, high=2**31),
        extra=tuple(sorted(extra.items())),
    )


def _keep(index: object) -> Keep:
    if index not in {"auto", "beside", "cache", "no"}:
        raise ArgumentValueError(f'index must be "auto", "beside", "cache" or "no", got {index!r}')
    return index


def _check_schemas(form: Format, entries: Sequence[Entry], options: Options) -> None:
    first: tuple[str, Any] | None = None
    for entry in entries:
        if not entry.outline.rows:
            continue
        try:
            schema = form.schema(entry.outline, options)
        except CorpusError as error:  # a format does not know here which file it is
            raise CorpusError(error.file or entry.file.name, error.reason) from error
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
