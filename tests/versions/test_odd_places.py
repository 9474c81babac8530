"""What isn't a file at rest, and a current folder that is gone: the message says what is the matter."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from detdata import hash_dataset
from detdata.versions.errors import DatasetError
from detdata.versions.files import digest_file

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
