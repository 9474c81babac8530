"""Raw token files: rows are the windows that slicing a list gives; nothing crosses files; wrong sizes are errors."""

import os
import pickle
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detdata import CorpusError, CorpusUnreadable, open_corpus
from detdata.testing import CorpusSuite

DTYPES = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "int64", ">u2", ">i4", ">i8"]


def write_tokens(path, values, dtype):
    path.write_bytes(np.array(values, dtype).tobytes())
    return path


def windows(values, seq_len, extra=0):
    """Rows by slicing a list: the oracle."""
    last = len(values) - seq_len - extra
    return [values[start : start + seq_len + extra] for start in range(0, last + 1, seq_len)]


@settings(max_examples=60, deadline=None)
@given(data=st.data(), dtype=st.sampled_from(DTYPES), seq_len=st.integers(1, 9), extra=st.booleans())
def test_rows_are_the_slices_of_each_file(tmp_path_factory, data, dtype, seq_len, extra):
    folder = tmp_path_factory.mktemp("tokens")
    info = np.iinfo(dtype)
    one_file = st.lists(st.integers(int(info.min), int(info.max)), min_size=0, max_size=60)
    files = data.draw(st.lists(one_file, min_size=1, max_size=3))
    paths = [write_tokens(folder / f"{k}.bin", values, dtype) for k, values in enumerate(files)]
    expected = [row for values in files for row in windows(values, seq_len, extra)]
    per_block = data.draw(st.none() | st.integers(1, 4))
    if not expected:
        with pytest.raises(ValueError, match="empty"):
            open_corpus(paths, dtype=dtype, seq_len=seq_len, next_token=extra)
        return

    corpus = open_corpus(paths, dtype=dtype, seq_len=seq_len, next_token=extra, rows_per_block=per_block)

    ids = data.draw(st.lists(st.integers(0, len(expected) - 1), max_size=20))
    assert [row.tolist() for row in corpus] == expected
    assert [row.tolist() for row in corpus.take(ids)] == [expected[i] for i in ids]
    assert all(row.dtype == np.int64 and row.flags.writeable for row in corpus.take(ids))
    for kind in ("numpy", "torch"):
        column = corpus.take_columns([*ids, 0], kind)["tokens"]
        assert column.tolist() == [expected[i] for i in [*ids, 0]]
        assert str(column.dtype).endswith("int64")
    assert corpus.take_columns([*ids, 0])["tokens"].to_pylist() == [expected[i] for i in [*ids, 0]]


def test_a_row_that_is_changed_changes_nobody_elses(tmp_path):
    corpus = open_corpus(write_tokens(tmp_path / "a.bin", range(12), "int64"), dtype="int64", seq_len=3)

    first, again = corpus.take([1, 1])
    first[:] = -1
    corpus[1][:] = -1
    corpus.take_columns([1], "torch")["tokens"][:] = -1

    assert again.tolist() == corpus[1].tolist() == [3, 4, 5]


def test_blocks_have_about_one_mib_of_the_file(tmp_path):
    corpus = open_corpus(write_tokens(tmp_path / "a.bin", np.zeros(3 << 19), "uint16"), dtype="uint16", seq_len=128)

    assert corpus.block_sizes.tolist() == [4096, 4096, 4096]


def test_rows_beyond_two_gib_are_those_of_the_file(tmp_path):
    path, size = tmp_path / "a.bin", 5 << 30
    with path.open("wb") as file:
        file.truncate(size)
        for row in (0, (1 << 31) // 512 - 1, (1 << 31) // 512, (1 << 32) // 512, size // 512 - 1):
            file.seek(row * 512)
            file.write(np.arange(256, dtype="<u2").tobytes())

    corpus = open_corpus(path, dtype="uint16", seq_len=256)

    assert len(corpus) == size // 512
    rows = [(1 << 31) // 512 - 1, size // 512 - 1, 0, (1 << 31) // 512, (1 << 32) // 512]
    assert all(row.tolist() == list(range(256)) for row in corpus.take(rows))
    assert not corpus[(1 << 31) // 512 + 1].any()


def test_what_is_missing_or_wrong_is_said_with_the_way_out(tmp_path):
    path = write_tokens(tmp_path / "a.bin", range(6), "uint8")

    with pytest.raises(ValueError, match=r"dtype= is needed.* 6 bytes .*uint8, uint16, int8, int16$"):
        open_corpus(path, seq_len=2)
    with pytest.raises(ValueError, match="seq_len= is needed"):
        open_corpus(path, dtype="uint16")
    with pytest.raises(CorpusError, match=r"6 bytes, no multiple of the 4 bytes of uint32.*\(uint8, uint16,"):
        open_corpus(path, dtype="uint32", seq_len=1)
    with pytest.raises(ValueError, match="uint64"):
        open_corpus(path, dtype="uint64", seq_len=1)
    for wrong in ("float32", "complex64", "O", "no type", "bool", "V2", "u2,u2"):
        with pytest.raises(ValueError, match="dtype must be one of uint8, uint16"):
            open_corpus(path, dtype=wrong, seq_len=1)
    with pytest.raises(TypeError, match="next_token must be True or False, got 1"):
        open_corpus(path, dtype="uint16", seq_len=1, next_token=1)
    with pytest.raises(ValueError, match="columns="):
        open_corpus(path, dtype="uint16", seq_len=1, columns=["tokens"])


def test_a_file_that_grew_or_shrank_is_noticed(tmp_path):
    path = write_tokens(tmp_path / "a.bin", range(100), "uint16")
    corpus = open_corpus(path, dtype="uint16", seq_len=10)
    assert corpus[3].tolist() == list(range(30, 40))

    os.truncate(path, 100)

    with pytest.raises(CorpusUnreadable, match=r"has changed .*200 bytes then, 100 now"):
        corpus[3]


def test_a_pickled_corpus_gives_the_same_rows(tmp_path):
    corpus = open_corpus(write_tokens(tmp_path / "a.bin", range(100), "<u2"), dtype="uint16", seq_len=7)
    assert len(corpus[13]) == 7

    again = pickle.loads(pickle.dumps(corpus))

    assert [row.tolist() for row in again] == windows(list(range(100)), 7)


class TestTokens(CorpusSuite):
    format = "tokens"
    options: ClassVar = {"dtype": "uint16", "seq_len": 5, "rows_per_block": 8}
    columns = ()

    def rows(self, count, seed):
        return list((np.arange(count * 5) * 7919 % 50021 + seed).reshape(count, 5))

    def write(self, folder, rows):
        return write_tokens(folder / "a.bin", rows, "<u2")
