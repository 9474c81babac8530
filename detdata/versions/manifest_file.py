"""The file of a manifest: `detdata.manifest/1`, JSON with one line for each file, so that a diff of it can be read.

Fixed in docs/spec.md, section 7. A file is read in bounded pieces and may come from anywhere: what does not begin as a
manifest is refused before it is read, what is not sound is refused as a whole, and nothing in it is run.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from detdata.checks import brief
from detdata.errors import ArgumentTypeError, ArgumentValueError, UnknownFormat
from detdata.versions.columns import FILE, LINK
from detdata.versions.ignore import Rules
from detdata.versions.names import printable

if TYPE_CHECKING:
    from detdata.rows import RowsVersion
    from detdata.versions.manifest import Manifest

# paths, sizes, hexes, kinds; checked where the manifest is made
Columns: TypeAlias = tuple[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]]

FORMAT = "detdata.manifest/1"

_KEYS = (
    "format",
    "digest",
    "algorithm",
    "content",
    "piece_size",
    "select",
    "rules",
    "part",
    "files",
    "bytes",
    "entries",
    "rows",
)
_RULES = ("exclude", "ignore", "include", "symlinks")
_ENTRIES, _END = '\n"entries": [\n', '\n],\n"rows": '
_BETWEEN, _NULL = "],\n[", ", null, "
_START = re.compile(r'\s*\{\s*"format"\s*:\s*"([^"\\]{1,100})"')
_START_SIZE = 4096  # characters in which the format is said


@dataclass(frozen=True, slots=True)
class Record:
    """What a text says, of the right types, and nothing of it believed yet."""

    columns: Columns
    algorithm: str
    content: str
    piece_size: int
    rules: Rules
    select: tuple[str, ...]
    rows: RowsVersion | None
    part: tuple[int, int, str] | None
    totals: dict[str, Any]  # files, bytes, digest


def render(manifest: Manifest) -> str:
    """Return the text of a manifest, valid Unicode; the same manifest always has the same. Some 1 µs a file."""
    rules = manifest.rules
    header = {
        "format": FORMAT,
        "digest": manifest.digest,
        "algorithm": manifest.algorithm,
        "content": manifest.content,
        "piece_size": manifest.piece_size,
        "select": list(manifest.select),
        "rules": {
            "exclude": list(rules.exclude),
            "ignore": list(rules.ignore),
            "include": list(rules.include),
            "symlinks": rules.symlinks,
        },
        "part": None if manifest.part is None else list(manifest.part),
        "files": len(manifest),
        "bytes": manifest.bytes,
    }
    lines = [f'"{key}": {_dumps(value)},\n' for key, value in header.items()]
    rows = "null" if manifest.rows is None else _rows_lines(manifest.rows.to_record())
    return f'{{\n{"".join(lines)}"entries": [\n{_entry_lines(manifest)}],\n"rows": {rows}\n}}\n'


def _entry_lines(manifest: Manifest) -> str:
    if not manifest.paths:
        return ""
    # A newline within a path is written \n, so the lines of this text are the paths.
    paths = _escaped(json.dumps(manifest.paths, ensure_ascii=False, separators=("\n", ":")))[1:-1].split("\n")
    columns = zip(paths, manifest.sizes, manifest.hexes, manifest.kinds, strict=True)
    return (
        ",\n".join(
            [
                f'[{path}, {size}, "{hex}"]' if kind == FILE else f'[{path}, {size}, "{hex}", "{kind}"]'
                for path, size, hex, kind in columns
            ]
        )
        + "\n"
    )


def _rows_lines(record: dict[str, Any]) -> str:
    """A line for each key and for each item of a list: one changed block is one changed line."""
    lines = []
    for key, value in sorted(record.items()):
        several = isinstance(value, list) and value
        lines.append(f'"{key}": ' + ("[\n" + ",\n".join(map(_dumps, value)) + "\n]" if several else _dumps(value)))
    return "{\n" + ",\n".join(lines) + "\n}"


def _dumps(value: object) -> str:
    return _escaped(json.dumps(value, ensure_ascii=False, sort_keys=True, allow_nan=False))


def _escaped(text: str) -> str:
    r"""Write surrogates, which UTF-8 does not have, as `\udc80`: what JSON calls them too."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def check_start(text: str) -> None:
    """Raise UnknownFormat unless `text` begins as a manifest that this release reads."""
    match = _START.match(text[:_START_SIZE])
    if match is None:
        raise UnknownFormat(f'no manifest of a dataset: it does not begin with {{"format": "{FORMAT}"')
    found = match[1]
    if found == FORMAT:
        return
    if found.startswith("detdata.manifest/"):
        raise UnknownFormat(
            f"made by {printable(found)}; this release reads {FORMAT}: update detdata, or hash the data again. "
            "It says nothing about whether the data changed"
        )
    raise UnknownFormat(f"no manifest of a dataset, which has the format {FORMAT}, but a file of '{printable(found)}'")


def parse(text: str) -> Record:
    """Return what a manifest's text says. Raises UnknownFormat if it is not of the format. Some 1 µs a file."""
    check_start(text)
    record, columns = _quick_parts(text) or _parts(text)
    rules = _rules(record["rules"])
    select = _strings(record["select"], "select")
    part = record["part"]
    if part is not None and (type(part) is not list or list(map(type, part)) != [int, int, str]):
        raise UnknownFormat(f"part must be null or [i, n, digest of the listing], found {brief(part)}")
    for kind, name, keys in (
        (str, "text", ("digest", "algorithm", "content")),
        (int, "an integer", ("piece_size", "files", "bytes")),
    ):
        for key in keys:
            if type(record[key]) is not kind:
                raise UnknownFormat(f"{key} must be {name}, found {brief(record[key])}")
    return Record(
        columns=columns,
        algorithm=record["algorithm"],
        content=record["content"],
        piece_size=record["piece_size"],
        rules=rules,
        select=select,
        rows=_rows(record["rows"]),
        part=None if part is None else tuple(part),
        totals={key: record[key] for key in ("files", "bytes", "digest")},
    )


def _quick_parts(text: str) -> tuple[dict[str, Any], Columns] | None:
    """Header and columns of a text laid out as `render` does it, without a list for each entry; None for any other.

    The entries become one flat array with a null between each two. There was none before, so the number of nulls and
    their places show that each stands where one entry ends and the next begins, and none within a text. This reads what
    the JSON says, in half the time.
    """
    start, end = text.find(_ENTRIES), text.rfind(_END)
    if start < 0 or end < start + len(_ENTRIES):
        return None
    body = text[start + len(_ENTRIES) : end]
    if "null" in body:  # in a path, or where it has no business
        return None
    joined = body.replace(_BETWEEN, _NULL)
    entries = (len(joined) - len(body)) // (len(_NULL) - len(_BETWEEN)) + 1
    try:
        flat = json.loads(joined)
    except (ValueError, RecursionError):
        return None
    if type(flat) is not list or len(flat) != 4 * entries - 1 or flat[3::4].count(None) != entries - 1:
        return None
    paths, sizes, hexes = flat[0::4], flat[1::4], flat[2::4]
    record = _loads(f"{text[:start]}{_ENTRIES[:-2]}null{text[end + 2 :]}")
    return record, (tuple(paths), tuple(sizes), tuple(hexes), (FILE,) * entries)


def _parts(text: str) -> tuple[dict[str, Any], Columns]:
    """Header and columns of any JSON text."""
    record = _loads(text)
    entries = record["entries"]
    if type(entries) is not list:
        raise UnknownFormat(f"entries must be an array, found {brief(entries)}")
    for at, entry in enumerate(entries):
        if type(entry) is not list or not (len(entry) == 3 or (len(entry) == 4 and entry[3] == LINK)):
            raise UnknownFormat(f'entry {at} must be [path, size, digest] or [path, size, digest, "{LINK}"]')
    paths, sizes, hexes = ([entry[column] for entry in entries] for column in range(3))
    kinds = [FILE if len(entry) == 3 else LINK for entry in entries]
    return record, (tuple(paths), tuple(sizes), tuple(hexes), tuple(kinds))


def _loads(text: str) -> dict[str, Any]:
    try:
        record = json.loads(text, object_pairs_hook=_unique)
    except UnknownFormat:
        raise
    except RecursionError:
        raise UnknownFormat("edited or torn: it is nested too deep") from None
    except ValueError as error:
        raise UnknownFormat(f"edited or torn: it is no JSON: {error}") from None
    if type(record) is not dict or set(record) != set(_KEYS):
        found = sorted(record) if type(record) is dict else type(record).__name__
        raise UnknownFormat(f"a {FORMAT} has the keys {', '.join(_KEYS)}; found {brief(found)}")
    return record


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) != len(pairs):
        raise UnknownFormat(f"edited or torn: a key occurs twice among {brief([key for key, _ in pairs])}")
    return record


def _strings(value: object, name: str) -> tuple[str, ...]:
    if type(value) is not list or not set(map(type, value)) <= {str}:
        raise UnknownFormat(f"{name} must be an array of texts, found {brief(value)}")
    return tuple(value)


def _rules(value: object) -> Rules:
    if type(value) is not dict or set(value) != set(_RULES):
        raise UnknownFormat(f"rules must have the keys {', '.join(_RULES)}, found {brief(value)}")
    exclude, ignore, include = (_strings(value[name], name) for name in _RULES[:3])
    try:
        return Rules(ignore=ignore, include=include, exclude=exclude, symlinks=value["symlinks"])
    except (ArgumentTypeError, ArgumentValueError) as error:
        raise UnknownFormat(f"rules: {error}") from None


def _rows(value: object) -> RowsVersion | None:
    if value is None:
        return None
    if type(value) is not dict:
        raise UnknownFormat(f"rows must be null or an object, found {brief(value)}")
    from detdata.rows import RowsVersion  # with pyarrow: not for those who compare bytes

    return RowsVersion.from_record(value)
