"""The laws of corpus formats, for packed lines."""

import gzip
import json
from typing import ClassVar

import pyarrow as pa

from detdata.testing import CorpusSuite


def lines(rows):
    parts = range(0, max(1, len(rows)), 7)
    return ["".join(json.dumps(row) + "\n" for row in rows[at : at + 7]).encode() for at in parts]


class TestOneGzipMember(CorpusSuite):
    format = "jsonl.gz"
    options: ClassVar = {"rows_per_block": 8}

    def write(self, folder, rows):
        path = folder / "a.jsonl.gz"
        path.write_bytes(gzip.compress(b"".join(lines(rows)), mtime=0))
        return path


class TestManyGzipMembers(CorpusSuite):
    format = "jsonl.gz"
    options: ClassVar = {"rows_per_block": 10, "spacing": 4096}

    def write(self, folder, rows):
        path = folder / "a.jsonl.gz"
        path.write_bytes(b"".join(gzip.compress(part, mtime=0) for part in lines(rows)))
        return path


class TestZstandardFrames(CorpusSuite):
    format = "jsonl.zst"
    options: ClassVar = {"rows_per_block": 8}

    def write(self, folder, rows):
        path = folder / "a.jsonl.zst"
        codec = pa.Codec("zstd")
        path.write_bytes(b"".join(bytes(codec.compress(part)) for part in lines(rows)))
        return path


class TestTextInGzip(CorpusSuite):
    format = "text.gz"
    options: ClassVar = {"rows_per_block": 8}
    columns: ClassVar = ("text",)

    def rows(self, count, seed):
        return [{"text": f"{seed} {number} " + "ä→" * (number % 5)} for number in range(count)]

    def write(self, folder, rows):
        path = folder / "a.txt.gz"
        path.write_bytes(gzip.compress("".join(row["text"] + "\n" for row in rows).encode(), mtime=0))
        return path
