"""Writing: the bytes and their digest are those given, however they are given; errors wait for `finish`."""

import os
from pathlib import Path

import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from detdata.checkpoint import files
from detdata.checkpoint.files import CHUNK, HashingFile, hash_file, write_file

SIZES = [0, 1, 100, CHUNK // 2, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 3 * CHUNK + 5]


class Slow:
    """An unbuffered file that takes at most `most` bytes at a time, and raises at the call number `fails`."""

    def __init__(self, most=1 << 40, fails=0, error=None):
        self.most, self.fails, self.error = most, fails, error
        self.content = bytearray()
        self.calls = 0

    def write(self, data):
        self.calls += 1
        if self.calls == self.fails:
            raise self.error
        self.content += data[: self.most]
        return min(len(data), self.most)

    def fileno(self):
        return 0


def stretch(size, start):
    return bytes((start + place) * 2654435761 % 251 for place in range(min(size, 997))) * (size // 997 + 1)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(SIZES), max_size=6))
def test_any_writes_make_the_file_and_the_digest_of_their_sum(tmp_path_factory, sizes):
    path = tmp_path_factory.mktemp("any") / "f"
    pieces = [stretch(size, start)[:size] for start, size in enumerate(sizes)]

    record = write_file(path, lambda file: [file.write(piece) for piece in pieces])

    whole = b"".join(pieces)
    assert path.read_bytes() == whole
    assert record.to_dict() == {"size": len(whole), "digest": f"xxh3-128:{xxhash.xxh3_128(whole).hexdigest()}"}
    assert hash_file(path) == record


@pytest.mark.parametrize("most", [CHUNK - 1, CHUNK // 3])
def test_a_system_that_takes_less_is_asked_again(monkeypatch, most):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    data = stretch(3 * CHUNK + 7, 1)[: 3 * CHUNK + 7]
    slow = Slow(most)
    file = HashingFile(slow)

    assert file.write(b"head") == 4
    assert file.write(memoryview(data)) == len(data)
    assert file.finish().size == len(data) + 4
    assert slow.content == b"head" + data


def test_the_caller_may_change_its_memory_once_write_returns(tmp_path):
    small, large = bytearray(b"a" * 100), bytearray(b"b" * (CHUNK + 3))

    def write(file):
        for memory in (small, large):
            file.write(memory)
            memory[:] = bytes(len(memory))

    write_file(tmp_path / "f", write)

    assert (tmp_path / "f").read_bytes() == b"a" * 100 + b"b" * (CHUNK + 3)


@pytest.mark.parametrize("error", [OSError(28, "disk full"), KeyboardInterrupt()])
@pytest.mark.parametrize("fails", [1, 2, 3])
def test_an_error_waits_for_finish_and_nothing_is_written_after_it(monkeypatch, error, fails):
    monkeypatch.setattr(os, "fsync", lambda descriptor: pytest.fail("synced what is not whole"))
    slow = Slow(fails=fails, error=error)
    file = HashingFile(slow)

    for _ in range(2):
        assert file.write(bytes(2 * CHUNK)) == 2 * CHUNK
    file.write(b"tail")

    with pytest.raises(type(error)) as caught:
        file.finish()
    assert caught.value is error
    assert slow.calls == fails


def test_an_error_of_the_last_bytes_is_raised_too(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda descriptor: pytest.fail("synced what is not whole"))
    file = HashingFile(Slow(fails=1, error=OSError(28, "disk full")))
    file.write(b"few")

    with pytest.raises(OSError, match="disk full"):
        file.finish()


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="no such call here")
def test_the_disk_is_told_to_begin_with_each_stretch_and_may_decline(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "STRETCH", 2 * CHUNK)
    told = []

    def advise(descriptor, start, size, advice):
        told.append((start, size))
        raise OSError(22, "not here")

    monkeypatch.setattr(os, "posix_fadvise", advise)
    write_file(tmp_path / "f", lambda file: [file.write(bytes(CHUNK + 1)) for _ in range(4)])

    starts = [start for start, _ in told]
    assert len(told) >= 2
    assert starts == [sum(size for _, size in told[:index]) for index in range(len(told))]
    assert (tmp_path / "f").stat().st_size == 4 * CHUNK + 4


def test_without_that_call_the_file_is_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "STRETCH", CHUNK)
    monkeypatch.delattr(os, "posix_fadvise", raising=False)

    record = write_file(Path(tmp_path / "f"), lambda file: file.write(bytes(3 * CHUNK)))

    assert hash_file(tmp_path / "f") == record
