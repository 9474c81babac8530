"""Remembered digests: they save reading, and never stand for bytes that they are not of."""

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from detdata import DatasetError, hash_dataset
from detdata.versions import cache as module
from detdata.versions.cache import DigestCache
from detdata.versions.means import Means
from detdata.versions.scan import scan_paths
from detdata.versions.stats import Stats
from detdata.versions.walk import list_files
from tests.versions.trees import PLAIN, make_tree

LONG_AGO = 1_000_000_000 * 10**9


@pytest.fixture
def settled(monkeypatch):
    """A clock so coarse that it has always been long ago: what was just written counts as settled."""
    monkeypatch.setattr(module, "GRAIN_NS", -(10**12))


def scan(root, cache, **means):
    return scan_paths(root, means=Means(cache=cache, **means))


def edit_keeping_the_mtime(file, data):
    before = file.stat()
    with file.open("r+b") as handle:
        handle.write(data)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert file.stat().st_mtime_ns == before.st_mtime_ns


@pytest.mark.usefixtures("settled")
def test_the_second_time_nothing_is_read(tmp_path):
    root = make_tree(tmp_path / "data", PLAIN)
    first, second = (scan(root, tmp_path / "cache") for _ in range(2))

    assert (first.read, first.trusted) == (5, 0)
    assert (second.read, second.trusted) == (0, 5)
    assert first.manifest == second.manifest


@pytest.mark.usefixtures("settled")
def test_a_same_size_edit_with_the_mtime_put_back_is_read_again(tmp_path):
    root = make_tree(tmp_path / "data", PLAIN)
    manifest = scan(root, tmp_path / "cache").manifest
    edit_keeping_the_mtime(root / "a.txt", b"ONE")

    for quick in (True, False):
        report = manifest.verify(root, quick=quick, cache=tmp_path / "cache")
        assert [change.path for change in report.changed] == ["a.txt"]
        assert (report.read, report.trusted) == ((1, 4) if quick else (5, 0))


@pytest.mark.usefixtures("settled")
def test_another_inode_with_the_same_content_is_no_change(tmp_path):
    root = make_tree(tmp_path / "data", PLAIN)
    manifest = scan(root, tmp_path / "cache").manifest
    shutil.copy2(root / "a.txt", root / "copy")
    (root / "copy").replace(root / "a.txt")

    report = manifest.verify(root, quick=True, cache=tmp_path / "cache")
    assert report.ok
    assert report.read == 1


def test_a_file_changed_within_the_clocks_grain_is_not_trusted(tmp_path):
    root = make_tree(tmp_path / "data", PLAIN)
    os.utime(root / "b.txt", ns=(LONG_AGO, LONG_AGO))  # its ctime is now all the same

    scan(root, tmp_path / "cache")
    assert scan(root, tmp_path / "cache").trusted == 0


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("change", ["size", "added", "removed", "renamed"])
def test_what_is_new_is_read_and_the_rest_is_not(tmp_path, change):
    root = make_tree(tmp_path / "data", PLAIN)
    scan(root, tmp_path / "cache")
    if change == "size":
        (root / "a.txt").write_bytes(b"longer")
    elif change == "added":
        (root / "0").write_bytes(b"")
    elif change == "removed":
        (root / "a.txt").unlink()
    else:
        (root / "a.txt").rename(root / "z.txt")

    again = scan(root, tmp_path / "cache")
    assert again.read == (0 if change == "removed" else 1)
    assert again.manifest == hash_dataset(root)


@pytest.mark.usefixtures("settled")
def test_other_ways_of_hashing_are_remembered_apart(tmp_path):
    root = make_tree(tmp_path / "data", PLAIN)
    scan(root, tmp_path / "cache")

    for ways in ({"algorithm": "sha256"}, {"piece_size": 2**16}, {"symlinks": "record"}):
        found = scan_paths(root, means=Means(cache=tmp_path / "cache"), **ways)
        assert found.trusted == 0
        assert found.manifest == hash_dataset(root, **ways)


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("damage", ["torn", "flipped", "empty", "longer", "garbage", "folder", "pipe"])
def test_a_damaged_cache_counts_as_none(tmp_path, damage):
    root = make_tree(tmp_path / "data", PLAIN)
    expected = scan(root, tmp_path / "cache").manifest
    (file,) = (tmp_path / "cache").iterdir()
    content = file.read_bytes()
    if damage == "flipped":
        for at in range(0, len(content), 7):
            file.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
            assert DigestCache(file, "xxh3-128").look_up(list(PLAIN), Stats([0] * 25)) == [None] * 5
    elif damage in {"folder", "pipe"}:
        file.unlink()
        (file.mkdir if damage == "folder" else lambda: os.mkfifo(file))()
    else:
        wrong = {"torn": content[:-20], "empty": b"", "longer": content + b"x", "garbage": os.urandom(500)}
        file.write_bytes(wrong[damage])

    again = scan(root, tmp_path / "cache")
    assert again.trusted == 0
    assert again.manifest == expected


def test_a_cache_that_cannot_be_written_costs_nothing_but_time(tmp_path):
    root = make_tree(tmp_path / "data", PLAIN)
    (tmp_path / "file").write_bytes(b"")

    assert scan(root, tmp_path / "file" / "cache").manifest == hash_dataset(root)


@pytest.mark.usefixtures("settled")
def test_without_quick_everything_is_read_and_remembered(tmp_path):
    root = make_tree(tmp_path / "data", PLAIN)
    for _ in range(2):
        assert scan(root, tmp_path / "cache", quick=False).read == 5
    assert scan(root, tmp_path / "cache").trusted == 5


@pytest.mark.usefixtures("settled")
def test_lookup_takes_each_row_only_with_all_its_five_values(tmp_path):
    stats = Stats(range(15))
    cache = DigestCache(tmp_path / "c", "xxh3-128")
    hexes = [f"{i:032x}" for i in range(3)]
    cache.remember(["a", "b\udcff", "c\nd"], stats, hexes, [2**62] * 3)

    assert cache.look_up(["a", "b\udcff", "c\nd"], stats) == hexes
    assert cache.look_up(["c\nd", "new", "a"], stats.take([2, 1, 0])) == [hexes[2], None, hexes[0]]
    for column in range(5):
        other = Stats([value + (place == 5 + column) for place, value in enumerate(range(15))])
        assert cache.look_up(["a", "b\udcff", "c\nd"], other) == [hexes[0], None, hexes[2]]


INTERRUPTED = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs are started with it ignored
from detdata.versions import cache, jobs, scan
from detdata.versions.means import Means
cache.GRAIN_NS, scan._SAVE_EVERY = -(10**12), 0.0
jobs._AT_ONCE = {at_once}
real, seen = os.read, []
def slow(*arguments):
    seen.append(arguments)
    if len(seen) == 4:
        os.kill(os.getpid(), signal.{signal})
    return real(*arguments)
os.read = slow
scan.scan_paths(sys.argv[1], means=Means(cache=sys.argv[2]))
"""


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize(("kind", "at_once"), [("SIGKILL", 1), ("SIGINT", 1), ("SIGINT", 512)])
def test_an_interrupted_hash_goes_on_where_it_was(tmp_path, kind, at_once):
    root = make_tree(tmp_path / "data", PLAIN)
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED.format(signal=kind, at_once=at_once), root, tmp_path / "cache"],
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert done.returncode in (-getattr(signal, kind), 1), done.stderr

    again = scan(root, tmp_path / "cache")
    assert (again.read, again.trusted) == (2, 3)
    assert again.manifest == hash_dataset(root)


@pytest.mark.usefixtures("settled")
def test_a_full_run_that_is_stopped_forgets_nothing(tmp_path, monkeypatch):
    root = make_tree(tmp_path / "data", PLAIN)
    scan(root, tmp_path / "cache")

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("detdata.versions.jobs.digest_small", stop)
        with pytest.raises(KeyboardInterrupt):
            scan(root, tmp_path / "cache", quick=False)
    assert scan(root, tmp_path / "cache").trusted == 5


@pytest.mark.usefixtures("settled")
def test_parts_and_the_whole_do_not_forget_each_other(tmp_path):
    root = make_tree(tmp_path / "data", PLAIN)
    asked = [{"part": (1, 2)}, {"part": (2, 2)}, {"part": (1, 3)}, {}]
    read = [scan_paths(root, means=Means(cache=tmp_path / "cache"), **ways).read for ways in (*asked, *asked)]

    assert read == [3, 2, 2, 5, 0, 0, 0, 0]


@pytest.mark.usefixtures("settled")
def test_a_link_that_is_switched_between_listing_and_reading_is_an_error(tmp_path, monkeypatch):
    root = make_tree(tmp_path / "data", PLAIN)
    for name in ("v1", "v2"):
        (tmp_path / name).write_bytes(name.encode())
    (root / "cur").symlink_to(tmp_path / "v1")
    real = list_files

    def switching(*arguments, **options):
        listing = real(*arguments, **options)
        (root / "cur").unlink()
        (root / "cur").symlink_to(tmp_path / "v2")
        return listing

    monkeypatch.setattr("detdata.versions.scan.list_files", switching)
    with pytest.raises(DatasetError, match="changed since it was listed"):
        scan(root, tmp_path / "cache")


def test_two_processes_at_once_do_not_hurt_each_other(tmp_path):
    root = make_tree(tmp_path / "data", PLAIN)
    for file in root.rglob("*.txt"):
        os.utime(file, ns=(LONG_AGO, LONG_AGO))
    time.sleep(0.01)
    code = "import sys, detdata\nfor _ in range(30): print(detdata.hash_dataset(sys.argv[1], cache=sys.argv[2]).digest)"
    running = [
        subprocess.Popen([sys.executable, "-c", code, root, tmp_path / "cache"], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    digests = {line for process in running for line in process.communicate(timeout=60)[0].splitlines()}

    assert digests == {hash_dataset(root).digest}
