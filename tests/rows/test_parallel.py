"""Tables hashed side by side have the digests that they have one after the other, wherever blocks begin and end."""

from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detdata.rows import RowsError, hash_rows, hash_rows_on, hasher, parallel, version


@pytest.fixture
def small(monkeypatch):
    """Blocks of 8 rows, so that few rows have many of them."""
    for module in (hasher, parallel):
        monkeypatch.setattr(module, "BLOCK_ROWS", 8)
    monkeypatch.setattr(parallel, "_RUN", 20)
    monkeypatch.setattr(parallel, "_COUNTED", 3)


@pytest.fixture(scope="module")
def executor():
    with ThreadPoolExecutor(2) as pool:
        yield pool


def written(folder, parts, kinds):
    files = []
    for number, (part, kind) in enumerate(zip(parts, kinds, strict=True)):
        path = folder / f"{number}.{kind}"
        table = pa.table({"a": pa.array([str(value) for value in part], pa.string()), "b": pa.array(["x"] * len(part))})
        table = table.cast(pa.schema([("a", pa.string()), ("b", pa.string())]))
        if kind == "csv":
            pyarrow.csv.write_csv(table, path)
        elif kind == "arrow":
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table, max_chunksize=5)
        elif kind == "jsonl":
            path.write_text("".join(f'{{"a": "{value}", "b": "x"}}\n' for value in part) or "")
        else:
            pq.write_table(table, path, row_group_size=7 if len(part) < 1000 else 10_000)
        files.append((path.name, path))
    return files


@pytest.mark.usefixtures("small")
@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=6),
    st.data(),
    st.one_of(st.none(), st.integers(0, 130)),
)
def test_side_by_side_and_one_after_the_other_are_the_same(tmp_path_factory, executor, sizes, data, stop):
    kinds = data.draw(st.lists(st.sampled_from(["parquet", "csv", "arrow"]), min_size=len(sizes), max_size=len(sizes)))
    parts = [range(i * 100, i * 100 + size) for i, size in enumerate(sizes)]
    files = written(tmp_path_factory.mktemp("t"), parts, kinds)
    done = []

    alone = hash_rows(files, stop=stop)
    found = hash_rows_on(executor, files, stop=stop, on_file=done.append)

    assert found == alone
    assert done == list(range(len(files)))
    assert (found.prefix is None) == (alone.prefix is None)
    if alone.prefix is not None:
        for name in ("rows", "digest", "blocks", "files"):
            assert getattr(found.prefix, name) == getattr(alone.prefix, name)


@pytest.mark.usefixtures("small")
def test_json_lines_have_the_types_of_all_files(tmp_path, executor):
    files = written(tmp_path, [range(20), range(3), range(0), range(9)], ["jsonl"] * 4)
    (tmp_path / "1.jsonl").write_text('{"a": null, "c": 1}\n' * 11)
    (tmp_path / "3.jsonl").write_text('{"c": 1.5}\n' * 11)

    assert hash_rows_on(executor, files, "sha256", stop=21) == hash_rows(files, "sha256", stop=21)


def test_blocks_as_they_are(tmp_path, executor):
    rows = version.BLOCK_ROWS
    files = written(tmp_path, [range(rows + 5), range(2 * rows), range(rows - 5)], ["parquet"] * 3)

    for stop in (None, rows, rows + 5, 3 * rows - 1, 4 * rows):
        found, alone = hash_rows_on(executor, files, stop=stop), hash_rows(files, stop=stop)
        assert found == alone
        assert (found.prefix and found.prefix.digest) == (alone.prefix and alone.prefix.digest)


@pytest.mark.parametrize("fault", ["emptied", "types", "gone"])
def test_errors_are_those_of_one_after_the_other(tmp_path, executor, fault):
    files = written(tmp_path, [range(20)] * 3, ["parquet"] * 3)
    if fault == "emptied":
        files[1][1].write_bytes(b"")
    elif fault == "types":
        pq.write_table(pa.table({"a": [1], "b": ["x"]}), files[1][1])
    else:
        files[1][1].unlink()

    with pytest.raises(RowsError) as alone:
        hash_rows(files)
    with pytest.raises(RowsError) as caught:
        hash_rows_on(executor, files)
    assert str(caught.value) == str(alone.value)
