"""Small files, many at a time: a digest only of what is as it was listed, before and after it was read."""

import os
import threading
from pathlib import Path

import pytest
import xxhash

from detdata import hash_dataset
from detdata.algorithms import hex_function
from detdata.versions import scan as scan_module
from detdata.versions import small_files
from detdata.versions.errors import DatasetError
from detdata.versions.files import SMALL, FileStat, digest_file, stat_file
from detdata.versions.small_files import digest_small
from detdata.versions.walk import list_files
from tests.versions.trees import closed_folder, make_device, make_tree, refusing

XXH3 = hex_function("xxh3-128")
FILES = {"a": b"one", "b/c": b"", "b/d": b"x" * SMALL, "é\n": b"\0" * 4096}
posix = pytest.mark.skipif(os.name == "nt", reason="POSIX file systems")


@pytest.fixture(autouse=True, params=[True, False], ids=["descriptors", "paths"])
def by_descriptor(request, monkeypatch):
    """Files are opened from the root's descriptor, but where a system has no such call."""
    if not request.param:
        monkeypatch.setattr(os, "supports_dir_fd", set())


def digests(root, paths, listed=None, symlinks="follow"):
    hexes = []
    listed = [tuple(stat_file(root / path)) for path in paths] if listed is None else listed
    digest_small(str(root), paths, listed, XXH3, hexes, symlinks)
    return hexes


def open_files():
    return len(list(Path("/proc/self/fd").glob("*")))


def test_the_digests_are_those_of_each_file_alone(tmp_path):
    make_tree(tmp_path, FILES)
    before = open_files()
    found = digests(tmp_path, list(FILES))
    assert found == [xxhash.xxh3_128_hexdigest(data) for data in FILES.values()]
    assert found == [digest_file(tmp_path / path, "xxh3-128").hex for path in FILES]
    assert open_files() == before


def test_a_file_that_is_not_the_listed_one_has_none(tmp_path):
    make_tree(tmp_path, FILES)
    listed = stat_file(tmp_path / "a")
    for field in FileStat._fields:
        other = listed._replace(**{field: getattr(listed, field) + 1})
        assert digests(tmp_path, ["a", "a"], [tuple(other), tuple(listed)]) == [None, XXH3(b"one")]


def test_what_cannot_be_read_has_none_and_the_others_do(tmp_path, monkeypatch):
    make_tree(tmp_path, FILES)
    listed = [tuple(stat_file(tmp_path / "a"))] * 4
    before = open_files()
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refusing(os.open, "denied"))
        assert digests(tmp_path, ["gone", "a", "denied", "a/x"], listed) == [None, XXH3(b"one"), None, None]
    assert digests(tmp_path, ["b"], [tuple(stat_file(tmp_path / "b"))]) == [None]

    def fail(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "read", fail)
    assert digests(tmp_path, ["a"]) == [None]
    assert open_files() == before


@posix
def test_a_folder_that_may_be_entered_and_not_listed_is_way_enough():
    with closed_folder() as root:
        listed = [tuple(stat_file(root / "open/x"))]
        euid = os.geteuid()
        os.seteuid(os.getuid())
        (root / "open").chmod(0o111)
        os.seteuid(euid)
        with pytest.raises(PermissionError):
            os.scandir(root / "open")
        assert digests(root / "open", ["x"], listed) == [XXH3(b"x")]
        assert digests(root, ["open/x", "shut/x", "file"], listed * 3) == [XXH3(b"x"), None, None]
        os.seteuid(os.getuid())
        (root / "open").chmod(0o700)
        os.seteuid(euid)


@posix
@pytest.mark.parametrize("make", [os.mkfifo, make_device, os.mkdir, lambda path: path.symlink_to("nowhere")])
def test_what_has_taken_the_files_place_has_none_at_once(tmp_path, make):
    make_tree(tmp_path, FILES)
    listed = [tuple(stat_file(tmp_path / "a"))]
    (tmp_path / "a").unlink()
    try:
        make(tmp_path / "a")
    except PermissionError:
        pytest.skip("may not make devices")
    found = []
    thread = threading.Thread(target=lambda: found.append(digests(tmp_path, ["a"], listed)), daemon=True)
    thread.start()
    thread.join(20)
    assert found == [[None]]


@posix
def test_links_by_the_rules(tmp_path):
    make_tree(tmp_path, FILES)
    (tmp_path / "link").symlink_to("a")
    assert digests(tmp_path, ["link"]) == [XXH3(b"one")]
    assert digests(tmp_path, ["link", "a"], symlinks="refuse") == [None, XXH3(b"one")]


def cut(path):
    os.truncate(path, 1)


def grow(path):
    with path.open("ab") as file:
        file.write(b"more")


def rewrite(path):
    times = path.stat()
    path.write_bytes(b"X" * times.st_size)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


@posix
@pytest.mark.parametrize("change", [cut, grow, rewrite])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_file_that_changes_around_its_reading_is_an_error_that_names_it(tmp_path, monkeypatch, change, when):
    root = make_tree(tmp_path / "data", FILES)
    real, file, calls = os.read, root / "a", []

    def read(descriptor, count):
        is_it = os.fstat(descriptor).st_ino == file.stat().st_ino and not calls
        if is_it and when == "before":
            change(file)
        data = real(descriptor, count)
        if is_it and when == "after":
            change(file)
        calls.extend([1] * is_it)
        return data

    for path in root.rglob("*"):
        os.utime(path, ns=(10**18, 10**18))
    monkeypatch.setattr(os, "read", read)
    with pytest.raises(DatasetError, match="changed since it was listed") as caught:
        hash_dataset(root)
    assert (caught.value.path, calls) == (str(file), [1])


@pytest.mark.parametrize("symlinks", ["follow", "refuse", "record"])
@pytest.mark.parametrize("piece_size", [0, 2**16])
def test_every_way_of_hashing_gives_each_file_its_digest(tmp_path, monkeypatch, symlinks, piece_size):
    root = make_tree(tmp_path, FILES | {f"many/{i}": bytes(i) for i in range(40)} | {"large": b"x" * (SMALL + 1)})
    monkeypatch.setattr("detdata.versions.jobs._AT_ONCE", 7)
    seen = []
    manifest = hash_dataset(root, symlinks=symlinks, piece_size=piece_size, progress=seen.append)
    expected = [digest_file(root / path, "xxh3-128", piece_size, symlinks).hex for path in manifest.paths]
    assert list(manifest.hexes) == expected
    assert (seen[-1].files, seen[-1].bytes) == (len(expected), manifest.bytes)
    assert [step.bytes for step in seen] == sorted(step.bytes for step in seen)


@posix
def test_a_file_that_becomes_a_pipe_between_listing_and_reading_is_an_error_that_names_it(tmp_path, monkeypatch):
    root = make_tree(tmp_path, FILES)

    def listing(*given, **named):
        found = list_files(*given, **named)
        (root / "a").unlink()
        os.mkfifo(root / "a")
        return found

    monkeypatch.setattr(scan_module, "list_files", listing)
    with pytest.raises(DatasetError, match="no regular file") as caught:
        hash_dataset(root)
    assert caught.value.path == str(root / "a")


def test_names_go_to_the_system_as_it_wants_them(tmp_path, monkeypatch):
    make_tree(tmp_path, FILES)
    asked = []
    monkeypatch.setattr(small_files, "SYSTEM_IS_UTF8", False)
    monkeypatch.setattr(small_files, "to_system", lambda path: asked.append(path) or path)
    assert digests(tmp_path, ["a"]) == [XXH3(b"one")]
    assert "a" in asked
