"""That what a stream consumed is still the same: the files behind it, in a state and compared with those of now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, final

import numpy as np

from detdata.checks import as_int
from detdata.corpora import Corpus
from detdata.corpora.facts import FileFacts, facts_of, rows_of_files
from detdata.errors import UnknownFormat
from detdata.records import canonical_json, digest

_WHOLE = 1000  # files of which a state has all facts; of those before them it has one digest
_KEYS = {"rows", "files"}
_FILE_KEYS = {"count", "earlier", "last"}
Found: TypeAlias = list[tuple[str, str, str]]


@final
class Source:
    """The files of a dataset, as far as it is a corpus; their facts are read once a process."""

    def __init__(self, dataset: Any) -> None:
        self._corpus = dataset if isinstance(dataset, Corpus) else None
        self._size = len(dataset)
        self._facts: dict[int, FileFacts] = {}
        self._digested = (0, "")  # the last digest, and of how many files: the next state asks for the same mostly

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_facts": {}}

    def record(self, consumed: int | None) -> dict[str, Any]:
        """Return what a state says of the files that hold the first `consumed` rows, or of all where it is None."""
        if self._corpus is None:
            return {"rows": self._size, "files": None}
        edges = np.cumsum(rows_of_files(self._corpus))
        count = edges.size if consumed is None else int(np.searchsorted(edges, consumed, side="left")) + (consumed > 0)
        earlier = max(0, count - _WHOLE)
        return {
            "rows": self._size,
            "files": {
                "count": count,
                "earlier": self._digest(earlier) if earlier else None,
                "last": [list(self._of(number)) for number in range(earlier, count)],
            },
        }

    def differences(self, record: Mapping[str, Any], *, may_grow: bool) -> Found:
        """Return (file, saved, found) of each file that is no longer what it was. Reads the ends of these files."""
        files = record["files"]
        if files is None:
            return []
        if self._corpus is None:
            return [("source", f"a corpus of {files['count']} file(s) or more", "no corpus")]
        here = len(rows_of_files(self._corpus))
        found: Found = []
        first = files["count"] - len(files["last"])
        if first and first <= here and self._digest(first) != files["earlier"]:
            names = f"{self._of(0).name} … {self._of(first - 1).name}"
            found.append((f"files {names}", f"{first} files", "at least one of them has changed"))
        for number, saved in enumerate(files["last"], first):
            was = FileFacts(*saved)
            if number >= here:
                found.append((f"file {was.name}", _told(was), "is not there"))
                continue
            now = self._of(number)
            grown = may_grow and number == files["count"] - 1 and now.rows >= was.rows and now.size >= was.size
            prefix = now if now.size == was.size or not grown else facts_of(self._corpus, number, was.size)
            same = (was.name, was.ends) == (prefix.name, prefix.ends)
            if not same or (not grown and (was.rows, was.size) != (now.rows, now.size)):
                found.append((f"file {was.name}", _told(was), _told(now) if was != now else _told(prefix)))
        return found

    def _of(self, number: int) -> FileFacts:
        if number not in self._facts and self._corpus is not None:
            self._facts[number] = facts_of(self._corpus, number)
        return self._facts[number]

    def _digest(self, count: int) -> str:
        if self._digested[0] != count:
            self._digested = count, digest(canonical_json([list(self._of(number)) for number in range(count)]))
        return self._digested[1]


def _told(facts: FileFacts) -> str:
    return f"{facts.name}: {facts.rows} rows, {facts.size} bytes, ends {facts.ends}"


def check_record(record: Any) -> dict[str, Any]:
    """Return what a state says of its files, checked for its form. Raises UnknownFormat, TypeError, ValueError."""
    if not isinstance(record, Mapping) or set(record) != _KEYS:
        raise UnknownFormat(f"state['source'] must have the keys {sorted(_KEYS)}, got {_keys(record)}")
    as_int(record["rows"], "state['source']['rows']", low=1)
    files = record["files"]
    if files is None:
        return dict(record)
    if not isinstance(files, Mapping) or set(files) != _FILE_KEYS or not isinstance(files["last"], list):
        raise UnknownFormat(f"state['source']['files'] must have the keys {sorted(_FILE_KEYS)}, got {_keys(files)}")
    count = as_int(files["count"], "state['source']['files']['count']")
    kinds = (str, int, int, str)
    for row in files["last"]:
        if not isinstance(row, list) or [type(item) for item in row] != list(kinds):
            raise UnknownFormat("state['source']['files']['last'] must be rows of [name, rows, size, ends]")
        as_int(row[1], "rows of a file")
        as_int(row[2], "size of a file")
    if len(files["last"]) > count or (len(files["last"]) < count) != isinstance(files["earlier"], str):
        raise UnknownFormat("state['source']['files'] contradicts itself: its count is not that of its files")
    return dict(record)


def _keys(value: Any) -> Any:
    return sorted(map(str, value)) if isinstance(value, Mapping) else type(value).__name__
