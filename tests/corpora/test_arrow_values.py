"""Values that are read straight from buffers are those that pyarrow gives."""

import math

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detdata.corpora.arrow_rows import ArrowRows
from detdata.corpora.arrow_values import getter

INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]


def values_of(name):
    if name in INTEGERS:
        bits = int(name.lstrip("uint"))
        low, high = (0, 2**bits - 1) if name[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        return st.integers(low, high)
    if name in ("float32", "float64"):
        return st.floats(width=int(name[5:]), allow_nan=False)
    return st.text(max_size=5) if name in ("string", "large_string") else st.binary(max_size=5)


@given(data=st.data(), name=st.sampled_from([*INTEGERS, "float32", "float64", "string", "large_string", "binary"]))
def test_every_value_of_any_slice_is_that_of_pyarrow(data, name):
    kind = getattr(pa, name)()
    column = pa.array(
        data.draw(st.lists(values_of(name) | st.none() if data.draw(st.booleans()) else values_of(name), min_size=1)),
        kind,
    )
    begin = data.draw(st.integers(0, len(column) - 1))
    column = column.slice(begin, data.draw(st.integers(1, len(column) - begin)))
    get = getter(column)

    found = [get(row) for row in range(len(column))]

    assert found == column.to_pylist()
    assert [type(value) for value in found] == [type(value.as_py()) for value in column]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([True, False]),
        pa.array([0, 1], pa.timestamp("us")),
        pa.array([[1], [2, 3]]),
        pa.array(["a", "b"]).dictionary_encode(),
        pa.array([1.5, math.inf], pa.float16()),
        pa.array(["a", "b"], pa.string_view()),
        pa.array([None, None]),
        pa.array([], pa.string()),
    ],
    ids=lambda column: str(column.type),
)
def test_other_types_go_through_pyarrow(column):
    get = getter(column)

    assert [get(row) for row in range(len(column))] == column.to_pylist()


def test_rows_are_the_same_at_the_first_and_at_later_calls():
    rows = ArrowRows("a", 0, ["x", "y"], [pa.array([1, 2, 3]), pa.array(["a", None, "c"])])

    assert rows.take([2, 0]) == rows.take([2, 0]) == rows.take([2, 0]) == [{"x": 3, "y": "c"}, {"x": 1, "y": "a"}]


def test_text_that_is_no_utf_8_is_an_error_that_names_the_row():
    bad = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0"), pa.py_buffer(b"a\xff")]
    )
    rows = ArrowRows("f", 4, ["x"], [bad], first=10)
    assert rows.take([0]) == rows.take([0]) == [{"x": "a"}]

    with pytest.raises(ValueError, match="block 4, row 11"):
        rows.take([0, 1])
