"""What isn't a file at rest, and a current folder that is gone: the message says what is the matter."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from detdata import hash_dataset
from detdata.versions.errors import DatasetError
from detdata.versions.files import SMALL, digest_file, stat_file
from detdata.versions.jobs import THREADED
from tests.versions.trees import make_tree

needs_proc = pytest.mark.skipif(not Path("/proc/version").is_file(), reason="needs /proc")


@needs_proc
@pytest.mark.parametrize("piece_size", [0, 64])
def test_a_file_that_is_made_as_it_is_read_is_said_to_be_none_at_rest(piece_size):
    with pytest.raises(DatasetError, match=r"more bytes than the 0 that it says it has, .* no file at rest"):
        digest_file("/proc/version", "xxh3-128", piece_size)


@needs_proc
def test_a_dataset_with_such_a_file_is_refused(tmp_path):
    (tmp_path / "link").symlink_to("/proc/version")
    with pytest.raises(DatasetError, match=r"link: .*no file at rest"):
        hash_dataset(tmp_path)


GONE = """
import os, sys, tempfile
import detdata
folder = tempfile.mkdtemp()
os.chdir(folder)
os.rmdir(folder)
manifest = detdata.Manifest.build([], [], [])
for call in (
    lambda: detdata.hash_dataset("."),
    lambda: detdata.hash_dataset("data"),
    lambda: detdata.hash_dataset("*.txt"),
    lambda: manifest.save("data.lock.json"),
    lambda: manifest.verify("."),
):
    try:
        call()
    except detdata.DatasetError as error:
        print(error)
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows keeps a folder that is somebody's current one")
def test_a_current_folder_that_is_gone_is_said_to_be_gone():
    done = subprocess.run([sys.executable, "-c", GONE], capture_output=True, text=True, check=False, timeout=60)
    lines = done.stdout.splitlines()
    assert (done.returncode, len(lines)) == (0, 5), done.stderr
    assert all("the current folder is gone" in line and "cd" in line for line in lines), lines


FAR = {"in 2300": 10_413_792_000 * 10**9, "just after 63 bits": 2**63 + 5, "in 1910": -1_893_456_000 * 10**9}


@pytest.mark.parametrize("date", FAR.values(), ids=FAR)
@pytest.mark.parametrize("ways", [{}, {"piece_size": 2**16}, {"symlinks": "record"}, {"content": "rows"}], ids=str)
def test_a_file_of_any_date_is_hashed_and_remembered(tmp_path, date, ways):
    root = make_tree(tmp_path / "data", {"s": b"1", "m": b"2" * (SMALL + 1), "l": b"3" * (THREADED + 1)})
    if ways.get("content") == "rows":
        root = make_tree(tmp_path / "tables", {})
        pq.write_table(pa.table({"a": [1, 2]}), root / "a.parquet")
    plain = hash_dataset(root, **ways)
    for file in root.iterdir():
        os.utime(file, ns=(date, date))
        if file.stat().st_mtime_ns != date:
            pytest.skip("a file system whose dates do not go so far")

    assert hash_dataset(root, cache=tmp_path / "cache", **ways) == plain
    assert plain.verify(root, quick=True, cache=tmp_path / "cache").ok


def test_a_date_far_ahead_that_moves_is_a_change(tmp_path):
    file = make_tree(tmp_path, {"a": b"1"}) / "a"
    for earlier, later in ((2**63 + 5, 2**63 + 6), (5, 2**63 + 5)):
        os.utime(file, ns=(earlier, earlier))
        before = stat_file(file)
        os.utime(file, ns=(later, later))
        with pytest.raises(DatasetError, match="mtime_ns"):
            digest_file(file, "xxh3-128", expect=before)
