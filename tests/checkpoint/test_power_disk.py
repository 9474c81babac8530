"""The model of the disk that the proof stands on: what a power cut may leave, in cases small enough to list."""

import os

import pytest

from tests.checkpoint.disk import Pool, products, subsets
from tests.checkpoint.power import scratch
from tests.checkpoint.recorder import Recorder


@pytest.fixture
def base():
    with scratch() as path:
        yield path


def left(base, work, patch):
    """Every tree that may be left of what `work` does in `base`, files as bytes and folders as dictionaries."""
    recorder = Recorder(base)
    with patch.context() as within:
        recorder.install(within)
        work()
    recorder.finish()
    pool = Pool()

    def readable(tree):
        return {name: readable(state) if isinstance(state, tuple) else pool.contents[state] for name, state in tree}

    return [readable(tree) for tree in recorder.disk.states(pool)]


def sync(path):
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def test_a_file_that_was_not_synced_is_missing_empty_zeros_half_or_whole(base, monkeypatch):
    found = left(base, lambda: (base / "a").write_bytes(b"1234"), monkeypatch)

    assert found == [{}, {"a": b""}, {"a": bytes(4)}, {"a": b"12"}, {"a": b"1234"}]


def test_a_synced_file_has_its_bytes_and_still_no_name(base, monkeypatch):
    def work():
        (base / "a").write_bytes(b"1234")
        sync(base / "a")

    assert left(base, work, monkeypatch) == [{}, {"a": b"1234"}]


def test_a_synced_folder_has_its_names_and_their_bytes_may_be_missing(base, monkeypatch):
    def work():
        (base / "a").write_bytes(b"1234")
        sync(base)

    assert [tree["a"] for tree in left(base, work, monkeypatch)] == [b"", bytes(4), b"12", b"1234"]


def test_renames_reach_the_disk_in_any_order_and_never_give_two_names(base, monkeypatch):
    for name in ("old", "new"):
        (base / name).mkdir()
        (base / name / name).write_bytes(b"")

    def work():
        (base / "old").rename(base / "aside")
        (base / "new").rename(base / "old")

    old, new = {"old": b""}, {"new": b""}
    expected = [{"old": old, "new": new}, {"aside": old, "new": new}, {"old": new}, {"aside": old, "old": new}]
    found = left(base, work, monkeypatch)
    assert all(tree in found for tree in expected)
    assert len(found) == 4


def test_what_was_removed_may_be_there_still_in_part(base, monkeypatch):
    (base / "a").mkdir()
    for name in ("x", "y"):
        (base / "a" / name).write_bytes(b"")

    def work():
        for name in ("x", "y"):
            (base / "a" / name).unlink()
        (base / "a").rmdir()

    found = left(base, work, monkeypatch)
    assert {tuple(sorted(tree["a"])) if tree else None for tree in found} == {None, (), ("x",), ("y",), ("x", "y")}


def test_few_changes_are_combined_in_every_way_and_many_with_each_alone_and_each_left_out():
    assert len(list(subsets("abcdefg"))) == 2**7
    many = ["".join(chosen) for chosen in subsets("abcdefghijkl")]
    assert {"", "a", "l", "abcdefghijkl", "bcdefghijkl", "abc"} <= set(many)
    assert len(many) == len(set(many)) < 100
    assert len(list(products([[0, 1]] * 8))) == 2**8
    assert {(0,) * 11, (1,) * 11, (1, *[0] * 10)} <= set(products([[0, 1]] * 11))
