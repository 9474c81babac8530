"""The version of a corpus: that of its files, and of their order where it is not that of their names."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import xxhash

from detdata.corpora.files import DataFile
from detdata.corpora.map_style import ObjectFile
from detdata.corpora.pairs import parts_of
from detdata.corpora.remote import changed
from detdata.corpora.remote_file import RemoteFile
from detdata.records import canonical_json
from detdata.versions.hash_dataset import hash_dataset


def version_of(files: Sequence[DataFile], how: dict[str, Any]) -> str:
    """Return the digest of files as a dataset. how: arguments of `hash_dataset`."""
    if len(files) == 1 and isinstance(files[0], ObjectFile):
        return files[0].version()
    files = [part for file in files for part in parts_of(file)]
    names = [file.name if file.path is None else file.path for file in files]
    manifest = hash_dataset(names, **how)
    for file in files:
        if isinstance(file, RemoteFile) and file.now() != file.identity():
            raise changed(file.name, file.identity())
    ordered = sorted(names, key=os.fsencode)
    if names == ordered:
        return manifest.digest
    where = {name: at for at, name in enumerate(ordered)}
    text = canonical_json(["detdata.corpus_order/1", manifest.digest, [where[name] for name in names]])
    return f"xxh3-128:{xxhash.xxh3_128_hexdigest(text)}"
