"""Rows are hashed with a cache, with progress and by any executor, and none of it changes what comes out."""

import json
import os
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from detdata import DatasetError, hash_dataset
from detdata.rows import RowsError
from detdata.versions import cache as module
from detdata.versions import tables
from detdata.versions.means import Means
from detdata.versions.scan import scan_paths


@pytest.fixture
def settled(monkeypatch):
    """A clock so coarse that it has always been long ago: what was just written counts as settled."""
    monkeypatch.setattr(module, "GRAIN_NS", -(10**12))


@pytest.fixture
def data(tmp_path):
    """Tables of three formats with the same columns."""
    folder = tmp_path / "data"
    folder.mkdir()
    for i in range(4):
        part = pa.table({"a": [f"{i} {j}" for j in range(1000)], "b": [str(j) for j in range(1000)]})
        if i % 2:
            pq.write_table(part, folder / f"{i}.parquet", row_group_size=300)
        else:
            pyarrow.csv.write_csv(part, folder / f"{i}.csv")
    return folder


def scan(root, cache, **means):
    return scan_paths(root, content="rows", means=Means(cache=cache, **means))


@pytest.mark.usefixtures("settled")
def test_unchanged_tables_are_not_read_again(data, tmp_path, monkeypatch):
    first = scan(data, tmp_path / "cache")
    monkeypatch.setattr(tables, "hash_rows", lambda *_, **__: 1 / 0)
    second = scan(data, tmp_path / "cache")

    assert (first.read, first.trusted) == (4, 0)
    assert (second.read, second.trusted, second.trusted_files) == (0, 4, first.manifest.paths)
    assert second.manifest.to_text() == first.manifest.to_text()
    report = first.manifest.verify(data, quick=True, cache=tmp_path / "cache")
    assert (report.ok, report.quick, report.trusted, report.to_dict()["trusted_files"]) == (
        True,
        True,
        4,
        [*first.manifest.paths],
    )
    with pytest.raises(ZeroDivisionError):  # in full everything is read
        first.manifest.verify(data, cache=tmp_path / "cache")


def test_a_table_changed_within_the_clocks_grain_is_not_trusted(data, tmp_path):
    scan(data, tmp_path / "cache")

    assert scan(data, tmp_path / "cache").trusted == 0


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("change", ["edit", "touch", "added", "removed", "renamed", "rules", "algorithm"])
def test_whatever_changed_all_is_read(data, tmp_path, change):
    scan(data, tmp_path / "cache")
    ways = {}
    if change == "edit":
        before = (data / "0.csv").stat()
        with (data / "0.csv").open("r+b") as file:
            file.seek(10)
            file.write(b"7")
        os.utime(data / "0.csv", ns=(before.st_atime_ns, before.st_mtime_ns))
    elif change == "touch":
        (data / "0.csv").touch()
    elif change == "added":
        (data / "9.csv").write_bytes(b"a,b\n")
    elif change == "removed":
        (data / "0.csv").unlink()
    elif change == "renamed":
        (data / "0.csv").rename(data / "00.csv")
    elif change == "rules":
        ways = {"exclude": ["3.*"]}
    else:
        ways = {"algorithm": "sha256"}

    again = scan_paths(data, content="rows", means=Means(cache=tmp_path / "cache"), **ways)
    assert again.trusted == 0
    assert again.manifest.to_text() == hash_dataset(data, content="rows", **ways).to_text()


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("damage", ["torn", "other", "gone", "pipe", "swapped"])
def test_a_damaged_record_counts_as_none(data, tmp_path, damage):
    expected = scan(data, tmp_path / "cache").manifest
    (file,) = (tmp_path / "cache").glob("*.rows")
    text = file.read_bytes()
    if damage == "torn":
        file.write_bytes(text[:-9])
    elif damage == "other":
        record = json.loads(text)
        record[0]["digest"] = "0" * 32
        file.write_bytes(json.dumps(record).encode())
    elif damage == "gone":
        file.unlink()
    elif damage == "pipe":
        file.unlink()
        os.mkfifo(file)
    else:  # the record of another state, as a run that was killed between two writes may leave it
        (data / "9.csv").write_bytes(b"a,b\n")
        scan(data, tmp_path / "cache")
        (data / "9.csv").unlink()
        assert scan(data, tmp_path / "cache").trusted == 0
        return

    again = scan(data, tmp_path / "cache")
    assert (again.trusted, again.manifest.to_text()) == (0, expected.to_text())


@pytest.mark.usefixtures("settled")
def test_growth_is_told_from_the_cache_too(data, tmp_path):
    manifest = hash_dataset(data, content="rows")
    (data / "9.csv").write_bytes(b"a,b\nx,y\n")
    hash_dataset(data, content="rows", cache=tmp_path / "cache")  # without the version of the first rows

    for trusted in (0, 5):
        report = manifest.verify(data, quick=True, cache=tmp_path / "cache")
        assert (report.grown, report.trusted) == (True, trusted)


def test_progress_goes_up_to_all_bytes_and_files(data):
    seen = []
    hash_dataset(data, content="rows", progress=seen.append)

    total = sum(file.stat().st_size for file in data.iterdir())
    assert [(now.bytes, now.files) for now in seen] == sorted((now.bytes, now.files) for now in seen)
    assert {(now.total_files, now.total_bytes) for now in seen} == {(4, total)}
    assert (seen[0].bytes, seen[-1].bytes, seen[-1].files) == (0, total, 4)
    assert len(seen) > 8


def test_progress_within_one_table_is_told(tmp_path):
    for name in ("a.parquet", "a.csv"):
        folder = tmp_path / name[2:]
        folder.mkdir()
        table = pa.table({"a": [f"{i:030d}" for i in range(400_000)]})
        if name == "a.csv":
            pyarrow.csv.write_csv(table, folder / name)
        else:
            pq.write_table(table, folder / name, row_group_size=50_000)
        seen = []
        hash_dataset(folder, content="rows", progress=seen.append)
        inside = [now for now in seen if 0 < now.bytes < now.total_bytes]
        assert inside
        assert all(now.files == 0 for now in inside)


def test_a_table_that_changes_while_it_is_read_has_no_version(data):
    def touch(now):
        if now.files == 2:
            (data / "0.csv").touch()

    with pytest.raises(DatasetError, match=r"0\.csv: changed while it was read"):
        hash_dataset(data, content="rows", progress=touch)


# --- on executors ---


def executors():
    yield "threads", lambda: ThreadPoolExecutor(3)
    yield "fork", lambda: ProcessPoolExecutor(2, mp_context=get_context("fork"))
    yield "spawn", lambda: ProcessPoolExecutor(2, mp_context=get_context("spawn"))


@pytest.mark.parametrize(("name", "make"), list(executors()))
def test_no_executor_changes_anything(data, tmp_path, name, make):
    alone = hash_dataset(data, content="rows")
    seen = []

    with make() as executor:
        found = hash_dataset(data, content="rows", executor=executor, progress=seen.append)
        assert alone.verify(data, executor=executor).ok
    assert found.to_text() == alone.to_text()
    assert hash_dataset(data, content="rows", workers=2).to_text() == alone.to_text()
    total = sum(file.stat().st_size for file in data.iterdir())
    assert [now.files for now in seen] == sorted(now.files for now in seen)
    assert (seen[0].bytes, seen[-1].bytes, seen[-1].files) == (0, total, 4)


def test_on_an_executor_errors_and_reports_are_the_same(data):
    manifest = hash_dataset(data, content="rows")
    (data / "9.csv").write_bytes(b"a,b\nx,y\n")
    with ThreadPoolExecutor(2) as executor:
        report = manifest.verify(data, executor=executor)
        assert (report.grown, report.rows.unproved) == (True, 0)
        (data / "1.parquet").write_bytes(b"")
        with pytest.raises(RowsError) as caught:
            hash_dataset(data, content="rows", executor=executor)
        with pytest.raises(RowsError) as alone:
            hash_dataset(data, content="rows")
        assert str(caught.value) == str(alone.value)
        assert manifest.verify(data, executor=executor).rows.faults == manifest.verify(data).rows.faults
