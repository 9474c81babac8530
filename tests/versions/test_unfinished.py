"""A huge file hashed in pieces goes on where it was, and never with a digest of bytes that it hasn't got any more."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from detdata import hash_dataset
from detdata.versions import cache as cache_module
from detdata.versions import jobs
from detdata.versions.errors import DatasetError
from detdata.versions.files import stat_file
from detdata.versions.means import Means
from detdata.versions.scan import scan_paths
from detdata.versions.unfinished import Unfinished

MIB = 2**20
PIECES = 64


@pytest.fixture
def settled(monkeypatch):
    """A clock so coarse that it has always been long ago: what was just written counts as settled."""
    monkeypatch.setattr(cache_module, "GRAIN_NS", -(10**12))


@pytest.fixture(scope="module")
def huge(tmp_path_factory):
    """A folder with a file of 64 MiB in which no two pieces are alike, and a small one."""
    root = tmp_path_factory.mktemp("huge") / "data"
    root.mkdir()
    (root / "small").write_bytes(b"small")
    with (root / "huge").open("wb") as file:
        for i in range(PIECES):
            file.write(i.to_bytes(8, "little") * (MIB // 8))
    return root


@pytest.fixture
def pieces_read(monkeypatch):
    """The numbers of the pieces of 1 MiB that were read, in order."""
    read = []
    real = jobs.digest_piece

    def counting(path, algorithm, start, stop, *rest):
        read.extend(range(start // MIB, stop // MIB))
        return real(path, algorithm, start, stop, *rest)

    monkeypatch.setattr(jobs, "digest_piece", counting)
    monkeypatch.setattr(jobs, "_RUN", MIB)
    return read


def scan(root, cache, **means):
    return scan_paths(root, means=Means(cache=cache, **means), piece_size=MIB)


KILLED = """
import os, pathlib, signal, sys, time
from detdata.versions import cache, jobs
from detdata.versions.means import Means
from detdata.versions.scan import scan_paths
cache.GRAIN_NS, jobs._RUN = -(10**12), 2**20
real = jobs.digest_piece
def dying(path, algorithm, start, *rest):
    if start == 40 * 2**20:
        while sum(file.stat().st_size for file in pathlib.Path(sys.argv[2]).glob("*.pieces")) < 37 + 40 * 24:
            time.sleep(0.01)  # the thread that takes the answers may be behind
        os.kill(os.getpid(), signal.SIGKILL)
    return real(path, algorithm, start, *rest)
jobs.digest_piece = dying
scan_paths(sys.argv[1], means=Means(cache=sys.argv[2], workers=1), piece_size=2**20)
"""


def kill_at_piece_40(root, cache):
    done = subprocess.run([sys.executable, "-c", KILLED, root, cache], capture_output=True, check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.mark.usefixtures("settled")
def test_after_a_sigkill_only_the_missing_pieces_are_read(huge, tmp_path, pieces_read):
    whole = hash_dataset(huge, piece_size=MIB)
    pieces_read.clear()
    kill_at_piece_40(huge, tmp_path)
    assert [file.suffix for file in tmp_path.iterdir()] == [".pieces"]

    seen = []
    again = scan(huge, tmp_path, progress=lambda now: seen.append(now.bytes))
    assert again.manifest == whole
    assert sorted(pieces_read) == list(range(40, PIECES))
    assert seen[-1] == PIECES * MIB + 5
    assert [file.suffix for file in tmp_path.iterdir()] == [".digests"]
    assert scan(huge, tmp_path).trusted == 2


@pytest.mark.usefixtures("settled")
def test_with_an_executor_only_the_missing_pieces_are_read(huge, tmp_path, pieces_read):
    kill_at_piece_40(huge, tmp_path)
    seen = []
    with ThreadPoolExecutor(2) as executor:
        again = scan(huge, tmp_path, executor=executor, progress=lambda now: seen.append(now.bytes))
    assert sorted(pieces_read) == list(range(40, PIECES))
    assert seen[-1] == PIECES * MIB + 5
    assert again.manifest == hash_dataset(huge, piece_size=MIB)


@pytest.mark.usefixtures("settled")
def test_a_full_run_reads_every_piece(huge, tmp_path, pieces_read):
    kill_at_piece_40(huge, tmp_path)
    assert scan(huge, tmp_path, quick=False).manifest == hash_dataset(huge, piece_size=MIB)
    assert sorted(pieces_read[:PIECES]) == list(range(PIECES))


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("change", ["edit", "times", "inode", "piece size", "algorithm"])
def test_another_file_or_way_starts_anew(huge, tmp_path, pieces_read, change):
    root = tmp_path / "data"
    root.mkdir()
    for name in ("huge", "small"):
        (root / name).write_bytes((huge / name).read_bytes())
    kill_at_piece_40(root, tmp_path / "cache")
    before, ways = (root / "huge").stat(), {"piece_size": MIB}
    if change == "edit":  # of the same size, in a piece that was read, and with the mtime put back
        with (root / "huge").open("r+b") as file:
            file.write(b"edited")
        os.utime(root / "huge", ns=(before.st_atime_ns, before.st_mtime_ns))
    elif change == "times":
        os.utime(root / "huge", ns=(0, 0))
    elif change == "inode":
        (root / "copy").write_bytes((root / "huge").read_bytes())
        os.utime(root / "copy", ns=(before.st_atime_ns, before.st_mtime_ns))
        (root / "copy").replace(root / "huge")
    else:
        ways = {"piece_size": 2 * MIB} if change == "piece size" else {"piece_size": MIB, "algorithm": "sha256"}
    found = scan_paths(root, means=Means(cache=tmp_path / "cache"), **ways)
    assert sorted(set(pieces_read)) == list(range(PIECES))
    assert found.manifest == hash_dataset(root, **ways)


def test_a_file_that_was_just_written_keeps_no_journal(huge, tmp_path):
    found = stat_file(huge / "huge")
    unfinished = Unfinished(tmp_path, "xxh3-128", MIB, quick=True)
    fresh = found._replace(ctime_ns=time.time_ns())
    assert unfinished.journal(str(huge / "huge"), fresh) is None
    unfinished.finish(unfinished.journal(str(huge / "huge"), found._replace(mtime_ns=0, ctime_ns=0)))
    assert [file.suffix for file in tmp_path.iterdir()] == [".pieces"]
    unfinished.sweep()
    assert list(tmp_path.iterdir()) == []


def journal_of(folder, path="f", found=None):
    found = found or stat_file(__file__)._replace(mtime_ns=0, ctime_ns=0)
    return Unfinished(folder, "xxh3-128", MIB, quick=True).journal(path, found)


def known_in(folder, count=10):
    journal = journal_of(folder)
    try:
        return b"".join(journal.known(count))
    finally:
        journal.close()


def test_of_a_damaged_journal_only_the_sound_beginning_counts(tmp_path):
    digests = [bytes([i]) * 16 for i in range(10)]
    journal = journal_of(tmp_path)
    journal.add(b"".join(digests))
    journal.close()
    content = journal.file.read_bytes()
    head = len(content) - 10 * 24
    for at in (*range(0, head, 5), *range(head, len(content), 5)):
        journal.file.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        known = known_in(tmp_path, 10)
        assert known == b"".join(digests[: max(0, at - head) // 24] if at >= head else [])
        journal.file.write_bytes(content[:at])
        assert known_in(tmp_path, 10) == b"".join(digests[: max(0, at - head) // 24])
    journal.file.write_bytes(content)
    assert known_in(tmp_path, 4) == b"".join(digests[:4])


def test_what_is_no_file_in_a_journals_place_is_not_waited_for(tmp_path):
    journal = journal_of(tmp_path)
    journal.close()
    journal.file.unlink()
    os.mkfifo(journal.file)
    assert known_in(tmp_path) == b""
    assert journal.file.is_file()  # begun anew


def test_two_processes_that_write_one_journal_do_no_harm(tmp_path):
    digests = [bytes([i]) * 16 for i in range(10)]
    one = journal_of(tmp_path)
    one.add(b"".join(digests[:6]))
    other = journal_of(tmp_path)
    assert b"".join(other.known(3)) == b"".join(digests[:3])
    other.add(digests[3])
    one.add(digests[6])
    one.close()
    other.close()
    assert known_in(tmp_path, 10) == b"".join(digests[:7])


@pytest.mark.usefixtures("settled")
def test_a_cache_that_cannot_be_written_costs_nothing_but_time(huge, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    assert scan(huge, tmp_path / "file" / "cache").manifest == hash_dataset(huge, piece_size=MIB)


@pytest.mark.usefixtures("settled")
def test_a_file_that_changes_between_its_pieces_is_an_error(huge, tmp_path, monkeypatch):
    root = tmp_path / "data"
    root.mkdir()
    (root / "huge").write_bytes((huge / "huge").read_bytes())
    real = jobs.digest_piece

    def changing(path, algorithm, start, *rest):
        if start == 32 * MIB:
            os.utime(path, ns=(0, 0))
        return real(path, algorithm, start, *rest)

    monkeypatch.setattr(jobs, "digest_piece", changing)
    with pytest.raises(DatasetError, match="changed"):
        scan(root, tmp_path / "cache")
    monkeypatch.undo()
    assert scan(root, tmp_path / "cache").manifest == hash_dataset(root, piece_size=MIB)
