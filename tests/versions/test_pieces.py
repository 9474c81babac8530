"""Jobs for pieces: within bounds that are said, made as they are handed out, and joined in the order of the file."""

import os
from concurrent.futures import Future, wait
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detdata import Manifest, hash_dataset
from detdata.errors import ArgumentTypeError, ArgumentValueError
from detdata.versions import jobs
from detdata.versions.files import digest_file, stat_file
from detdata.versions.pieces import MAX_PIECE, MIN_PIECE, check_piece_size, piece_digests
from detdata.versions.stats import Stats

BAD_SIZES = [1, 64, MIN_PIECE - 1, MAX_PIECE + 1, 2**63, 2**64, 10**30, -1]


@pytest.mark.parametrize("size", BAD_SIZES)
def test_a_piece_size_out_of_bounds_is_refused_before_anything_is_read(tmp_path, size):
    (tmp_path / "f").write_bytes(b"1")
    with pytest.raises(ArgumentValueError, match="piece_size must be"):
        hash_dataset(tmp_path, piece_size=size)
    with pytest.raises(ArgumentValueError, match="piece_size must be"):
        hash_dataset(tmp_path / "gone", piece_size=size)


@pytest.mark.parametrize("size", ["1", 2.0, None, True])
def test_a_piece_size_is_an_integer(size):
    with pytest.raises(ArgumentTypeError, match="piece_size must be"):
        check_piece_size(size)


@pytest.mark.parametrize("size", [0, MIN_PIECE, MAX_PIECE])
def test_the_bounds_are_within(tmp_path, size):
    (tmp_path / "f").write_bytes(b"x" * 200_000)
    assert hash_dataset(tmp_path, piece_size=size).piece_size == size


@pytest.mark.parametrize("size", [1, 7, 2**63 - 1])
@pytest.mark.parametrize("where", ["folder", "url"])
def test_a_manifest_with_such_pieces_loads_and_is_not_verified(tmp_path, size, where):
    (tmp_path / "f").touch()
    os.truncate(tmp_path / "f", 2**33)
    hostile = Manifest.build(["f"], [2**63 - 1], ["0" * 32], piece_size=size)
    with pytest.raises(ArgumentValueError, match="piece_size must be"):
        hostile.verify(tmp_path if where == "folder" else f"file://{tmp_path}")


@given(data=st.binary(max_size=300), size=st.integers(1, 320), cuts=st.lists(st.integers(0, 300), max_size=6))
def test_the_pieces_are_the_same_whatever_the_blocks(data, size, cuts):
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    blocks = [memoryview(data)[a:b] for a, b in pairwise(edges)]
    whole = [data[i : i + size] for i in range(0, len(data), size)]
    expected = [digest for piece in whole for digest in piece_digests([piece], "xxh3-128", len(piece))]
    assert list(piece_digests(blocks, "xxh3-128", size)) == expected


class Recording:
    """An executor that runs at once, and counts what is outstanding."""

    def __init__(self):
        self.jobs = 0

    def submit(self, function, *arguments):
        self.jobs += 1
        future = Future()
        future.set_result(function(*arguments))
        return future


def test_jobs_are_made_as_they_are_handed_out_and_hold_many_small_pieces(tmp_path, monkeypatch):
    (tmp_path / "f").touch()
    os.truncate(tmp_path / "f", 2**43)  # a hole: 8 TiB and no byte on the disk
    way = jobs.Way(str(tmp_path), "xxh3-128", 2**16, "follow")
    stats = Stats(stat_file(tmp_path / "f"))
    executor = Recording()

    def stop_soon(*_, **__):
        if executor.jobs == 200:
            raise KeyboardInterrupt
        return b"0" * 16 * 128

    monkeypatch.setattr(jobs, "digest_piece", stop_soon)
    with pytest.raises(KeyboardInterrupt):  # a list of all 1 million jobs, or of 134 million pieces, is never made
        jobs.digest_all(way, ["f"], stats, [0], lambda *_: None, executor=executor)
    assert executor.jobs == 200


class Stalling:
    """An executor whose first job is done only when there is nothing else to wait for."""

    def __init__(self):
        self.first, self.most = None, 0
        self.jobs = 0

    def submit(self, function, *arguments):
        self.jobs += 1
        future = Future()
        if self.first is None:
            self.first = (future, function, arguments)
        else:
            future.set_result(function(*arguments))
        return future

    def wait(self, futures, return_when):
        if not any(future.done() for future in futures):
            self.most = self.jobs
            self.first[0].set_result(self.first[1](*self.first[2]))
        return wait(futures, return_when=return_when)


def test_one_slow_job_does_not_let_the_others_pile_up(tmp_path, monkeypatch):
    (tmp_path / "f").write_bytes(os.urandom(2**16) * 100)
    executor = Stalling()
    for name, value in (("_RUN", 1), ("_EARLY", 8), ("_AHEAD", 4)):
        monkeypatch.setattr(jobs, name, value)
    monkeypatch.setattr("concurrent.futures.wait", executor.wait)
    found = []
    way = jobs.Way(str(tmp_path), "xxh3-128", 2**16, "follow")
    stats = Stats(stat_file(tmp_path / "f"))

    jobs.digest_all(way, ["f"], stats, [0], found.extend, executor=executor)
    assert executor.jobs == 100
    assert 4 < executor.most <= 8 + 4 + 1
    assert found == [(0, digest_file(tmp_path / "f", "xxh3-128", 2**16).hex)]
