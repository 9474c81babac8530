"""What a file of a corpus is, in a few values that tell whether it is still the same: for states of streams."""

from __future__ import annotations

from typing import NamedTuple

import xxhash

from detdata.corpora.corpus import Corpus
from detdata.corpora.errors import CorpusUnreadable

EDGE = 4096  # bytes at each end of a file that are hashed


class FileFacts(NamedTuple):
    """A file: its name without folders, rows, bytes, and a digest of both ends (remote: of the store's tag)."""

    name: str
    rows: int
    size: int
    ends: str


def rows_of_files(corpus: Corpus) -> list[int]:
    """Return the rows of each file of a corpus, in order."""
    return [entry.outline.rows for entry in corpus._entries]


def facts_of(corpus: Corpus, number: int, size: int | None = None) -> FileFacts:
    """Return the facts of a file, or of its first `size` bytes. Reads two times 4 KiB; raises CorpusUnreadable."""
    entry = corpus._entries[number]
    length = entry.identity.size if size is None else min(size, entry.identity.size)
    file = entry.file.fresh()
    if file.path is None:
        text = entry.identity.tag.encode()
    else:
        text = file.read(0, min(EDGE, length)) + file.read(max(0, length - EDGE), min(EDGE, length))
    if file.identity() != entry.identity:
        raise CorpusUnreadable(file.name, "has changed since the corpus was opened; open it anew")
    name = file.name.replace("\\", "/").rpartition("/")[2]
    return FileFacts(name, entry.outline.rows, length, f"xxh3-64:{xxhash.xxh3_64_hexdigest(text)}")
