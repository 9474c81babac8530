"""What says more than it stores is taken a little at a time: the digests are the same, and memory stays small."""

import random
import sys
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detdata.rows import RowsError, cutting, first_row_differences, hash_rows
from detdata.rows.build import node_of
from detdata.rows.unordered import joined, values_of
from tests.rows import made, second
from tests.rows.test_digest import BLOCK, version
from tests.sources import run_python

SHARING = st.one_of(
    made.KINDS,
    made.KINDS.filter(lambda kind: kind.shape[0] in {"fixed", "bytes"}).map(made.coded).map(made.lists),
    st.sampled_from([made.runs(made.STRING), made.lists(made.runs(made.STRING)), made.lists(made.STRING)]),
)


def small(bytes_=20, items=3):
    return mock.patch.multiple(cutting, _MOST_BYTES=bytes_, _MOST_ITEMS=items)


@given(SHARING, st.data(), made.RANDOMS, st.integers(1, 60), st.integers(1, 20))
def test_where_it_is_cut_does_not_count(kind, data, r, size, items):
    values = data.draw(st.lists(st.none() | kind.values, max_size=20))
    with small(size, items):
        found = version(((("c", kind.text),), [kind], [values], len(values)), r)

    assert second.ordered((("c", kind.text),), [kind.shape], [values], len(values), block=BLOCK) == found.digest
    assert second.unordered((("c", kind.text),), [kind.shape], [values], len(values)) == found.unordered


def size_of(shape, value):
    """The bytes of a value, at least 8, as the module counts them at the least."""
    if value is None or shape[0] == "null":
        return 8
    if shape[0] in {"fixed", "bytes"}:
        return len(value)
    fields = shape[1] if shape[0] == "struct" else [shape[-1]] * len(value)
    return sum(size_of(*pair) for pair in zip(fields, value, strict=True))


@given(SHARING, st.data(), made.RANDOMS, st.integers(1, 12))
def test_slices_are_the_array_and_none_is_larger_than_allowed(kind, data, r, rows):
    values = data.draw(st.lists(st.none() | kind.values, max_size=20))
    array = made.array_of(kind, values, r)
    with small(100):
        found = list(cutting.slices(array, rows))

    place = 0
    for part in found:
        assert place + array.offset == part.offset
        assert 1 <= len(part) <= rows
        assert (
            not cutting._grows(array.type)
            or len(part) == 1
            or sum(size_of(kind.shape, value) for value in values[place : place + len(part)]) <= 100
        )
        place += len(part)
    assert len(values) == place


@given(SHARING, st.data(), made.RANDOMS, st.integers(1, 5))
def test_joined_values_are_those_of_the_whole(kind, data, r, rows):
    values = data.draw(st.lists(st.none() | kind.values, min_size=1, max_size=20))
    array = made.array_of(kind, values, r)
    parts = joined([values_of(node_of(part)) for part in cutting.slices(array, rows)])

    assert not parts.differ(values_of(node_of(array))).any()


def test_rows_that_differ_are_found_in_parts_too(tmp_path):
    words = [None, "a" * 50, "b" * 50]
    files = []
    for name, codes in (("old", [0, 1, 2, 0, 1]), ("new", [0, 1, 1, 0, 2])):
        array = pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(words))
        files.append([("a.arrow", tmp_path / name)])
        with pa.ipc.new_file(tmp_path / name, pa.schema([("x", pa.list_(array.type))])) as writer:
            lists = pa.ListArray.from_arrays(pa.array(range(6), pa.int32()), array)
            writer.write_batch(pa.RecordBatch.from_arrays([lists], ["x"]))
    with small():
        found = first_row_differences(*files)

    assert [row.row for row in found.rows] == [2, 4]


BOMBS = {
    "a dictionary": lambda n: pa.DictionaryArray.from_arrays(pa.array([0] * n, pa.int8()), pa.array(["x" * (1 << 20)])),
    "lists of codes": lambda n: pa.ListArray.from_arrays(
        pa.array(range(n + 1), pa.int32()),
        pa.DictionaryArray.from_arrays(pa.array([0] * n, pa.int8()), pa.array(["x" * (1 << 20)])),
    ),
    "run ends": lambda n: pa.RunEndEncodedArray.from_arrays(pa.array([n], pa.int32()), pa.array(["x" * (1 << 20)])),
    "views of lists": lambda n: pa.ListViewArray.from_arrays(
        pa.array([0] * n, pa.int32()), pa.array([1 << 17] * n, pa.int32()), pa.array(range(1 << 17), pa.int64())
    ),
}
PEAK = """
import re, sys
from pathlib import Path
from detdata.rows import hash_rows
assert hash_rows([("a.arrow", sys.stdin.read())]).rows == 600
print(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is told elsewhere in another way")
@pytest.mark.parametrize("name", BOMBS)
def test_values_that_are_stored_once_are_not_written_out_at_once(tmp_path, name):
    batch = pa.RecordBatch.from_arrays([BOMBS[name](600)], ["x"])  # each of 1 MiB
    with pa.ipc.new_stream(tmp_path / "a", batch.schema) as writer:
        writer.write_batch(batch)

    assert int(run_python(PEAK, stdin=str(tmp_path / "a")).stdout) * 1024 < 250e6


def test_a_value_of_any_number_of_nulls_is_refused(tmp_path):
    lists = pa.LargeListArray.from_arrays(pa.array([0, 2**31 - 1], pa.int64()), pa.nulls(2**31 - 1))
    batch = pa.RecordBatch.from_arrays([lists], ["x"])
    with pa.ipc.new_stream(tmp_path / "a", batch.schema) as writer:
        writer.write_batch(batch)

    with pytest.raises(RowsError, match=r"a\.arrow: cannot be read: a value has 17,179,869,176 bytes once"):
        hash_rows([("a.arrow", tmp_path / "a")])


def test_a_list_of_binaries_without_a_byte_has_as_many_items_as_it_has():
    kind = made.lists(made.fixed("fixed_size_binary[0]", lambda r: pa.binary(0), 0))
    found = {version(((("c", kind.text),), [kind], [[[b""] * n]], 1), random.Random(0)).unordered for n in range(4)}

    assert len(found) == 4
