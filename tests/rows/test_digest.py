"""Both digests: what the page says, whatever the form that the rows are held in, and other for other rows."""

import random
from itertools import pairwise
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detdata.rows import RowsHasher, hasher
from detdata.rows.build import node_of
from detdata.rows.schema import schema_of
from detdata.rows.unordered import row_values, values_of
from tests.rows import made, second

BLOCK = 7  # so that small tables have many blocks


def version(table, r, *, algorithm="xxh3-128", block=BLOCK):
    """The version of a table of `made.tables`, fed in batches of any size, in any form."""
    schema, kinds, columns, rows = table
    cuts = sorted({0, rows, *(r.randrange(rows + 1) for _ in range(r.randrange(4)))})
    with mock.patch.object(hasher, "BLOCK_ROWS", block), mock.patch.object(hasher, "ROWS_AT_ONCE", r.choice([5, 8192])):
        made_of = RowsHasher(schema, algorithm)
        for start, stop in pairwise(cuts):
            arrays = [made.array_of(kind, values[start:stop], r) for kind, values in zip(kinds, columns, strict=True)]
            found = schema_of(pa.schema([pa.field(name, a.type) for (name, _), a in zip(schema, arrays, strict=True)]))
            assert schema == found
            made_of.update(arrays, stop - start)
        return made_of.version([])


@given(made.tables(), made.RANDOMS, st.sampled_from(["xxh3-128", "sha256"]))
def test_the_digests_are_those_of_the_page_in_whatever_form_the_rows_come(table, r, algorithm):
    schema, kinds, columns, rows = table
    shapes = [kind.shape for kind in kinds]

    found = version(table, r, algorithm=algorithm)

    assert second.ordered(schema, shapes, columns, rows, algorithm, BLOCK) == found.digest
    assert second.unordered(schema, shapes, columns, rows) == found.unordered
    digests = second.column_digests(shapes, columns, rows, algorithm, BLOCK)
    assert tuple(tuple(C.hex()[:16] for C in row) for row in digests) == found.blocks
    assert rows == found.rows


@pytest.mark.parametrize("kind", [*made.PLAIN, made.lists(made.INT32), made.lists(made.STRING)], ids=lambda k: k.text)
@given(data=st.data(), r=made.RANDOMS)
def test_every_type_is_as_on_the_page(kind, data, r):
    values = data.draw(st.lists(st.none() | kind.values, max_size=20))
    for form in (kind, made.runs(kind)) if kind.shape[0] in {"fixed", "bytes"} else (kind,):
        table = (("c", kind.text),), [form], [values], len(values)
        found = version(table, r)
        assert second.ordered(table[0], [kind.shape], [values], len(values), block=BLOCK) == found.digest
        assert second.unordered(table[0], [kind.shape], [values], len(values)) == found.unordered


@given(made.tables(), made.RANDOMS)
def test_another_order_of_the_rows_changes_the_ordered_digest_alone(table, r):
    schema, kinds, columns, rows = table
    order = list(range(rows))
    r.shuffle(order)
    moved = schema, kinds, [[column[i] for i in order] for column in columns], rows

    before, after = version(table, r), version(moved, r)

    assert before.unordered == after.unordered
    assert (before.digest == after.digest) == (columns == moved[2])


@given(made.tables(), made.RANDOMS, st.data())
def test_a_changed_value_changes_both_digests_and_the_mark_of_its_block(table, r, data):
    schema, kinds, columns, rows = table
    places = [i for i, kind in enumerate(kinds) if kind.shape[0] != "null"]
    if not rows or not places:
        return
    place, row = data.draw(st.sampled_from(places)), data.draw(st.integers(0, rows - 1))
    value = data.draw(st.none() | kinds[place].values)
    changed = [list(column) for column in columns]
    changed[place][row] = value
    if repr(value) == repr(columns[place][row]):
        return

    before, after = version(table, r), version((schema, kinds, changed, rows), r)

    assert before.digest != after.digest
    assert before.unordered != after.unordered
    marks = [
        (block, column)
        for block, (was, now) in enumerate(zip(before.blocks, after.blocks, strict=True))
        for column, (one, other) in enumerate(zip(was, now, strict=True))
        if one != other
    ]
    assert [(row // BLOCK, place)] == marks


@given(made.tables(), made.RANDOMS, st.data())
def test_a_version_taken_on_the_way_is_that_of_the_rows_so_far(table, r, data):
    schema, kinds, columns, rows = table
    stop = data.draw(st.integers(0, rows))
    with mock.patch.object(hasher, "BLOCK_ROWS", BLOCK):
        running = RowsHasher(schema, "xxh3-128")
        parts = []
        for start, end in ((0, stop), (stop, rows)):
            running.update(
                [made.array_of(k, c[start:end], r) for k, c in zip(kinds, columns, strict=True)], end - start
            )
            parts.append(running.version([]))

    assert version((schema, kinds, [c[:stop] for c in columns], stop), r) == parts[0]
    assert version(table, r) == parts[1]


def one(array, name="a"):
    """Both digests of a table of one column."""
    field = pa.field(name, array.type)
    made_of = RowsHasher(schema_of(pa.schema([field])), "xxh3-128")
    made_of.update([array], len(array))
    found = made_of.version([])
    return found.digest, found.unordered


BYTE = pa.struct([("x", pa.int8())])
DIFFERENT = {
    "null and empty string": (pa.array(["", "x"]), pa.array([None, "x"])),
    "null and empty list": (pa.array([[], [1]]), pa.array([None, [1]])),
    "null and zero": (pa.array([0, 1]), pa.array([None, 1])),
    "null struct and struct of null": (pa.array([{"x": None}], BYTE), pa.nulls(1, BYTE)),
    "null item and zero": (pa.array([[None, 1]]), pa.array([[0, 1]])),
    "null item at another place": (pa.array([[None, 0]]), pa.array([[0, None]])),
    "zeros of both signs": (pa.array([0.0]), pa.array([-0.0])),
    "bytes moved to the next row": (pa.array(["ab", "c"]), pa.array(["a", "bc"])),
    "items moved to the next row": (pa.array([[1, 2], [3]]), pa.array([[1], [2, 3]])),
    "a zero byte at the end": (pa.array([b"a"]), pa.array([b"a\0"])),
    "a pair of equal rows": (pa.array([1, 1, 2, 2]), pa.array([1, 1, 3, 3])),
    "one row doubled for another": (pa.array([1, 1, 2]), pa.array([1, 2, 2])),
    "width": (pa.array([1], pa.int16()), pa.array([1], pa.int32())),
    "sign": (pa.array([1], pa.int32()), pa.array([1], pa.uint32())),
    "unit": (pa.array([1], pa.timestamp("ms")), pa.array([1], pa.timestamp("us"))),
    "zone": (pa.array([1], pa.timestamp("ms")), pa.array([1], pa.timestamp("ms", "UTC"))),
    "scale": (pa.array([1]).cast(pa.decimal128(21, 1)), pa.array([1]).cast(pa.decimal128(21, 2))),
    "text and bytes": (pa.array(["a"]), pa.array([b"a"])),
    "list and fixed_size_list": (pa.array([[1, 2]]), pa.array([[1, 2]], pa.list_(pa.int64(), 2))),
    "name of a field": (pa.array([{"x": 1}]), pa.array([{"y": 1}])),
    "order of fields": (pa.array([{"x": 1, "y": 2}]), pa.array([{"y": 2, "x": 1}])),
    "number of rows that are null": (pa.nulls(3), pa.nulls(4)),
}  # fmt: skip


@pytest.mark.parametrize("name", DIFFERENT)
def test_tables_that_differ_have_other_digests(name):
    left, right = map(one, DIFFERENT[name])

    assert left[0] != right[0]
    assert left[1] != right[1]


def test_names_and_order_of_columns_count():
    a, b = pa.array([1, 2]), pa.array([1, 2])
    found = set()
    for names in (("a", "b"), ("b", "a"), ("ab", "")):
        hashed = RowsHasher(tuple((name, "int64") for name in names), "xxh3-128")
        hashed.update([a, b], 2)
        found |= {hashed.version([]).digest, hashed.version([]).unordered}
    assert len(found) == 6


def test_every_nan_is_one_value():
    bits = np.array([0x7FF8000000000000, 0x7FF0000000000001, 0xFFF8000000000000, 0xFFFFFFFFFFFFFFFF], np.uint64)
    assert len({one(pa.array(bits[i : i + 1].view(np.float64), from_pandas=False)) for i in range(4)}) == 1


def test_a_large_dictionary_and_its_values_are_one():
    values = pa.array([f"v{i}" for i in range(5000)])
    codes = pa.array(np.random.default_rng(0).integers(0, 5000, 20_000))
    coded = pa.DictionaryArray.from_arrays(codes, values)

    assert one(values.take(codes)) == one(coded)
    found, expected = values_of(node_of(coded, coded=True)), values_of(node_of(values.take(codes)))
    assert not found.differ(expected).any()


def test_what_lies_under_a_null_is_no_view_and_is_not_followed():
    views = (5).to_bytes(4, "little") + b"hello" + bytes(7) + (99).to_bytes(4, "little") + b"\xff" * 12
    array = pa.Array.from_buffers(pa.string_view(), 2, [pa.py_buffer(b"\1"), pa.py_buffer(views), pa.py_buffer(b"x")])

    assert one(pa.array(["hello", None])) == one(array)


def test_views_that_share_items_are_lists_of_their_own():
    views = pa.ListViewArray.from_arrays(
        pa.array([2, 0, 1], pa.int32()), pa.array([1, 3, 0], pa.int32()), pa.array(["a", "b", "c"], pa.string_view())
    )

    assert one(pa.array([["c"], ["a", "b", "c"], []])) == one(views)


def test_real_blocks_are_those_of_the_page():
    rows = 2 * 65536 + 5
    values = [i.to_bytes(2, "little") if i % 1000 else None for i in (j * 7919 % 65521 for j in range(rows))]
    table = (("n", "uint16"),), [made.NUMBERS[5]], [values], rows

    found = version(table, random.Random(0), block=65536)

    assert second.ordered(table[0], [("fixed", 2)], [values], rows) == found.digest
    assert second.unordered(table[0], [("fixed", 2)], [values], rows) == found.unordered
    assert len(found.blocks) == 3


def test_a_number_beyond_its_precision_is_refused_not_cut_off():
    data = (1 << 200).to_bytes(32, "little")
    array = pa.Array.from_buffers(pa.decimal256(38, 0), 1, [None, pa.py_buffer(data)])

    with pytest.raises(ValueError, match="more digits"):
        one(array)


FORBIDDEN = 0x6A09E667F3BCC908  # what stands for a null inside


@pytest.mark.parametrize("value", [0, FORBIDDEN])
@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: None if x is None else {"x": x}, lambda x: {"x": x}])
def test_no_value_is_a_null(value, wrap):
    some, null = pa.array([1, value], pa.uint64()), pa.array([1, None], pa.uint64())
    kind = pa.struct([("x", pa.uint64())]) if wrap(1) != 1 else pa.uint64()
    left, right = (pa.array(map(wrap, array.to_pylist()), kind) for array in (some, null))

    assert one(left)[1] != one(right)[1]
    assert values_of(node_of(left)).differ(values_of(node_of(right))).tolist() == [False, True]


def test_a_row_of_null_has_the_bits_of_zero_alone_and_another_null_word():
    null, zero = (row_values([node_of(pa.array([value], pa.uint64()))], 1) for value in (None, 0))

    assert null.bits.tolist() == zero.bits.tolist()  # mixing is one-to-one: no other number has them
    assert null.differ(zero).all()
