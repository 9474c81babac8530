"""The first rows after a start import nothing that they do not need: pandas alone would take a fifth of a second."""

import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

READS = """
import sys
from detdata import open_corpus
corpus = open_corpus(sys.argv[1])
rows = next(corpus.read(900)), corpus[3], *corpus.take(list(range(0, 1000, 50))), *corpus.take([5, 4])
assert [row["id"] for row in rows] == [900, 3, *range(0, 1000, 50), 5, 4], rows
assert "pandas" not in sys.modules
"""


def write_parquet(path, table):
    pq.write_table(table, path, row_group_size=100)


def write_arrow(path, table):
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=100)


@pytest.mark.skipif(int(pa.__version__.partition(".")[0]) < 26, reason="values go through NumPy there")
@pytest.mark.parametrize("write", [write_parquet, write_arrow], ids=["parquet", "arrow"])
def test_rows_of_arrow_are_read_without_pandas(tmp_path, write):
    path = tmp_path / f"a.{write.__name__.partition('_')[2]}"
    write(path, pa.table({"id": list(range(1000)), "text": ["é"] * 1000, "more": [[1, None]] * 1000}))
    done = subprocess.run([sys.executable, "-c", READS, str(path)], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
