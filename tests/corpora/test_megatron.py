"""Indexed datasets: rows are the sequences that were written; the .idx is believed only where it fits the .bin."""

import os
import pickle
import shutil
import struct
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detdata import CorpusError, CorpusUnreadable, index_corpus, open_corpus
from detdata.testing import CorpusSuite

CODES = {"uint8": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "uint16": 8}


def idx_of(lengths, pointers, dtype="uint16", *, documents=None, modes=b"", version=1, code=None):
    documents = range(len(lengths) + 1) if documents is None else documents
    return (
        struct.pack("<9sQBQQ", b"MMIDIDX", version, code or CODES[dtype], len(lengths), len(documents))
        + np.array(lengths, "<i4").tobytes()
        + np.array(pointers, "<i8").tobytes()
        + np.array(documents, "<i8").tobytes()
        + modes
    )


def write_pair(stem, rows, dtype="uint16", **fields):
    """Write sequences as Megatron-LM does; returns the path of the .idx."""
    arrays = [np.array(row, dtype) for row in rows]
    sizes = [array.nbytes for array in arrays]
    stem.with_suffix(".bin").write_bytes(b"".join(array.tobytes() for array in arrays))
    pointers = np.cumsum([0, *sizes])[:-1]
    stem.with_suffix(".idx").write_bytes(idx_of([len(row) for row in rows], pointers, dtype, **fields))
    return stem.with_suffix(".idx")


ROWS = st.lists(st.lists(st.integers(0, 127), max_size=8), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(rows=ROWS, dtype=st.sampled_from(sorted(CODES)), per_block=st.none() | st.integers(1, 4), data=st.data())
def test_rows_are_the_sequences_that_were_written(tmp_path_factory, rows, dtype, per_block, data):
    folder = tmp_path_factory.mktemp("megatron")
    modes = bytes(len(rows)) if data.draw(st.booleans()) else b""
    path = write_pair(folder / "a", rows, dtype, modes=modes)

    corpus = open_corpus(path, rows_per_block=per_block)

    ids = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=10))
    assert [row.tolist() for row in corpus] == rows
    assert [row.tolist() for row in corpus.take(ids)] == [rows[i] for i in ids]
    assert all(row.dtype == np.int64 and row.flags.writeable for row in corpus)
    assert corpus.take_columns([*ids, 0])["tokens"].to_pylist() == [rows[i] for i in [*ids, 0]]
    assert [list(row) for row in corpus.take_columns([*ids, 0], "numpy")["tokens"]] == [rows[i] for i in [*ids, 0]]


@settings(max_examples=60, deadline=None)
@given(rows=ROWS, dtype=st.sampled_from(sorted(CODES)), seq_len=st.integers(1, 7), extra=st.integers(0, 1))
def test_windows_are_slices_of_all_sequences_behind_each_other(tmp_path_factory, rows, dtype, seq_len, extra):
    path = write_pair(tmp_path_factory.mktemp("megatron") / "a", rows, dtype)
    flat = [token for row in rows for token in row]
    expected = [flat[i : i + seq_len + extra] for i in range(0, len(flat) - seq_len - extra + 1, seq_len)]
    if not expected:
        return

    corpus = open_corpus(path, seq_len=seq_len, next_token=bool(extra))

    assert [row.tolist() for row in corpus] == expected
    assert corpus.take_columns([0, 0], "numpy")["tokens"].tolist() == [expected[0]] * 2


@settings(max_examples=40, deadline=None)
@given(spans=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)), min_size=1, max_size=9), data=st.data())
def test_sequences_may_lie_anywhere_and_overlap(tmp_path_factory, spans, data):
    folder = tmp_path_factory.mktemp("megatron")
    tokens = np.arange(52, dtype="<u2")
    (folder / "a.bin").write_bytes(b"\0" + tokens.tobytes())  # from an odd byte on
    lengths, pointers = [size for _, size in spans], [1 + 2 * start for start, _ in spans]
    (folder / "a.idx").write_bytes(idx_of(lengths, pointers))

    corpus = open_corpus(folder / "a.idx", rows_per_block=data.draw(st.integers(1, 4)))

    assert [row.tolist() for row in corpus] == [list(range(start, start + size)) for start, size in spans]
    with pytest.raises(CorpusError, match="windows cannot be cut"):
        open_corpus(folder / "a.idx", seq_len=1)


def test_a_block_is_the_sequences_that_begin_in_one_mib_of_tokens(tmp_path):
    rows = [np.zeros(150_000, np.uint16)] * 10 + [[]] * 3

    assert open_corpus(write_pair(tmp_path / "a", rows)).block_sizes.tolist() == [4, 3, 6]


def test_a_pair_is_found_by_either_file_by_its_prefix_and_in_folders_once(tmp_path):
    path = write_pair(tmp_path / "a", [[1, 2], [3]])
    prefix, data = tmp_path / "a", tmp_path / "a.bin"

    for asked in (path, prefix, data, tmp_path, [path], [data, path], tmp_path / "a.*", [prefix]):
        corpus = open_corpus(asked)
        assert corpus.format == "megatron"
        assert corpus.files == (str(path),)
        assert [row.tolist() for row in corpus] == [[1, 2], [3]]
    for asked in (data, prefix, tmp_path):
        assert [row.tolist() for row in open_corpus(asked, "megatron")] == [[1, 2], [3]]
    assert [row.tolist() for row in open_corpus(data, dtype="uint16", seq_len=3)] == [[1, 2, 3]]
    assert [row.tolist() for row in open_corpus(tmp_path, "tokens", dtype="uint16", seq_len=3)] == [[1, 2, 3]]
    assert [done.rows for done in index_corpus(tmp_path)] == [2]


def test_a_raw_file_among_pairs_is_another_format(tmp_path):
    write_pair(tmp_path / "a", [[1, 2], [3]])
    (tmp_path / "b.bin").write_bytes(bytes(4))

    with pytest.raises(ValueError, match="several formats"):
        open_corpus(tmp_path)


def test_a_change_of_either_file_is_noticed(tmp_path):
    path = write_pair(tmp_path / "a", [[1, 2], [3]])
    for name in ("a.bin", "a.idx"):
        corpus = open_corpus(path)
        opened = open_corpus(path)
        opened[0]
        os.utime(tmp_path / name, ns=(5, 5))
        for one in (corpus, opened):
            with pytest.raises(CorpusUnreadable, match="has changed"):
                one[0]


def test_the_version_is_that_of_both_files(tmp_path):
    path = write_pair(tmp_path / "a", [[1, 2], [3]])
    before = open_corpus(path).version()
    (tmp_path / "copy").mkdir()
    for name in ("a.idx", "a.bin"):
        shutil.copy(tmp_path / name, tmp_path / "copy" / name)
    assert open_corpus(tmp_path / "copy" / "a.idx").version() == before

    (tmp_path / "copy" / "a.bin").write_bytes(np.array([1, 2, 4], "<u2").tobytes())

    assert open_corpus(tmp_path / "copy" / "a.idx").version() != before


@pytest.mark.parametrize(
    ("idx", "reason"),
    [
        (b"", "does not begin like one"),
        (b"MMIDIDX\0\0", "does not begin like one"),
        (b"TNTIDX\0\0" + bytes(40), "does not begin like one"),
        (idx_of([1], [0], version=2), "version 2"),
        (idx_of([1], [0], code=7), "floats"),
        (idx_of([1], [0], code=9), "type 9"),
        (idx_of([1], [0])[:-1], "cut off, or damaged"),
        (idx_of([1], [0]) + b"xx", "cut off, or damaged"),
        (struct.pack("<9sQBQQ", b"MMIDIDX", 1, 8, 2**64 - 1, 2**64 - 1), "cut off, or damaged"),
        (idx_of([-1], [0]), "sequence 0 has -1 tokens"),
        (idx_of([1, 1], [0, -2]), "sequence 1 has 1 tokens from byte -2"),
        (idx_of([1], [2**63 - 1]), "sequence 0 has 1 tokens from byte 9223372036854775807"),
        (idx_of([1, 5], [0, 0]), "sequence 1 has 5 tokens from byte 0 .* has 8 bytes"),
        (idx_of([2**31 - 1], [0]), "sequence 0 has 2147483647 tokens"),
        (idx_of([1], [7]), "sequence 0 has 1 tokens from byte 7"),
        (idx_of([1, 1], [0, 2], documents=[0, 2, 1]), "do not ascend"),
        (idx_of([1, 1], [0, 2], documents=[0, 1]), "documents end at sequence 1"),
        (idx_of([1, 1], [0, 2], documents=[-1, 2]), "do not ascend"),
    ],
)
def test_a_broken_or_hostile_index_is_an_error(tmp_path, idx, reason):
    (tmp_path / "a.bin").write_bytes(bytes(8))
    (tmp_path / "a.idx").write_bytes(idx)

    with pytest.raises(CorpusError, match=reason):
        open_corpus(tmp_path / "a.idx")


def test_half_a_pair_is_an_error_that_names_the_other(tmp_path):
    path = write_pair(tmp_path / "a", [[1]])
    (tmp_path / "a.bin").unlink()
    with pytest.raises(CorpusUnreadable, match=r"a\.bin.*no such file"):
        open_corpus(path)
    with pytest.raises(ValueError, match=r"next_token"):
        open_corpus(write_pair(tmp_path / "b", [[1]]), next_token=True)


def test_sequences_beyond_two_gib_are_those_of_the_file(tmp_path):
    size = 5 << 30
    with (tmp_path / "a.bin").open("wb") as file:
        file.truncate(size)
        file.seek(size - 8)
        file.write(np.arange(4, dtype="<u2").tobytes())
    lengths = [1 << 30, 1 << 30, (1 << 29) - 4, 4]
    pointers = [0, 1 << 31, 1 << 32, size - 8]
    (tmp_path / "a.idx").write_bytes(idx_of(lengths, pointers))

    corpus = open_corpus(tmp_path / "a")

    assert corpus[3].tolist() == [0, 1, 2, 3]
    windows = open_corpus(tmp_path / "a", seq_len=256)
    assert windows[len(windows) - 1].tolist() == [0] * 252 + [0, 1, 2, 3]


def test_a_pickled_corpus_gives_the_same_rows(tmp_path):
    corpus = open_corpus(write_pair(tmp_path / "a", [[1, 2], [3]]))
    assert corpus[1].tolist() == [3]

    assert [row.tolist() for row in pickle.loads(pickle.dumps(corpus))] == [[1, 2], [3]]


class TestMegatron(CorpusSuite):
    format = "megatron"
    options: ClassVar = {"rows_per_block": 8}
    columns = ()

    def rows(self, count, seed):
        return [np.arange(seed, seed + k % 7 + 1) * 31 for k in range(count)]

    def write(self, folder, rows):
        return write_pair(folder / "a", rows)


class TestMegatronWindows(CorpusSuite):
    format = "megatron"
    options: ClassVar = {"rows_per_block": 8, "seq_len": 5}
    columns = ()

    def rows(self, count, seed):
        return list((np.arange(count * 5) * 7919 % 50021 + seed).reshape(count, 5))

    def write(self, folder, rows):
        return write_pair(folder / "a", np.array(rows).reshape(-1, 3) if len(rows) % 3 == 0 else rows)
