"""Reading: the digest of all bytes for every block size, and no digest of a file that changes meanwhile."""

import hashlib
import os
import pickle
import socket
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from detdata import hash_dataset
from detdata.errors import ArgumentTypeError, ArgumentValueError
from detdata.versions import files
from detdata.versions.errors import DatasetError
from detdata.versions.files import (
    SETTLE_NS,
    FileStat,
    digest_file,
    digest_many,
    digest_piece,
    first_difference,
    stat_file,
)
from detdata.versions.pieces import join_pieces
from detdata.versions.stats import Stats
from tests.versions.trees import NAMES, closed_folder, make_device, make_socket, make_tree, refusing

posix = pytest.mark.skipif(os.name == "nt", reason="POSIX file systems")
SIZES = [0, 1, 8192, 2**16 - 1, 2**16, 2**16 + 1, 2**19 - 1, 2**19, 2**19 + 1, 2**20 + 7]


def content(size, salt=0):
    return (hashlib.sha256(str(salt).encode()).digest() * (size // 32 + 1))[:size]


def xxh3(data):
    return xxhash.xxh3_128_hexdigest(data)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("algorithm", "oracle"), [("xxh3-128", xxh3), ("sha256", lambda d: hashlib.sha256(d).hexdigest())]
)
def test_a_digest_is_that_of_all_bytes(tmp_path, size, algorithm, oracle):
    data = content(size)
    file = tmp_path / "f"
    file.write_bytes(data)
    found = digest_file(file, algorithm)
    assert (found.size, found.hex) == (size, oracle(data))
    is_now = file.stat()
    assert found[2:] == (is_now.st_dev, is_now.st_ino, is_now.st_mtime_ns, is_now.st_ctime_ns)
    assert digest_many(str(tmp_path), ["f"], algorithm) == [found]


# CRLF where blocks meet: at 2**16 and 2**20, before, on and after the edge.
EDGES = [edge + shift for edge in (2**16, 2**20) for shift in (-2, -1, 0, 1)]


@pytest.mark.parametrize("block", [1000, 1024, 4096, 2**16, 2**19, 2**20, 2**23])
def test_line_ends_at_block_edges_are_bytes_like_any_others(tmp_path, monkeypatch, block):
    monkeypatch.setattr(files, "_BLOCK", block)
    monkeypatch.setattr(files, "SMALL", 0)
    data = bytearray(content(2**20 + 100))
    for edge in EDGES[::4]:
        data[edge : edge + 2] = b"\r\n"
    variants = {}
    for edge in EDGES:
        variants[f"crlf{edge}"] = bytes(data[:edge] + b"\r\n" + data[edge + 2 :])
        variants[f"lf{edge}"] = bytes(data[:edge] + b"\n" + data[edge + 2 :])
    variants |= {"crlf": b"a\r\n" * 1000, "lf": b"a\n" * 1000}
    make_tree(tmp_path, variants)
    digests = digest_many(str(tmp_path), list(variants), "xxh3-128")
    assert [digest.hex for digest in digests] == [xxh3(data) for data in variants.values()]
    assert len({digest.hex for digest in digests}) == len(set(variants.values()))


@pytest.mark.parametrize("most", [1, 7, 1000])
@pytest.mark.parametrize("size", [10, 5000])
def test_a_file_system_that_gives_less_than_asked_changes_nothing(tmp_path, monkeypatch, most, size):
    (tmp_path / "f").write_bytes(content(size))
    real = os.read
    monkeypatch.setattr(os, "read", lambda descriptor, count: real(descriptor, min(count, most)))
    assert digest_file(tmp_path / "f", "xxh3-128").hex == xxh3(content(size))


def tree_digest(data, piece_size):
    """The definition, read aloud."""
    pieces = [data[i : i + piece_size] for i in range(0, len(data), piece_size)]
    head = b"detdata.pieces/1" + piece_size.to_bytes(8, "little") + len(data).to_bytes(8, "little")
    return xxh3(head + b"".join(xxhash.xxh3_128_digest(piece) for piece in pieces))


@given(size=st.integers(0, 5000), piece_size=st.integers(1, 6000))
def test_the_digest_of_pieces_is_its_definition_wherever_they_are_hashed(tmp_path_factory, size, piece_size):
    file = tmp_path_factory.mktemp("pieces") / "f"
    data = content(size)
    file.write_bytes(data)
    expected = tree_digest(data, piece_size)
    starts = range(0, size, piece_size)
    parts = [digest_piece(file, "xxh3-128", start, min(start + piece_size, size)) for start in starts]
    assert digest_file(file, "xxh3-128", piece_size).hex == expected
    assert join_pieces("xxh3-128", piece_size, size, parts) == expected
    assert digest_many(str(file.parent), ["f"], "xxh3-128", piece_size)[0].hex == expected


GOLDEN_TREE = "b0e9c5703147a7168bb70453fec88469"  # of the bytes 0 … 9 in pieces of 4


def test_golden_digests_of_pieces(tmp_path):
    (tmp_path / "f").write_bytes(bytes(range(10)))
    assert digest_file(tmp_path / "f", "xxh3-128", 4).hex == GOLDEN_TREE
    assert digest_file(tmp_path / "f", "xxh3-128", 5).hex != GOLDEN_TREE


def test_pieces_that_do_not_make_a_file_are_refused():
    for size, digests in ((8, [b"0" * 16]), (8, [b"0" * 16] * 3), (8, [b"0" * 16, b"0" * 15]), (0, [b"0" * 16])):
        with pytest.raises(ArgumentValueError, match="digest"):
            join_pieces("xxh3-128", 4, size, digests)
    with pytest.raises(ArgumentValueError, match="piece_size"):
        join_pieces("xxh3-128", 0, 0, [])


def test_a_piece_beyond_the_end_is_an_error(tmp_path):
    (tmp_path / "f").write_bytes(b"12345")
    for start, stop in ((0, 6), (5, 6), (9, 10)):
        with pytest.raises(DatasetError, match="ends before"):
            digest_piece(tmp_path / "f", "xxh3-128", start, stop)
    with pytest.raises(ArgumentValueError, match="stop"):
        digest_piece(tmp_path / "f", "xxh3-128", 3, 2)
    with pytest.raises(ArgumentTypeError, match="start"):
        digest_piece(tmp_path / "f", "xxh3-128", 0.0, 2)


@posix
@pytest.mark.parametrize("name", NAMES)
def test_any_name_is_read(tmp_path, name):
    (tmp_path / name).write_bytes(os.fsencode(name))
    assert digest_many(str(tmp_path), [name], "xxh3-128")[0].hex == xxh3(os.fsencode(name))


def grow(path):
    with path.open("ab") as file:
        file.write(b"more")


def cut(path):
    os.truncate(path, path.stat().st_size // 2)


def rewrite(path):
    data = path.read_bytes()
    times = path.stat()
    path.write_bytes(b"X" + data[1:])
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # ctime tells all the same


def empty(path):
    os.truncate(path, 0)


@posix
@pytest.mark.parametrize("size", [100, 2**16 + 1, 2**20 + 1])
@pytest.mark.parametrize("piece_size", [0, 64, 2**19])
@pytest.mark.parametrize("change", [grow, cut, rewrite, empty])
def test_a_file_that_changes_while_it_is_read_has_no_digest(tmp_path, monkeypatch, size, piece_size, change):
    """Changed after the first stat, and again in the middle of reading where there is one."""
    file = tmp_path / "f"
    file.write_bytes(content(size))
    real, calls = os.fstat, []

    def fstat(descriptor):
        found = real(descriptor)
        if not calls:
            calls.append(1)
            change(file)
        return found

    monkeypatch.setattr(os, "fstat", fstat)
    with pytest.raises(DatasetError, match="changed while it was read") as caught:
        digest_file(file, "xxh3-128", piece_size)
    assert caught.value.path == str(file)


@posix
@pytest.mark.parametrize("change", [grow, cut, rewrite, empty])
def test_a_file_that_changes_in_the_middle_of_reading_has_no_digest(tmp_path, change):
    file = tmp_path / "f"
    for read in (digest_file, lambda *given: digest_piece(given[0], given[1], 0, 2**21, given[4])):
        file.write_bytes(content(2**21))
        left = [change]
        with pytest.raises(DatasetError, match="changed"):
            read(file, "xxh3-128", 0, "follow", lambda count, left=left: left and left.pop()(file))


@pytest.mark.parametrize("executor", [False, True])
@pytest.mark.parametrize("size", [10, 10**5, 2**20, 5 * 2**20])
def test_a_write_that_may_still_be_under_way_is_waited_for_before_reading(tmp_path, monkeypatch, size, executor):
    """Its times moved when it began: they would be the same before and after reading a mixture of old and new."""
    (tmp_path / "f").write_bytes(bytes(size))
    monkeypatch.setattr(files, "SETTLE_NS", 10**12)
    done, read, blocks = [], os.read, files._blocks
    monkeypatch.setattr("time.sleep", lambda seconds: done.append("waited") if seconds else None)
    monkeypatch.setattr(os, "read", lambda *given: done.append("read") or read(*given))
    monkeypatch.setattr(files, "_blocks", lambda *given: done.append("read") or blocks(*given))

    with ThreadPoolExecutor(1) as pool:
        hash_dataset(tmp_path, executor=pool if executor else None)
    assert done[0] == "waited"
    assert "read" in done


def test_only_what_was_just_written_to_is_waited_for(monkeypatch):
    now, waited = 10**18, []
    monkeypatch.setattr("time.time_ns", lambda: now)
    monkeypatch.setattr("time.sleep", waited.append)
    for mtime, ctime in ((now, now), (0, now - 5), (now - SETTLE_NS // 2, 0), (now + 9, now - 5), (now - SETTLE_NS, 0)):
        Stats([0] * 5 + [1, 2, 3, mtime, ctime]).settle()
    Stats().settle()
    assert [round(seconds * 1e9) for seconds in waited] == [
        SETTLE_NS,
        SETTLE_NS - 5,
        SETTLE_NS // 2,
        SETTLE_NS - 5,
        0,
        0,
    ]


def test_a_file_that_is_removed_or_replaced_while_open_is_read_as_it_was(tmp_path):
    """Its bytes are those of the listed file; that the name is gone, or another's, the next listing tells."""
    file = tmp_path / "f"
    data = content(2**21)
    file.write_bytes(data)
    moved = tmp_path / "moved"
    moved.write_bytes(b"other")
    before = stat_file(file)
    if os.name != "nt":
        with pytest.raises(DatasetError, match="changed"):  # its ctime moves with its last name
            digest_file(file, "xxh3-128", 0, "follow", lambda count: moved.exists() and moved.replace(file))
        with pytest.raises(DatasetError, match="inode"):
            digest_file(file, "xxh3-128", expect=before)


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
