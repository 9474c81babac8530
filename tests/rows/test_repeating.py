"""Parquet in which a few bytes stand for a long value many times: read a few rows at a time, with the same digests."""

import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from detdata.rows import columnar, hash_rows, repeating
from tests.sources import run_python

TEXT = "x" * 3000
COLUMNS = {
    "string": pa.array([None, "short"] + [TEXT] * 98),
    "large": pa.array([TEXT] * 100, pa.large_string()),
    "coded": pa.array([TEXT, "y"] * 50).dictionary_encode(),
    "fixed": pa.array([TEXT.encode()] * 100, pa.binary(3000)),
    "list.with a dot": pa.array([[TEXT] * 3, None] * 50),
    "map": pa.array([[("k", TEXT)], []] * 50, pa.map_(pa.string(), pa.string())),
    "struct": pa.array([{"a": TEXT, "b.c": [1]}, None] * 50),
    "number": pa.array(range(100)),
}


@pytest.fixture
def batches(monkeypatch):
    """The numbers of rows of the batches that were read."""
    seen = []
    released = columnar._released

    def told(found):
        for batch in released(found):
            seen.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(columnar, "_released", told)
    return seen


@pytest.mark.parametrize("name", [*COLUMNS, "all", "one of all"])
@pytest.mark.parametrize("by_column", [False, True])
def test_the_rows_are_the_same_and_few_at_a_time(tmp_path, monkeypatch, batches, name, by_column):
    table = pa.table(COLUMNS if " all" in f" {name}" else {name: COLUMNS[name]})
    chosen = ["list.with a dot"] if name == "one of all" else None
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, row_group_size=90)
    expected = hash_rows([("a.parquet", path)], columns=chosen)
    batches.clear()
    monkeypatch.setattr(repeating, "_MOST_BYTES", 30_000)
    monkeypatch.setattr(repeating, "_UNSUSPECTED", 0)
    monkeypatch.setattr(repeating, "_LONG", 1 << 20)
    monkeypatch.setattr(columnar, "_SMALL", 0 if by_column else 1 << 40)

    assert expected == hash_rows([("a.parquet", path)], columns=chosen)
    assert by_column or name == "number" or max(batches) <= 20


def test_a_dictionary_of_short_values_is_no_matter(tmp_path, monkeypatch, batches):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": ["short", "words"] * 5000}), path)
    monkeypatch.setattr(repeating, "_UNSUSPECTED", 0)
    hash_rows([("a.parquet", path)])

    assert batches == [10_000]


PEAK = """
import re, sys
from pathlib import Path
from detdata.rows import hash_rows
assert hash_rows([("a.parquet", sys.stdin.read())]).rows == 1000
print(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is told elsewhere in another way")
@pytest.mark.parametrize("wrap", [lambda text: text, lambda text: [text], lambda text: {"a": text}])
def test_values_that_are_stored_once_are_not_unpacked_at_once(tmp_path, wrap):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": pa.array([wrap("x" * 400_000)] * 1000)}), path)

    assert path.stat().st_size < 200_000
    assert int(run_python(PEAK, stdin=str(path)).stdout) * 1024 < 250e6


DAMAGED = """
import random, sys
from contextlib import suppress
from pathlib import Path
from detdata.rows import RowsError, columnar, hash_rows

columnar._SMALL = 0
path, r = Path(sys.stdin.read()), random.Random(3)
data = path.read_bytes()
start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
for _ in range(1000):
    bad = bytearray(data)
    place = r.randrange(start, len(data) - 8)
    bad[place] = r.choice([bad[place] ^ 1 << r.randrange(8), 0x7F, 0xFF, 0x80])
    path.write_bytes(bad)
    with suppress(RowsError):
        hash_rows([("a.parquet", path)])
"""


def test_a_damaged_footer_ends_no_process(tmp_path):
    path = tmp_path / "a.parquet"
    table = pa.table({"a": ["x" * i for i in range(50)], "l": [[i, None] for i in range(50)]})
    pq.write_table(table, path, row_group_size=30)

    assert run_python(DAMAGED, stdin=str(path)).returncode == 0


def test_no_columns_have_no_chunks_to_check(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": [1, 2]}).select([]), path)

    assert hash_rows([("a.parquet", path)]).schema == ()
