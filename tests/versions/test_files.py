"""Reading: the digest of all bytes for every block size, and no digest of a file that changes meanwhile."""

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor

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
    digest_file,
    digest_many,
    digest_piece,
    stat_file,
)
from detdata.versions.pieces import join_pieces
from detdata.versions.stats import Stats
from tests.versions.trees import (
    NAMES,
    content,
    make_tree,
    posix,
    xxh3,
)

SIZES = [0, 1, 8192, 2**16 - 1, 2**16, 2**16 + 1, 2**19 - 1, 2**19, 2**19 + 1, 2**20 + 7]


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
