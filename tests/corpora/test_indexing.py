"""Where indexes are stored, when they are used, and that nothing that happens to them costs more than time."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from detdata import CorpusUnreadable, hash_dataset, open_corpus
from detdata.corpora import index_file
from detdata.corpora.jsonl import JsonLines
from tests.corpora.rows_of_lines import numbered, write_lines
from tests.sources import ROOT


@pytest.fixture
def outlines(monkeypatch):
    """The names of the files that were read for their outlines."""
    made = []
    outline = JsonLines.outline

    def watched(self, file, options, progress=None):
        made.append(Path(file.name).name)
        return outline(self, file, options, progress)

    monkeypatch.setattr(JsonLines, "outline", watched)
    return made


def indexes(folder):
    return sorted(path.name for path in folder.rglob("*") if "detdata-index" in path.name)


def test_where_an_index_goes(tmp_path, outlines):
    path = write_lines(tmp_path / "data" / "a.jsonl", numbered(3))
    cache = tmp_path / "cache"
    for index, beside, cached, made in [("no", 0, 0, 1), ("cache", 0, 1, 1), ("auto", 0, 1, 0), ("beside", 0, 1, 0)]:
        outlines.clear()
        assert list(open_corpus(path, index=index, index_folder=cache)) == numbered(3)
        assert (len(indexes(tmp_path / "data")), len(indexes(cache)), len(outlines)) == (beside, cached, made)
    shutil.rmtree(cache)
    open_corpus(path, index_folder=cache)
    assert (indexes(tmp_path / "data"), cache.exists()) == (["a.jsonl.detdata-index"], False)


def test_a_folder_that_cannot_be_written_to_is_no_trouble(tmp_path, monkeypatch, outlines):
    path = write_lines(tmp_path / "data" / "a.jsonl", numbered(3))
    replace, refused = os.replace, []

    def no(source, target):
        if Path(target).parent == tmp_path / "data":
            refused.append(target)
            raise OSError(errno.EROFS, "Read-only file system")
        replace(source, target)

    monkeypatch.setattr(index_file.os, "replace", no)
    for _ in range(2):
        assert list(open_corpus(path, index_folder=tmp_path / "cache")) == numbered(3)
    assert (len(refused), outlines, len(indexes(tmp_path / "cache"))) == (1, ["a.jsonl"], 1)
    assert indexes(tmp_path / "data") == []


def test_a_full_disk_is_no_trouble(tmp_path, monkeypatch, outlines):
    path = write_lines(tmp_path / "data" / "a.jsonl", numbered(3))

    def full(source, target):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(index_file.os, "replace", full)
    for _ in range(2):
        assert list(open_corpus(path, index_folder=tmp_path / "cache")) == numbered(3)
    assert outlines == ["a.jsonl", "a.jsonl"]
    assert indexes(tmp_path) == []


def test_a_cache_folder_that_is_a_file_is_no_trouble(tmp_path):
    path = write_lines(tmp_path / "data" / "a.jsonl", numbered(3))
    (tmp_path / "cache").touch()
    assert list(open_corpus(path, index="cache", index_folder=tmp_path / "cache")) == numbered(3)


def test_an_edit_right_after_a_copy_was_opened_is_noticed(tmp_path):
    """The copy has an index that holds by its digest, and is edited in the tick of the clock in which it was made."""
    path = write_lines(tmp_path / "a.jsonl", [{"id": n} for n in range(10, 20)])
    open_corpus(path)
    for number in range(20):
        copy = tmp_path / f"copy-{number}.jsonl"
        shutil.copyfile(f"{path}.detdata-index", f"{copy}.detdata-index")
        shutil.copyfile(path, copy)
        corpus = open_corpus(copy)
        with copy.open("r+b") as file:
            file.write(b'{"id": 99}')
        with pytest.raises(CorpusUnreadable, match="has changed"):
            corpus[0]
        assert open_corpus(copy)[0] == {"id": 99}


def test_a_file_dated_ahead_is_settled_too(tmp_path):
    """Its other time, which nobody can set, is not ahead, and tells an edit."""
    ahead = time.time_ns() + 10**15
    for number in range(20):
        path = write_lines(tmp_path / f"{number}.jsonl", [{"id": n} for n in range(10, 20)])
        os.utime(path, ns=(ahead, ahead))
        corpus = open_corpus(path)
        with path.open("r+b") as file:
            file.write(b'{"id": 99}')
        os.utime(path, ns=(ahead, ahead))
        with pytest.raises(CorpusUnreadable, match="has changed"):
            corpus[0]
        assert open_corpus(path)[0] == {"id": 99}


def test_a_folder_is_looked_through_for_leftovers_once(tmp_path, monkeypatch):
    looks = []
    monkeypatch.setattr(index_file, "remove_leftovers", lambda folder, endings: looks.append(folder))
    for number in range(20):
        write_lines(tmp_path / f"{number}.jsonl", numbered(2))
    open_corpus(tmp_path)
    assert looks == [str(tmp_path)]


def test_a_leftover_is_no_data_and_goes_when_it_is_old(tmp_path):
    write_lines(tmp_path / "a.jsonl", numbered(2))
    left = tmp_path / f".tmp-{'0' * 16}.detdata-index"
    left.write_bytes(b"half")
    os.utime(left, (1, 1))
    assert len(open_corpus(tmp_path)) == 2
    assert not left.exists()


def test_indexes_are_no_part_of_a_version(tmp_path):
    write_lines(tmp_path / "a.jsonl", numbered(2))
    before = hash_dataset(tmp_path).digest
    (tmp_path / f".tmp-{'0' * 16}.detdata-index").write_bytes(b"half")
    corpus = open_corpus(tmp_path)
    assert indexes(tmp_path) != []
    assert hash_dataset(tmp_path).digest == before
    assert corpus.version() == open_corpus(tmp_path).version()


RUN = "import sys, detdata; print(sum(row['id'] for row in detdata.open_corpus(sys.argv[1])))"


def start(*arguments):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, env=environment)


def test_two_processes_may_index_at_once(tmp_path):
    for number in range(5):
        write_lines(tmp_path / f"{number}.jsonl", numbered(2000))
    runs = [start("-c", RUN, str(tmp_path)) for _ in range(2)]
    assert [run.communicate(timeout=100)[0] for run in runs] == [b"9995000\n"] * 2
    assert indexes(tmp_path) == [f"{number}.jsonl.detdata-index" for number in range(5)]


KILLED = """
import os, signal, sys
from detdata.corpora import index_file
whole = index_file.index_parts
def half(*arguments):
    for piece in whole(*arguments):
        yield piece
        left[0] -= 1
        if not left[0]:
            sys.stdout.flush(); os.kill(os.getpid(), signal.SIGKILL)
left = [int(sys.argv[2])]
index_file.index_parts = half
import detdata
detdata.open_corpus(sys.argv[1])
print("done")
"""


@pytest.mark.parametrize("pieces", [1, 2, 4])
def test_a_kill_while_an_index_is_written_leaves_nothing_that_counts(tmp_path, pieces):
    write_lines(tmp_path / "a.jsonl", numbered(100))
    before = hash_dataset(tmp_path).digest
    run = start("-c", KILLED, str(tmp_path), str(pieces))
    assert (run.communicate(timeout=100)[0], run.returncode) == (b"", -signal.SIGKILL)
    assert [name for name in indexes(tmp_path) if not name.startswith(".tmp-")] == []

    assert hash_dataset(tmp_path).digest == before
    assert list(open_corpus(tmp_path)) == numbered(100)
    assert indexes(tmp_path)[-1] == "a.jsonl.detdata-index"
