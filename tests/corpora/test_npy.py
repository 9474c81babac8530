"""NumPy files: rows are those of the array that was saved; headers are data, and broken ones are errors."""

import io
import struct
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from detdata import CorpusError, open_corpus
from detdata.testing import CorpusSuite

DTYPES = ["?", "i1", "<u2", ">i4", "<u4", "<i8", ">u8", "<f2", ">f4", "<f8", ">c8", "<c16"]
SHAPES = hnp.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=6)
ARRAYS = st.sampled_from(DTYPES).flatmap(lambda dtype: hnp.arrays(dtype, SHAPES))


def same(one, other):
    equal = one.dtype == other.dtype.newbyteorder("=") and one.shape == other.shape
    return equal and one.tobytes() == other.astype(one.dtype).tobytes()


@settings(max_examples=80, deadline=None)
@given(array=ARRAYS, per_block=st.none() | st.integers(1, 4), data=st.data())
def test_rows_are_those_of_the_array(tmp_path_factory, array, per_block, data):
    path = tmp_path_factory.mktemp("npy") / "a.npy"
    np.save(path, array)

    corpus = open_corpus(path, rows_per_block=per_block)

    ids = [*data.draw(st.lists(st.integers(0, len(array) - 1), max_size=10)), 0]
    assert len(corpus) == len(array)
    assert all(same(row, array[i]) for i, row in enumerate(corpus))
    assert all(same(row, array[i]) for i, row in zip(ids, corpus.take(ids), strict=True))
    assert same(corpus.take_columns(ids, "numpy")["value"], array[ids])


@settings(max_examples=40, deadline=None)
@given(
    array=hnp.arrays(st.sampled_from(["u1", "<i2", ">u2", "<u4", "<i8", ">i8"]), st.integers(1, 50)),
    seq_len=st.integers(1, 8),
    extra=st.integers(0, 1),
)
def test_windows_are_slices_of_a_row_of_integers(tmp_path_factory, array, seq_len, extra):
    path = tmp_path_factory.mktemp("npy") / "a.npy"
    np.save(path, array)
    expected = [array[i : i + seq_len + extra].tolist() for i in range(0, len(array) - seq_len - extra + 1, seq_len)]
    if not expected:
        return

    corpus = open_corpus(path, seq_len=seq_len, next_token=bool(extra))

    assert [row.tolist() for row in corpus] == expected
    assert {row.dtype for row in corpus} == {np.dtype("int64")}


def test_columns_are_numbers_and_lists_of_them(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(24, dtype=">i4").reshape(4, 3, 2))
    np.save(tmp_path / "b.npy", np.array([1.5, 2.5], ">f8"))
    np.save(tmp_path / "c.npy", np.array([[1j]]))

    table = open_corpus(tmp_path / "a.npy").take_columns([3, 0])
    assert table.schema.field("value").type == pa.list_(pa.list_(pa.int32(), 2), 3)
    assert table["value"].to_pylist() == [[[18, 19], [20, 21], [22, 23]], [[0, 1], [2, 3], [4, 5]]]
    assert open_corpus(tmp_path / "b.npy").take_columns([1, 0])["value"].to_pylist() == [2.5, 1.5]
    assert open_corpus(tmp_path / "b.npy").take_columns([1, 0], "torch")["value"].tolist() == [2.5, 1.5]
    assert open_corpus(tmp_path / "c.npy").take_columns([0], "torch")["value"].tolist() == [[1j]]
    with pytest.raises(CorpusError, match="complex128 has no Arrow type"):
        open_corpus(tmp_path / "c.npy").take_columns([0])


def test_one_number_is_a_numpy_scalar_and_rows_are_copies(tmp_path):
    np.save(tmp_path / "a.npy", np.array([3, 4]))
    np.save(tmp_path / "b.npy", np.array([[3, 4]]))
    corpus = open_corpus(tmp_path / "b.npy")

    one, other = corpus.take([0, 0])
    one[:] = 0

    assert type(open_corpus(tmp_path / "a.npy")[1]) is np.int64
    assert other.tolist() == corpus[0].tolist() == [3, 4]


def test_files_of_one_corpus_have_rows_of_one_type(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((2, 3), "<f4"))
    np.save(tmp_path / "b.npy", np.zeros((2, 3), ">f4"))
    np.save(tmp_path / "c.npy", np.zeros((2, 4), "<f4"))

    assert len(open_corpus([tmp_path / "a.npy", tmp_path / "b.npy"])) == 4
    with pytest.raises(CorpusError, match=r"c\.npy: .*float32\[4\] there: float32\[3\]"):
        open_corpus([tmp_path / "a.npy", tmp_path / "c.npy"])


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        (np.array([{}, None]), "objects are never unpickled"),
        (np.array(["a"]), "rows of numbers"),
        (np.zeros(2, "i4,f4"), "rows of numbers"),
        (np.zeros(2, "M8[s]"), "rows of numbers"),
        (np.float64(1), "without an axis"),
        (np.asfortranarray(np.zeros((3, 2))), "Fortran order"),
        (np.zeros((3, 0)), "rows without a number"),
    ],
)
def test_what_has_no_rows_of_numbers_is_refused(tmp_path, array, reason):
    np.save(tmp_path / "a.npy", array, allow_pickle=True)

    with pytest.raises(CorpusError, match=reason):
        open_corpus(tmp_path / "a.npy")


def header(text, version=1):
    body = text.encode()
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", len(body)) + body


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b"\x93NUMPY", "does not begin like a .npy file"),
        (b"PK" + bytes(100), "does not begin like a .npy file"),
        (header("{'descr': '<i8', 'fortran_order': False, 'shape': (-1,)}"), "shape that no array has"),
        (header("{'descr': '<i8', 'fortran_order': False, 'shape': (True,)}") + bytes(8), "shape that no array has"),
        (header("{'descr': '<i8', 'fortran_order': False, 'shape': (2,)}") + bytes(15), "is cut off"),
        (header("{'descr': '<i8', 'fortran_order': False, 'shape': (2,)}") + bytes(17), "something behind"),
        (header("{'descr': '<i8', 'fortran_order': False, 'shape': (9223372036854775807, 8)}"), "shape that no array"),
        (header("{'descr': '<i8', 'fortran_order': False, 'shape': (4611686018427387904, 4)}"), "is cut off"),
        (header("{'descr': '<i8', 'fortran_order': False, 'shape': (2.0,)}"), "shape that no array has"),
        (header("{'descr': '<i8', 'fortran_order': False, 'shape': 2}"), "header that cannot be read"),
        (header("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}") + b"cos\nsystem\n", "never unpickled"),
        (header("{'descr': '|V0', 'fortran_order': False, 'shape': (5,)}"), "rows of numbers"),
        (header("__import__('os').abort()"), "header that cannot be read"),
        (header("[" * 9000), "header that cannot be read"),
        (header("{'descr': '<i8'}"), "header that cannot be read"),
        (header("x" * 100, version=9), "version 9"),
        (b"\x93NUMPY\x02\x00" + b"\xff" * 4 + bytes(50), "4294967295 bytes"),
        (b"\x93NUMPY\x01\x00\x76\x00" + bytes(50), "is cut off"),
    ],
)
def test_broken_and_hostile_headers_are_errors(tmp_path, content, reason):
    (tmp_path / "a.npy").write_bytes(content)

    with pytest.raises(CorpusError, match=reason):
        open_corpus(tmp_path / "a.npy")


@settings(max_examples=150, deadline=None)
@given(place=st.integers(0, 127), value=st.integers(0, 255))
def test_a_changed_byte_of_the_header_gives_an_error_or_an_array_that_numpy_reads_too(tmp_path_factory, place, value):
    path = tmp_path_factory.mktemp("npy") / "a.npy"
    target = io.BytesIO()
    np.save(target, np.arange(6, dtype="<i8"))
    content = bytearray(target.getvalue())
    content[place] = value
    path.write_bytes(content)
    try:
        rows = open_corpus(path).take_columns(range(len(open_corpus(path))), "numpy")["value"]
    except ValueError:
        return
    assert same(rows, np.load(path, allow_pickle=False))


def test_headers_of_both_versions_are_read(tmp_path):
    with (tmp_path / "a.npy").open("wb") as file:
        np.lib.format.write_array(file, np.array([7, 8]), version=(2, 0))

    assert open_corpus(tmp_path / "a.npy")[1] == 8


def test_rows_beyond_two_gib_are_those_of_the_file(tmp_path):
    path = tmp_path / "a.npy"
    path.write_bytes(header("{'descr': '<u4', 'fortran_order': False, 'shape': (1310720, 1024)}"))
    start = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(start + 1310720 * 4096)
        file.seek(start + 1310719 * 4096)
        file.write(np.arange(1024, dtype="<u4").tobytes())

    assert open_corpus(path)[1310719].tolist() == list(range(1024))


def test_windows_of_what_is_no_row_of_integers_are_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros(9))
    np.save(tmp_path / "b.npy", np.zeros((9, 2), int))

    for name in ("a.npy", "b.npy"):
        with pytest.raises(CorpusError, match="one axis of integers"):
            open_corpus(tmp_path / name, seq_len=3)
    with pytest.raises(ValueError, match="goes with seq_len"):
        open_corpus(tmp_path / "b.npy", next_token=True)


class TestNpy(CorpusSuite):
    format = "npy"
    options: ClassVar = {"rows_per_block": 8}
    columns = ()

    def rows(self, count, seed):
        return list(np.arange(count * 5, dtype=np.float32).reshape(count, 5) + seed)

    def write(self, folder, rows):
        np.save(folder / "a.npy", np.array(rows, np.float32).reshape(-1, 5))
        return folder / "a.npy"
