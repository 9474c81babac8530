"""Failures that others have had in training, by the ids under which they were collected: offsets in files.

The same case with `Stream` over it is in test_streams.py; here a million rows are resumed by number alone, and every
byte that is read counts, those of the indexes too.
"""

import gzip
import json
import os

import pytest

from detdata import open_corpus
from detdata.corpora import index_file
from detdata.corpora.files import LocalFile

FILES = 8


@pytest.fixture
def bytes_read(monkeypatch):
    """The length of every read of a file of data, and of an index, from here on."""
    counted = []
    read, open_own = LocalFile.read, index_file.open_own

    def counting(self, start, length):
        counted.append(length)
        return read(self, start, length)

    def counting_own(path):
        file = open_own(path)
        counted.append(os.fstat(file.fileno()).st_size if file else 0)
        return file

    monkeypatch.setattr(LocalFile, "read", counting)
    monkeypatch.setattr(index_file, "open_own", counting_own)
    return counted


def row(number):
    return {"id": number, "text": "grün … " * (number % 3)}


def lines(file, each):
    return [json.dumps(row(number), ensure_ascii=False) for number in range(file * each, (file + 1) * each)]


VARIANTS = {
    "plain": lambda rows: "\n".join([*rows, ""]).encode(),
    "crlf": lambda rows: "\r\n".join([*rows, ""]).encode(),
    "blank last line": lambda rows: "\n".join([*rows, "", ""]).encode(),
    "no final newline": lambda rows: "\n".join(rows).encode(),
    "byte order mark": lambda rows: b"\xef\xbb\xbf" + "\n".join([*rows, ""]).encode(),
    "gzip": lambda rows: gzip.compress("\n".join([*rows, ""]).encode(), 1),
}


@pytest.mark.parametrize(("variant", "each"), [("plain", 125_000), *((name, 5_000) for name in VARIANTS)])
def test_o_st4_a_row_far_on_costs_its_block_and_the_index(tmp_path, bytes_read, variant, each):
    rows = each * FILES
    for file in range(FILES):
        name = f"{file}.jsonl.gz" if variant == "gzip" else f"{file}.jsonl"
        (tmp_path / name).write_bytes(VARIANTS[variant](lines(file, each)))
    made = open_corpus(tmp_path)  # makes the indexes
    indexes = sum(path.stat().st_size for path in tmp_path.iterdir() if str(path) not in made.files)
    size = sum((tmp_path / name).stat().st_size for name in made.files)
    block = 2 * size // len(made.block_sizes)

    for start in (rows * 9 // 10, 0):
        bytes_read.clear()
        assert next(open_corpus(tmp_path).read(start)) == row(start)
        if variant != "gzip":
            assert sum(bytes_read) <= indexes + block + 1
    assert len(made) == rows
    assert [found["id"] for found in made.read(rows - each - 3, rows - each + 3)] == [
        *range(rows - each - 3, rows - each + 3)
    ]
    if each == 5_000:
        assert list(made) == [row(number) for number in range(rows)]
