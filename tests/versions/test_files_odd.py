"""Reading what is in the way: files that are gone, no files, forbidden or failing; threads and processes."""

import os
import pickle
import socket
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detdata.versions import files
from detdata.versions.errors import DatasetError
from detdata.versions.files import (
    FileStat,
    digest_file,
    digest_many,
    digest_piece,
    first_difference,
    stat_file,
)
from detdata.versions.pieces import join_pieces
from tests.versions.trees import (
    closed_folder,
    content,
    make_device,
    make_socket,
    make_tree,
    posix,
    refusing,
    xxh3,
)


def test_a_file_that_vanished_is_named(tmp_path):
    for call in (lambda f: digest_file(f, "xxh3-128"), stat_file, lambda f: digest_piece(f, "xxh3-128", 0, 1)):
        with pytest.raises(DatasetError, match="not there any more") as caught:
            call(tmp_path / "gone")
        assert caught.value.path == str(tmp_path / "gone")


def test_a_file_that_changed_since_it_was_listed_is_named(tmp_path):
    file = tmp_path / "f"
    file.write_bytes(b"12345")
    listed = stat_file(file)
    assert digest_file(file, "xxh3-128", expect=listed).hex == xxh3(b"12345")
    assert digest_piece(file, "xxh3-128", 0, 5, expect=listed).hex() == xxh3(b"12345")
    for field in FileStat._fields:
        other = listed._replace(**{field: getattr(listed, field) + 1})
        for call in (digest_file, lambda f, a, expect: digest_piece(f, a, 0, 5, expect=expect)):
            with pytest.raises(DatasetError, match=f"since it was listed: its {field} was"):
                call(file, "xxh3-128", expect=other)


@posix
@pytest.mark.parametrize("make", [os.mkfifo, make_socket, make_device, os.mkdir])
def test_what_is_no_file_is_refused_at_once(tmp_path, make):
    if make is make_socket and not hasattr(socket, "AF_UNIX"):
        pytest.skip("no sockets in the file system")
    try:
        make(tmp_path / "odd")
    except PermissionError:
        pytest.skip("may not make devices")
    for symlinks in ("follow", "record", "refuse"):
        with pytest.raises(DatasetError, match="no content"):
            digest_file(tmp_path / "odd", "xxh3-128", symlinks=symlinks)
    with pytest.raises(DatasetError, match="no content"):
        digest_piece(tmp_path / "odd", "xxh3-128", 0, 0)


@posix
def test_links_by_the_rules(tmp_path):
    make_tree(tmp_path, {"f": b"content"})
    (tmp_path / "link").symlink_to("f")
    (tmp_path / "gone").symlink_to(os.fsdecode(b"no\xff\nwhere"))
    (tmp_path / "self").symlink_to("self")
    assert digest_file(tmp_path / "link", "xxh3-128").hex == xxh3(b"content")
    recorded = digest_many(str(tmp_path), ["f", "link", "gone", "self"], "xxh3-128", 0, "record")
    assert [digest.hex for digest in recorded] == [xxh3(d) for d in (b"content", b"f", b"no\xff\nwhere", b"self")]
    assert [digest.size for digest in recorded] == [7, 1, 9, 4]
    assert recorded[1].inode == os.lstat(tmp_path / "link").st_ino
    with pytest.raises(DatasetError, match="since it was listed"):
        digest_file(tmp_path / "link", "xxh3-128", symlinks="record", expect=stat_file(tmp_path / "f"))
    for path, symlinks in (("link", "refuse"), ("self", "follow"), ("gone", "follow"), ("gone", "refuse")):
        with pytest.raises(DatasetError):
            digest_file(tmp_path / path, "xxh3-128", symlinks=symlinks)
    with pytest.raises(DatasetError, match="link"):
        digest_piece(tmp_path / "link", "xxh3-128", 0, 1, symlinks="record")


def test_a_file_that_may_not_be_read_is_named_and_the_others_are_counted(tmp_path, monkeypatch):
    make_tree(tmp_path, dict.fromkeys("abcd", b"x"))
    monkeypatch.setattr(os, "open", refusing(os.open, "/b", "/d"))
    with pytest.raises(DatasetError, match="Permission denied") as caught:
        digest_many(str(tmp_path), ["a", "b", "c", "d"], "xxh3-128")
    assert (caught.value.path, caught.value.others) == (f"{tmp_path}/b", 1)


@posix
def test_a_file_without_permissions_is_named():
    with closed_folder() as root:
        for call in (
            lambda: digest_file(root / "file", "xxh3-128"),
            lambda: digest_many(str(root), ["file"], "xxh3-128"),
        ):
            with pytest.raises(DatasetError, match="Permission denied") as caught:
                call()
            assert caught.value.path == f"{root}/file"


def test_a_disk_that_fails_is_named(tmp_path, monkeypatch):
    make_tree(tmp_path, {"a": b"x"})

    def fail(descriptor, count):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "read", fail)
    with pytest.raises(DatasetError, match="Input/output error"):
        digest_file(tmp_path / "a", "xxh3-128")


@pytest.mark.parametrize("size", [10, 2**16 + 1, 2**20 + 5])
@pytest.mark.parametrize("piece_size", [0, 2**18])
def test_progress_counts_every_byte(tmp_path, size, piece_size):
    (tmp_path / "f").write_bytes(content(size))
    counts = []
    digest_file(tmp_path / "f", "xxh3-128", piece_size, "follow", counts.append)
    assert sum(counts) == size


def test_what_progress_raises_ends_the_reading(tmp_path):
    (tmp_path / "f").write_bytes(content(2**21))

    def stop(count):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        digest_file(tmp_path / "f", "xxh3-128", 0, "follow", stop)
    assert digest_file(tmp_path / "f", "xxh3-128").hex == xxh3(content(2**21))


def test_no_descriptor_is_left_open(tmp_path):
    own = Path("/proc/self/fd")
    if not own.is_dir():
        pytest.skip("nowhere to count them")
    make_tree(tmp_path, {"f": content(2**17), "g": b"1"})
    before = len(list(own.iterdir()))
    for _ in range(3):
        digest_many(str(tmp_path), ["f", "g"], "xxh3-128")
        first_difference(tmp_path / "f", tmp_path / "g")
        with pytest.raises(DatasetError):
            digest_many(str(tmp_path), ["", "gone", "f"], "xxh3-128", 5)
        with pytest.raises(DatasetError):
            digest_piece(tmp_path / "g", "xxh3-128", 0, 9)
    assert len(list(own.iterdir())) == before


def test_threads_do_not_share_a_buffer(tmp_path):
    names = [f"{i}" for i in range(8)]
    make_tree(tmp_path, {name: content(2**20 + i, name) for i, name in enumerate(names)})
    gate = threading.Barrier(4)

    def read(name):
        gate.wait(timeout=60)
        return digest_file(tmp_path / name, "xxh3-128").hex

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(read, names)) == [xxh3(content(2**20 + i, name)) for i, name in enumerate(names)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_process_does_not_write_into_the_buffer(tmp_path):
    make_tree(tmp_path, {"f": b"f" * 2**17, "g": b"g" * 2**17})
    digest_file(tmp_path / "f", "xxh3-128")  # the buffer is there before the fork
    child = get_context("fork").Process(target=digest_file, args=(tmp_path / "g", "xxh3-128"))
    child.start()
    child.join()
    assert child.exitcode == 0
    assert bytes(files._own.buffer[: 2**16]) == b"f" * 2**16


def test_another_process_gives_the_same(tmp_path):
    make_tree(tmp_path, {"f": content(1000), "g": content(2**17)})
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        there = pool.submit(digest_many, str(tmp_path), ["f", "g"], "xxh3-128", 100).result()
        piece = pool.submit(digest_piece, str(tmp_path / "g"), "xxh3-128", 100, 200).result()
        with pytest.raises(DatasetError, match="not there any more"):
            pool.submit(digest_file, str(tmp_path / "gone"), "xxh3-128").result()
    assert there == digest_many(str(tmp_path), ["f", "g"], "xxh3-128", 100)
    assert piece.hex() == xxh3(content(2**17)[100:200])
    for call in (digest_file, digest_many, digest_piece, join_pieces, first_difference):
        assert pickle.loads(pickle.dumps(call)) is call


@given(st.binary(max_size=40), st.binary(max_size=40), st.integers(0, 40))
def test_the_first_difference_is_where_the_bytes_differ(tmp_path_factory, one, other, shared):
    folder = tmp_path_factory.mktemp("two")
    a, b = one, one[:shared] + other
    make_tree(folder, {"a": a, "b": b})
    expected = next((i for i in range(max(len(a), len(b))) if a[i : i + 1] != b[i : i + 1]), None)
    with pytest.MonkeyPatch.context() as patch:
        for block in (2**19, 8):
            patch.setattr(files, "_BLOCK", block)
            assert first_difference(folder / "a", folder / "b") == expected
            assert first_difference(folder / "b", folder / "a") == expected


@pytest.mark.parametrize("at", [0, 2**19 - 1, 2**19, 2**20 + 3])
def test_the_first_difference_is_found_in_large_files(tmp_path, at):
    data = content(2**20 + 4)
    make_tree(tmp_path, {"a": data, "b": data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], "c": data[:at]})
    assert first_difference(tmp_path / "a", tmp_path / "b") == at
    assert first_difference(tmp_path / "a", tmp_path / "c") == at
    assert first_difference(tmp_path / "a", tmp_path / "a") is None
    with pytest.raises(DatasetError):
        first_difference(tmp_path / "a", tmp_path / "gone")
