"""The formats that a corpus can be of, by name and by the endings of file names; a module is imported when needed."""

from __future__ import annotations

from importlib import import_module

from detdata.corpora.protocol import Format
from detdata.errors import ArgumentTypeError, ArgumentValueError

# name: (module, maker, endings). The endings stand here too, so that finding a format imports none of the others.
_OURS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "arrow": ("detdata.corpora.arrow", "Arrow", (".arrow", ".feather", ".ipc")),
    "csv": ("detdata.corpora.csv", "Csv", (".csv", ".tsv")),
    "csv.gz": ("detdata.corpora.packed", "csv_gz", (".csv.gz", ".tsv.gz")),
    "csv.zst": ("detdata.corpora.packed", "csv_zst", (".csv.zst", ".tsv.zst")),
    "jsonl": ("detdata.corpora.jsonl", "JsonLines", (".jsonl", ".ndjson", ".jsonlines")),
    "jsonl.gz": ("detdata.corpora.packed", "jsonl_gz", (".jsonl.gz", ".ndjson.gz", ".jsonlines.gz", ".json.gz")),
    "jsonl.zst": ("detdata.corpora.packed", "jsonl_zst", (".jsonl.zst", ".ndjson.zst", ".jsonlines.zst")),
    "megatron": ("detdata.corpora.megatron", "Megatron", (".idx",)),
    "npy": ("detdata.corpora.npy", "Npy", (".npy",)),
    "parquet": ("detdata.corpora.parquet", "Parquet", (".parquet", ".pq")),
    "tar": ("detdata.corpora.tar", "Tar", (".tar", ".tar.gz", ".tgz", ".tar.zst", ".tar.bz2", ".tar.xz")),
    "text": ("detdata.corpora.text", "Text", (".txt", ".text")),
    "text.gz": ("detdata.corpora.packed", "text_gz", (".txt.gz", ".text.gz")),
    "text.zst": ("detdata.corpora.packed", "text_zst", (".txt.zst", ".text.zst")),
    "tokens": ("detdata.corpora.tokens", "Tokens", (".bin",)),
}
_MUST = ("name", "endings", "outline", "open", "schema")
_FOREIGN: dict[str, Format] = {}


def register_corpus_format(form: Format) -> None:
    """Make a format of your own known to `open_corpus`, by its name and its endings, in this process.

    form: see `detdata.corpora.protocol.Format` and docs/howto/write_a_format.md; prove it with
    `detdata.testing.CorpusSuite`. A corpus is pickled with its format, so workers need no registration.
    Raises TypeError; ValueError for a name that is taken.

    >>> try:
    ...     register_corpus_format(object())
    ... except TypeError as error:
    ...     print(error)
    form must be a corpus format, got object without name, endings, outline, open, schema
    """
    check_format(form)
    if form.name in _OURS or _FOREIGN.get(form.name, form) is not form:
        raise ArgumentValueError(f"there is a corpus format {form.name!r} already; give yours another name")
    _FOREIGN[form.name] = form


def check_format(form: Format) -> None:
    """Raise TypeError unless this is a format.

    >>> check_format(format_named("jsonl"))
    """
    if isinstance(form, type):
        raise ArgumentTypeError(f"form must be a corpus format, got the class {form.__name__}: make one of it")
    missing = [name for name in _MUST if not hasattr(form, name)]
    if missing:
        raise ArgumentTypeError(f"form must be a corpus format, got {type(form).__name__} without {', '.join(missing)}")


def format_named(name: str) -> Format:
    """Return the format of that name. Raises ValueError that lists the known ones.

    >>> format_named("jsonl").name
    'jsonl'
    """
    if name in _FOREIGN:
        return _FOREIGN[name]
    if name not in _OURS:
        raise ArgumentValueError(f"format must be one of {', '.join(names())}; got {name!r}")
    module, cls, _ = _OURS[name]
    made: Format = getattr(import_module(module), cls)()
    return made


def names() -> list[str]:
    """Return the names of all formats.

    >>> "jsonl" in names()
    True
    """
    return sorted([*_OURS, *_FOREIGN])


def name_for(file: str) -> str | None:
    """Return the name of the format that a file's name speaks of, by its longest known ending; None for none.

    >>> name_for("data/part-0.jsonl")
    'jsonl'
    """
    lower = file.lower()
    found = [
        (len(ending), name)
        for name, endings in [
            *((name, endings) for name, (_, _, endings) in _OURS.items()),
            *((name, form.endings) for name, form in _FOREIGN.items()),
        ]
        for ending in endings
        if lower.endswith(ending)
    ]
    return max(found)[1] if found else None
