"""The digest made behind a reader is that of all pieces in their order, whoever hashes, and nothing stays behind."""

import threading

import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from detdata.checkpoint import hashing_behind
from detdata.checkpoint.hashing_behind import PIECE, HashingBehind

SIZES = st.lists(st.sampled_from([0, 1, 100, 1 << 16, PIECE - 1, PIECE, PIECE + 1]), max_size=8)
CONTENT = bytes(range(256)) * (PIECE // 128)


@pytest.mark.parametrize("processors", [1, 2])
@given(sizes=SIZES)
@settings(deadline=None, max_examples=30)
def test_the_digest_is_that_of_all_pieces(processors, sizes):
    pieces = [memoryview(CONTENT)[number : number + size] for number, size in enumerate(sizes)]
    before = threading.active_count()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hashing_behind, "_processors", lambda: processors)
        with HashingBehind() as hasher:
            for piece in pieces:
                hasher.update(piece)
            found = hasher.hexdigest()

    assert found == xxhash.xxh3_128(b"".join(pieces)).hexdigest()
    assert threading.active_count() == before


def test_a_reader_that_fails_leaves_no_thread(monkeypatch):
    monkeypatch.setattr(hashing_behind, "_processors", lambda: 2)
    before = threading.active_count()

    def read():
        with HashingBehind() as hasher:
            hasher.update(memoryview(CONTENT))
            raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        read()

    assert threading.active_count() == before


def test_what_goes_wrong_behind_is_told_to_who_asks(monkeypatch):
    monkeypatch.setattr(hashing_behind, "_processors", lambda: 2)

    def make():
        with HashingBehind() as hasher:
            hasher._hash = None
            hasher.update(memoryview(CONTENT))
            return hasher.hexdigest()

    with pytest.raises(AttributeError):
        make()
