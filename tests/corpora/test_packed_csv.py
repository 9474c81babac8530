"""Packed CSV: the rows of the plain file, its blocks cut at access points."""

import csv
import gzip
import io
import random
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from detdata import open_corpus
from detdata.corpora import CorpusError
from detdata.testing import CorpusSuite

CODEC = pa.Codec("zstd")


def written(rows, delimiter=","):
    out = io.StringIO(newline="")
    csv.writer(out, delimiter=delimiter).writerows(rows)
    return out.getvalue().encode()


def frames(text, size=70_001):
    parts = [text[at : at + size] for at in range(0, len(text), size)] or [b""]
    return b"".join(bytes(CODEC.compress(part)) for part in parts)


PACKED = pytest.mark.parametrize(("ending", "pack"), [("gz", gzip.compress), ("zst", frames)])


def table(count):
    rng = random.Random(1)
    names = ["id", "text", "score"]
    rows = [[number, f'a, "b"\n{rng.randbytes(rng.randrange(60)).hex()}', rng.random()] for number in range(count)]
    return [names, *rows]


def both(folder, ending, packed, text, kind="csv", **how):
    (folder / f"a.{kind}").write_bytes(text)
    (folder / f"a.{kind}.{ending}").write_bytes(packed)
    plain = open_corpus(folder / f"a.{kind}", index="no")
    return plain, open_corpus(folder / f"a.{kind}.{ending}", index="no", **how)


@PACKED
def test_rows_are_those_of_the_plain_file(tmp_path, ending, pack):
    text = written(table(8000))
    for how in ({}, {"spacing": 100_000}, {"rows_per_block": 100}, {"cache_bytes": 0, "columns": ["score", "id"]}):
        plain, packed = both(tmp_path, ending, pack(text), text, **how)
        ids = np.random.default_rng(0).integers(0, 8000, 40).tolist()
        names = how.get("columns", ["id", "text", "score"])

        assert packed.take(ids) == [{name: plain[row][name] for name in names} for row in ids]
        assert len(list(packed.read(0))) == 8000
        assert packed.take_columns(ids).column_names == names


def test_blocks_begin_at_points(tmp_path):
    text = written(table(8000))
    plain, packed = both(tmp_path, "gz", gzip.compress(text), text, spacing=150_000)

    starts = packed.entries[0].outline.arrays["starts"]
    assert 3 <= len(packed.block_sizes) < len(plain.block_sizes)
    assert int(packed.block_sizes.sum()) == 8000
    assert set(starts.tolist()) <= set(plain.entries[0].outline.arrays["starts"].tolist())


@PACKED
def test_tabs_by_the_name(tmp_path, ending, pack):
    text = written([["a", "b"], ["1,5", "x"]], "\t")
    plain, packed = both(tmp_path, ending, pack(text), text, "tsv")

    assert list(packed) == list(plain) == [{"a": "1,5", "b": "x"}]


CELLS = st.text(st.sampled_from('ab,"\n\r;é '), max_size=5)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.lists(CELLS, min_size=2, max_size=2), min_size=1, max_size=50),
    st.sampled_from([{}, {"rows_per_block": 3}, {"spacing": 4096}]),
)
def test_any_table(tmp_path, rows, how):
    text = written([["one", "two"], *rows])
    for ending, pack in (("gz", gzip.compress), ("zst", lambda text: frames(text, 7))):
        plain, packed = both(tmp_path, ending, pack(text), text, **how)
        assert list(packed) == list(plain)


@PACKED
def test_errors_are_those_of_the_plain_file(tmp_path, ending, pack):
    for text, told in (
        (b"a,b\n1,2\n3\n", "3"),
        (b"", "names the columns"),
        (b'a\n"x', "quote"),
        (b"a,a\n1,2\n", "twice"),
    ):
        path = tmp_path / f"a.csv.{ending}"
        path.write_bytes(pack(text))
        with pytest.raises(CorpusError) as caught:
            list(open_corpus(path, index="no"))
        assert caught.value.file == str(path), told


class TestCsvInGzip(CorpusSuite):
    format = "csv.gz"
    options: ClassVar = {"rows_per_block": 8}
    columns: ClassVar = ("text", "id")

    def rows(self, count, seed):
        return [{"id": number, "text": f'{seed} "{number}",\n' + "ä→" * (number % 5)} for number in range(count)]

    def write(self, folder, rows):
        path = folder / "a.csv.gz"
        text = written([["id", "text"], *([row["id"], row["text"]] for row in rows)])
        path.write_bytes(gzip.compress(text, mtime=0))
        return path
