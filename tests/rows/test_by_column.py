"""Row groups read a column at a time: the same digests as of batches of rows, and little memory."""

import random
import sys
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from detdata.rows import RowsError, columnar, hash_rows
from tests.rows.test_reading import FORMS, TABLE, N, ids, write
from tests.sources import run_python


@pytest.fixture(autouse=True)
def always(monkeypatch):
    monkeypatch.setattr(columnar, "_SMALL", -1)
    monkeypatch.setattr(columnar, "_PART_BYTES", 3000)


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    return hash_rows([write(tmp_path_factory.mktemp("first") / "a.arrow", TABLE)])


@pytest.mark.parametrize("form", [form for form in FORMS if "Arrow" not in form and "Feather" not in form])
def test_columns_one_after_the_other_are_the_rows(form, tmp_path, expected):
    name, table, options = FORMS[form]

    assert ids(expected) == ids(hash_rows([write(tmp_path / name, table, **options)]))


@pytest.mark.parametrize("stop", [0, 1, 299, 300, 1000, 1001, 4999, N])
def test_a_prefix_has_the_version_of_its_rows_alone(tmp_path, stop):
    files = [
        write(tmp_path / f"{i}.parquet", TABLE.slice(a, 1000), row_group_size=300)
        for i, a in enumerate(range(0, N, 1000))
    ]
    whole = hash_rows(files, stop=stop)

    assert ids(hash_rows([write(tmp_path / "alone.parquet", TABLE.slice(0, stop))])) == ids(whole.prefix)
    assert ids(hash_rows([write(tmp_path / "all.parquet", TABLE)])) == ids(whole)


def test_blocks_that_end_in_a_row_group_are_those_of_rows(tmp_path, monkeypatch):
    rows = 200_000
    table = pa.table({"a": np.arange(rows), "b": pa.array(np.arange(rows) % 7, mask=np.arange(rows) % 5 == 0)})
    file = write(tmp_path / "a.parquet", table, row_group_size=150_000)
    found = hash_rows([file])
    monkeypatch.setattr(columnar, "_MOST_ROWS", 0)

    assert ids(hash_rows([file])) == ids(found)
    assert len(found.blocks) == 4


def test_chosen_columns_and_columns_with_dots_or_of_one_name(tmp_path, monkeypatch):
    a, b = pa.array([1, 2]), pa.array(["x", None])
    tables = {
        "plain": (pa.table({"a": a, "b": b, "c": a}), ["c", "b"]),
        "dots": (pa.table({"a": [{"b": 1}, None], "a.b": b, "c": a}), ["a.b", "a"]),
        "none": (pa.table({"a": a}), []),
    }
    for name, (table, columns) in tables.items():
        file = write(tmp_path / f"{name}.parquet", table)
        found = [hash_rows([file], columns=chosen) for chosen in (columns, None)]
        with monkeypatch.context() as patch:
            patch.setattr(columnar, "_MOST_ROWS", -1)
            assert [ids(hash_rows([file], columns=chosen)) for chosen in (columns, None)] == list(map(ids, found))


def test_progress_tells_row_groups(tmp_path):
    told, batches = [], []
    file = write(tmp_path / "a.parquet", TABLE, row_group_size=1500)
    hash_rows([file], progress=told.append, on_batch=batches.append)

    assert told == [1500, 3000, 4500, 5000]
    assert [batch.rows for batch in batches] == [1500, 1500, 1500, 500]


def test_damaged_files_give_an_error_or_other_digests(tmp_path):
    name, path = write(tmp_path / "a.parquet", TABLE.slice(0, 500), compression="none")
    data, r = path.read_bytes(), random.Random(0)
    errors = 0
    for _ in range(60):
        bad = bytearray(data)
        bad[r.randrange(4, len(bad) // 2)] ^= 1 << r.randrange(8)
        path.write_bytes(bad)
        with suppress(RowsError):
            hash_rows([(name, path)])
            continue
        errors += 1
    assert errors


PEAK = """
import re, sys
from contextlib import suppress
from pathlib import Path
import pyarrow.parquet
with suppress(ImportError):  # pyarrow would import it meanwhile, where it is installed
    import pandas
from detdata.rows import hash_rows

def peak():  # the rusage has the parent's in it
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

before = peak()
hash_rows([("a.parquet", sys.stdin.read())])
print(peak() - before)
"""


def texts(rows):
    """About 340 bytes and 60 numbers a row."""
    draw = np.random.default_rng(7)
    letters = "".join(map(chr, draw.integers(97, 123, 100_000)))
    starts, sizes = draw.integers(0, 90_000, rows).tolist(), draw.integers(30, 640, rows).tolist()
    edges = pa.array(np.append(0, np.cumsum(draw.integers(0, 120, rows))), pa.int32())
    tokens = pa.array(draw.integers(0, 50_000, edges[-1].as_py()), pa.int32())
    return {
        "text": [letters[start : start + size] for start, size in zip(starts, sizes, strict=True)],
        "tokens": pa.ListArray.from_arrays(edges, tokens),
        "score": pa.array(draw.random(rows), mask=draw.random(rows) < 0.05),
    }


def numbers(rows):
    draw = np.random.default_rng(1)
    return {
        "id": np.arange(rows),
        "x": draw.random(rows),
        "k": pa.array(draw.integers(0, 1000, rows)).cast(pa.string()),
    }


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is told elsewhere in another way")
@pytest.mark.parametrize(("make", "rows", "group"), [(texts, 240_000, 120_000), (numbers, 2_000_000, 1_000_000)])
def test_hashing_large_row_groups_takes_less_than_33_mb(tmp_path, make, rows, group):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table(make(rows)), path, compression="zstd", row_group_size=group)

    # Beyond the imports: how much of the libraries' own code counts as in memory is up to the system, and differs by
    # 40 MB. Measured 20 to 28; 37 and more for the texts if all columns are held at once, or a column chunk whole.
    assert int(run_python(PEAK, stdin=str(path)).stdout) * 1024 < 33e6
