"""The passages as files at rest, in every format that a corpus can be of, and read back from there.

Each format holds them in the way that is usual for it. They are bytes that may be cut inside a character: where a
format takes only text, a byte is the character of its number (Latin-1).
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import struct
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from detdata.corpora.corpus import Corpus
from detdata.corpora.opening import open_corpus
from detdata.demo.text import Bytes

Make: TypeAlias = Callable[[Bytes, int], bytes]  # passages of one file, number of the first

_FILES = 2  # more than one, as data mostly are
_ROWS = 64  # of a row group or a batch
_FRAME = 64 << 10  # bytes of text in a frame of Zstandard


@dataclass(frozen=True, slots=True)
class Kind:
    """How passages are written and read. makers: the content of a file by its ending; to_bytes: a row's passage."""

    makers: Mapping[str, Make]
    to_bytes: Callable[[Any], Bytes]
    options: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of `open_corpus` that reading needs."""


def write_corpus(folder: Path, name: str, passages: Bytes) -> None:
    """Write uint8[n, length] as a corpus of the format `name`, one of `settings.CORPORA`, into a new folder.

    Two files, of one half of the passages each; a row is a passage. Raises FileExistsError.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp()) / "corpus"
    >>> write_corpus(folder, "text", np.frombuffer(b"ab\\nd", np.uint8).reshape(2, 2))
    >>> sorted(file.name for file in folder.iterdir())
    ['data-00000-of-00002.txt', 'data-00001-of-00002.txt']
    >>> (folder / "data-00001-of-00002.txt").read_bytes()
    b'\\\\nd\\n'
    """
    folder.mkdir(parents=True)
    edges = [part * len(passages) // _FILES for part in range(_FILES + 1)]
    for part in range(_FILES):
        first, stop = edges[part : part + 2]
        for ending, make in KINDS[name].makers.items():
            (folder / f"data-{part:05d}-of-{_FILES:05d}{ending}").write_bytes(make(passages[first:stop], first))
    if name == "save_to_disk":
        for file, record in _saved(sorted(path.name for path in folder.iterdir())).items():
            (folder / file).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def options_for(name: str, length: int) -> dict[str, Any]:
    """Return the arguments that `open_corpus` needs beside the folder. length: bytes of a passage.

    >>> options_for("tokens", 800)
    {'dtype': 'uint8', 'seq_len': 800}
    """
    return {**KINDS[name].options, **({"seq_len": length} if name == "tokens" else {})}


def open_passages(folder: Path, name: str, length: int) -> Corpus:
    """Open what `write_corpus` wrote, with the passages as rows, uint8[length] each.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp()) / "corpus"
    >>> write_corpus(folder, "jsonl", np.arange(6, dtype=np.uint8).reshape(2, 3))
    >>> open_passages(folder, "jsonl", 3)[1].tolist()
    [3, 4, 5]
    """
    return open_corpus(folder, **options_for(name, length)).map(KINDS[name].to_bytes)


# The content of files.


def _json_lines(passages: Bytes, first: int) -> bytes:
    rows = ({"id": id, "text": _latin(row)} for id, row in enumerate(passages, first))
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def _csv(passages: Bytes, first: int) -> bytes:
    file = io.StringIO(newline="")
    writer = csv.writer(file)
    writer.writerow(["id", "text"])
    writer.writerows([id, _latin(row)] for id, row in enumerate(passages, first))
    return file.getvalue().encode()


def _text(passages: Bytes, _first: int) -> bytes:
    """Return a line for each passage: the line ends inside it are written as in Python's source code."""
    return b"".join(_latin(row).encode("unicode_escape") + b"\n" for row in passages)


def _npy(passages: Bytes, _first: int) -> bytes:
    file = io.BytesIO()
    np.save(file, passages, allow_pickle=False)
    return file.getvalue()


def _tokens(passages: Bytes, _first: int) -> bytes:
    return passages.tobytes()


def _megatron_index(passages: Bytes, _first: int) -> bytes:
    count, length = passages.shape
    head = struct.pack("<9sQBQQ", b"MMIDIDX", 1, 1, count, count + 1)  # version 1, bytes, sequences, documents
    lengths, documents = np.full(count, length, "<i4"), np.arange(count + 1, dtype="<i8")
    return b"".join([head, lengths.tobytes(), (documents[:-1] * length).tobytes(), documents.tobytes()])


def _tar(passages: Bytes, first: int) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for id, row in enumerate(passages, first):
            member = tarfile.TarInfo(f"{id:06d}.text")
            member.size = len(row)
            archive.addfile(member, io.BytesIO(row.tobytes()))
    return file.getvalue()


def _parquet(passages: Bytes, first: int) -> bytes:
    file = io.BytesIO()
    pq.write_table(_table(passages, first), file, row_group_size=_ROWS)
    return file.getvalue()


def _arrow(passages: Bytes, first: int, *, new: Callable[..., Any]) -> bytes:
    table, file = _table(passages, first), io.BytesIO()
    with new(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=_ROWS)
    return file.getvalue()


def _table(passages: Bytes, first: int) -> Any:
    rows = [row.tobytes() for row in passages]
    return pa.table({"id": pa.array(range(first, first + len(rows)), pa.int64()), "text": pa.array(rows, pa.binary())})


def _gz(passages: Bytes, first: int, *, make: Make) -> bytes:
    return gzip.compress(make(passages, first), mtime=0)  # the same bytes each time


def _zst(passages: Bytes, first: int, *, make: Make) -> bytes:
    """Pack in frames, each of which can be read by itself."""
    content, codec = make(passages, first), pa.Codec("zstd")
    return b"".join(codec.compress(content[at : at + _FRAME], asbytes=True) for at in range(0, len(content), _FRAME))


def _saved(files: list[str]) -> dict[str, Any]:
    """Return what `Dataset.save_to_disk` writes beside the data: without it, `load_from_disk` finds no dataset."""
    types = {"id": "int64", "text": "binary"}
    state = {"_data_files": [{"filename": file} for file in files], "_fingerprint": "passages", "_split": None}
    form: dict[str, Any] = {"_format_columns": None, "_format_kwargs": {}, "_format_type": None}
    form["_output_all_columns"] = False
    features = {name: {"dtype": dtype, "_type": "Value"} for name, dtype in types.items()}
    return {"state.json": {**state, **form}, "dataset_info.json": {"features": features}}


# What a row holds.


def _latin(row: Bytes) -> str:
    return row.tobytes().decode("latin-1")


def _of_binary(row: Mapping[str, Any]) -> Bytes:
    return np.frombuffer(row["text"], np.uint8)


def _of_latin(row: Mapping[str, Any]) -> Bytes:
    return np.frombuffer(row["text"].encode("latin-1"), np.uint8)


def _of_escaped(row: Mapping[str, Any]) -> Bytes:
    return np.frombuffer(row["text"].encode("ascii").decode("unicode_escape").encode("latin-1"), np.uint8)


def _of_numbers(row: Any) -> Bytes:
    return np.asarray(row).astype(np.uint8)


def _packed(name: str, ending: str, make: Make, **rest: Any) -> dict[str, Kind]:
    """Return the three kinds of a format of lines: plain, .gz and .zst."""
    packers: dict[str, Make] = {"": make, ".gz": partial(_gz, make=make), ".zst": partial(_zst, make=make)}
    return {name + packer: Kind({ending + packer: packed}, **rest) for packer, packed in packers.items()}


KINDS: Mapping[str, Kind] = {
    **_packed("jsonl", ".jsonl", _json_lines, to_bytes=_of_latin),
    # Else a column is of the type that all its values have, and passages could be numbers.
    **_packed("csv", ".csv", _csv, to_bytes=_of_latin, options={"column_types": {"text": "string"}}),
    **_packed("text", ".txt", _text, to_bytes=_of_escaped),
    "arrow": Kind({".arrow": partial(_arrow, new=pa.ipc.new_file)}, _of_binary),
    "megatron": Kind({".bin": _tokens, ".idx": _megatron_index}, _of_numbers),
    "npy": Kind({".npy": _npy}, _of_numbers),
    "parquet": Kind({".parquet": _parquet}, _of_binary),
    "save_to_disk": Kind({".arrow": partial(_arrow, new=pa.ipc.new_stream)}, _of_binary),
    "tar": Kind({".tar": _tar}, _of_binary),
    "tokens": Kind({".bin": _tokens}, _of_numbers, {"dtype": "uint8"}),
}
