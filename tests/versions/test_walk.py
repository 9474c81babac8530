"""Listing: the same in whatever order the file system gives names; everything odd is named, nothing left out."""

import gzip
import os
import random
import stat

import pytest

from detdata.versions import tree
from detdata.versions.errors import DatasetError
from detdata.versions.stats import Stats
from detdata.versions.walk import Listing, Rules, list_files, select
from tests.versions.trees import (
    PLAIN,
    ScandirWith,
    change_listings,
    closed_folder,
    make_device,
    make_socket,
    make_tree,
    odd_files,
    oracle,
    refusing,
)

ALL = (".",)
posix = pytest.mark.skipif(os.name == "nt", reason="POSIX file systems")


@pytest.fixture(autouse=True, params=[pytest.param(True, marks=posix), False], ids=["descriptors", "entries"])
def by_descriptor(request, monkeypatch):
    """Listing goes by folders' descriptors, but where a system has no such calls or patterns say what counts."""
    monkeypatch.setattr(tree, "_BY_DESCRIPTOR", request.param)
    return request.param


def paths_of(root, rules=None, chosen=ALL):
    return list_files(root, chosen, rules or Rules()).paths


def refusal(root, rules=None, chosen=ALL):
    with pytest.raises(DatasetError) as caught:
        list_files(root, chosen, rules or Rules())
    return caught.value


@posix
@pytest.mark.parametrize("change", [list, lambda e: e[::-1], lambda e: random.Random(7).sample(e, len(e))])
def test_the_list_is_the_same_in_any_order_of_creation_and_of_listing(tmp_path, monkeypatch, change):
    files = odd_files()
    assert len(files) > 50
    one = make_tree(tmp_path / "one", files)
    other = make_tree(tmp_path / "other", dict(reversed(files.items())))
    expected = oracle(one)
    change_listings(monkeypatch, change)

    listings = [list_files(root, ALL, Rules()) for root in (one, other)]

    assert expected == listings[0].paths == listings[1].paths
    assert sorted(files, key=os.fsencode) == expected
    assert [len(files[path]) for path in expected] == listings[0].stats.sizes()
    assert [os.fsencode(path) for path in expected] == sorted(os.fsencode(path) for path in files)


def test_stat_values_are_those_of_each_file(tmp_path):
    make_tree(tmp_path, PLAIN)
    found = list_files(tmp_path, ALL, Rules())
    for path, row in zip(found.paths, found.stats, strict=True):
        is_now = (tmp_path / path).stat()
        assert row == (is_now.st_dev, is_now.st_ino, is_now.st_size, is_now.st_mtime_ns, is_now.st_ctime_ns)
    assert found.kinds == ["file"] * len(PLAIN)
    assert len(found) == len(PLAIN)


def test_an_inode_of_all_64_bits_is_kept(tmp_path, monkeypatch):
    make_tree(tmp_path, {"a": b"1", "b": b"22"})

    def odd(found):
        values = list(found)
        values[stat.ST_INO] = 2**64 - 2
        return os.stat_result(values + [0] * 9)

    class Entry:
        def __init__(self, entry):
            self.name, self.is_file, self.is_dir = entry.name, entry.is_file, entry.is_dir
            self.real = entry

        def stat(self, *, follow_symlinks):
            return odd(self.real.stat(follow_symlinks=False))

    real = os.lstat
    monkeypatch.setattr(os, "lstat", lambda *given, **named: odd(real(*given, **named)))

    monkeypatch.setattr(os, "scandir", ScandirWith(lambda entries: [Entry(entry) for entry in entries]))
    found = list_files(tmp_path, ALL, Rules())
    assert [row.inode for row in found.stats] == [-2, -2]
    assert found.stats.sizes() == [1, 2]


def test_hidden_files_count_and_empty_folders_do_not(tmp_path):
    make_tree(tmp_path, {".a": b"", "..b": b"", ".c/d": b"", "empty/empty": None})
    assert paths_of(tmp_path) == ["..b", ".a", ".c/d"]


def test_nothing_is_an_empty_list(tmp_path):
    found = list_files(tmp_path, ALL, Rules())
    assert isinstance(found, Listing)
    assert (found.paths, found.stats, found.kinds, found.notes) == ([], Stats(), [], ())


def test_deep_trees_are_no_recursion(tmp_path):
    folders = [tmp_path]
    for _ in range(1200):
        folders.append(folders[-1] / "d")
        folders[-1].mkdir()
    (folders[-1] / "f").write_bytes(b"")
    assert paths_of(tmp_path) == ["d/" * 1200 + "f"]
    (folders[-1] / "f").unlink()
    for folder in folders[:0:-1]:  # what cleans up after tests may be recursive
        folder.rmdir()


def test_a_root_that_is_no_folder_is_refused(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    for root in ("file", "gone"):
        assert "no such folder" in refusal(tmp_path / root).reason


@posix
@pytest.mark.parametrize(("make", "what"), [(os.mkfifo, "pipe"), (make_socket, "socket"), (make_device, "device")])
@pytest.mark.parametrize("at", ["odd", "sub/odd"])
def test_what_is_neither_file_nor_folder_is_named_and_not_opened(tmp_path, monkeypatch, make, what, at):
    make_tree(tmp_path, PLAIN | {"sub": None})
    try:
        make(tmp_path / at)
    except PermissionError:
        pytest.skip("may not make devices")
    real = os.open

    def only_folders(path, flags, *given, **named):
        assert flags & os.O_DIRECTORY  # which a pipe in a folder's place is refused by, unopened
        return real(path, flags, *given, **named)

    monkeypatch.setattr(os, "open", only_folders)

    error = refusal(tmp_path)

    assert error.path == f"{tmp_path}/{at}"
    assert what in error.reason
    assert "exclude" in error.reason
    assert "odd" not in "".join(paths_of(tmp_path, Rules(exclude=("odd",))))
    assert paths_of(tmp_path, Rules(include=("*.txt",))) == ["a.txt", "b.txt", "b/c.txt", "b/d/e.txt"]
    assert refusal(tmp_path, chosen=(at,)).path == error.path
    (tmp_path / "link").symlink_to(at)
    assert refusal(tmp_path, Rules(exclude=("odd",))).path == f"{tmp_path}/link"
    assert "link" in paths_of(tmp_path, Rules(exclude=("odd",), symlinks="record"))


@posix
def test_a_folder_that_may_not_be_read_is_an_error(tmp_path, monkeypatch):
    make_tree(tmp_path, PLAIN | {"closed/x": b""})
    for call in ("scandir", "open"):
        monkeypatch.setattr(os, call, refusing(getattr(os, call), "/closed"))
    error = refusal(tmp_path)
    assert error.path == f"{tmp_path}/closed"
    assert "Permission denied" in error.reason
    assert paths_of(tmp_path, Rules(exclude=("closed/",))) == sorted(PLAIN, key=os.fsencode)


@posix
def test_a_folder_without_permissions_is_an_error():
    with closed_folder() as root:
        assert refusal(root).path == f"{root}/shut"
        assert refusal(root, chosen=("shut/x",)).path == f"{root}/shut/x"
        error = refusal(root, chosen=("shut/*",))
        assert (error.path, error.others) == (f"{root}/shut", 0)
        with pytest.raises(DatasetError, match="Permission denied"):
            select(f"{root}/shut/x")
        assert paths_of(root, Rules(exclude=("shut",))) == ["file", "open/x"]


@posix
def test_the_first_trouble_is_named_and_the_others_are_counted(tmp_path, monkeypatch):
    make_tree(tmp_path, {"b/x": b"", "c/x": b""})
    os.mkfifo(tmp_path / "d")
    (tmp_path / "a").symlink_to("gone")
    scandir = os.scandir
    monkeypatch.setattr(os, "open", refusing(os.open, "/b", "/c"))
    for change in (list, lambda entries: entries[::-1]):
        change_listings(monkeypatch, change)
        monkeypatch.setattr(os, "scandir", ScandirWith(change, refusing(scandir, "/b", "/c")))
        error = refusal(tmp_path)
        assert (error.path, error.others) == (f"{tmp_path}/a", 3)
        assert "3 more" in str(error)


def test_what_vanishes_while_it_is_listed_is_an_error(tmp_path, monkeypatch):
    make_tree(tmp_path, {"a": b"", "b": b"", "sub/x": b""})

    def remove(entries):
        if "b" in {getattr(entry, "name", entry) for entry in entries}:
            (tmp_path / "b").unlink()
        return entries

    change_listings(monkeypatch, remove)
    error = refusal(tmp_path)
    assert error.path == f"{tmp_path}/b"
    assert "vanished" in error.reason
    for call in ("scandir", "open"):
        monkeypatch.setattr(os, call, refusing(getattr(os, call), "/sub", error=FileNotFoundError(2, "gone")))
    assert refusal(tmp_path).path == f"{tmp_path}/sub"


@posix
@pytest.mark.parametrize("target", ["gone", "link", "/no/such/path", "a.txt/x"])
def test_a_link_that_leads_nowhere_is_an_error(tmp_path, target):
    make_tree(tmp_path, PLAIN)
    (tmp_path / "link").symlink_to(target)
    for rules in (Rules(), Rules(symlinks="refuse")):
        error = refusal(tmp_path, rules)
        assert error.path == f"{tmp_path}/link"
        assert "exclude" in error.reason
        assert refusal(tmp_path, rules, ("link",)).path == error.path
    assert paths_of(tmp_path, Rules(exclude=("link",))) == sorted(PLAIN, key=os.fsencode)
    found = list_files(tmp_path, ALL, Rules(symlinks="record"))
    at = found.paths.index("link")
    assert found.kinds[at] == "link"
    assert found.stats[at].size == len(target)


@posix
@pytest.mark.parametrize("target", [".", "..", "../..", "/", "../b", "{root}", "d/../.."])
def test_a_link_to_a_folder_that_holds_it_is_an_error_and_not_a_circle(tmp_path, target):
    make_tree(tmp_path / "root", PLAIN)
    (tmp_path / "root/b/up").symlink_to(target.format(root=tmp_path / "root"))
    error = refusal(tmp_path / "root")
    assert error.path == f"{tmp_path}/root/b/up"
    assert "loop" in error.reason
    assert "b/up" in paths_of(tmp_path / "root", Rules(symlinks="record"))


@posix
def test_a_circle_of_two_links_is_an_error(tmp_path):
    make_tree(tmp_path, {"a/x": b"", "b/x": b""})
    (tmp_path / "a/to_b").symlink_to("../b")
    (tmp_path / "b/to_a").symlink_to("../a")
    error = refusal(tmp_path)
    assert error.path in {f"{tmp_path}/a/to_b/to_a", f"{tmp_path}/b/to_a/to_b"}
    assert error.others == 1


@posix
def test_followed_links_count_as_what_they_lead_to(tmp_path):
    make_tree(tmp_path / "blobs", {"1": b"one", "2": b"twotwo", "folder/x": b"x"})
    root = make_tree(tmp_path / "root", {"real": b"r"})
    (root / "1").symlink_to("../blobs/1")
    (root / "folder").symlink_to(tmp_path / "blobs/folder")
    (root / "again").symlink_to("folder")  # twice the same folder is no circle
    found = list_files(root, ALL, Rules())
    assert found.paths == ["1", "again/x", "folder/x", "real"]
    assert found.kinds == ["file"] * 4
    assert [*found.stats[0][1:3]] == [(tmp_path / "blobs/1").stat().st_ino, 3]
    assert refusal(root, Rules(symlinks="refuse")).others == 2
    found = list_files(root, ALL, Rules(symlinks="record"))
    assert found.paths == ["1", "again", "folder", "real"]
    assert found.kinds == ["link", "link", "link", "file"]
    assert paths_of(root, Rules(exclude=("folder/",))) == ["1", "again/x", "real"]
    assert paths_of(root, Rules(include=("*x",))) == ["again/x", "folder/x"]


@posix
def test_a_root_that_is_a_link_is_its_folder(tmp_path):
    make_tree(tmp_path / "real", PLAIN)
    (tmp_path / "link").symlink_to("real")
    for symlinks in ("follow", "record", "refuse"):
        assert paths_of(tmp_path / "link", Rules(symlinks=symlinks)) == paths_of(tmp_path / "real")


def test_a_manifest_in_the_data_is_no_data(tmp_path):
    text = b'{\n"format": "detdata.manifest/1",\n' + b" " * 9999
    files = {
        "data.lock.json": text,
        "sub/x.lock.json.gz": gzip.compress(text, mtime=0),
        "other.json": text,
        "other.lock.json": b'{"name": "detdata.manifest/1"}',
        "torn.lock.json.gz": b"\x1f\x8b\x08torn",
        "empty.lock.json": b"",
    }
    make_tree(tmp_path, files)
    assert paths_of(tmp_path) == ["empty.lock.json", "other.json", "other.lock.json", "torn.lock.json.gz"]


def test_excluded_files_are_found_by_where_they_are(tmp_path):
    make_tree(tmp_path / "root", {"a": b"", "my.manifest": b"", "sub/my.manifest": b""})
    (tmp_path / "way").symlink_to("root")
    for file in (tmp_path / "root/my.manifest", tmp_path / "way/my.manifest", f"{tmp_path}/root/sub/../my.manifest"):
        found = list_files(tmp_path / "root", ALL, Rules(), exclude_files=[str(file), str(tmp_path / "gone/x")])
        assert found.paths == ["a", "sub/my.manifest"]


@posix
def test_names_that_other_systems_hold_to_be_one_are_noted(tmp_path):
    make_tree(tmp_path, {"a": b"", "A": b"", "e\u0301": b"", "é": b""})
    if len(oracle(tmp_path)) < 4:
        pytest.skip("this file system holds them to be one")
    notes = list_files(tmp_path, ALL, Rules()).notes
    assert len(notes) == 2
    assert "A and a" in notes[0]
    make_tree(tmp_path, {name: b"" for i in range(40) for name in (f"x{i}", f"X{i}")})
    assert len(list_files(tmp_path, ALL, Rules()).notes) == 21
