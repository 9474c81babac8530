"""Integers in JSON lines: each is seen by the digest exactly, or refused by line and column; none is rounded."""

import json
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detdata.rows import RowsError, hash_rows, text
from tests.rows.test_text import lines, put, rows_of


def digest_of(folder, objects, name="a.jsonl"):
    found = hash_rows([put(folder / name, lines(objects))])
    return found.digest, found.unordered


@pytest.mark.parametrize(
    ("others", "one", "other"),
    [
        ([], 2**63, 2**63 + 1),
        ([1], 2**64 - 1, 2**64 - 2),
        ([{"x": [2**63 + 5]}], {"x": [None, 2**63]}, {"x": [None, 2**63 + 1]}),
    ],
)
def test_integers_of_64_bits_without_a_sign_are_all_different(tmp_path, others, one, other):
    found = {digest_of(tmp_path, [{"a": value} for value in (*others, last)]) for last in (one, other)}

    assert len(found) == 2


def test_integers_of_64_bits_without_a_sign_are_those_of_a_parquet_file(tmp_path):
    values = [1, None, 2**64 - 1, 2**63]
    pq.write_table(pa.table({"a": pa.array(values, pa.uint64())}), tmp_path / "a.parquet")

    expected = hash_rows([("a.parquet", tmp_path / "a.parquet")])

    assert expected.digest == digest_of(tmp_path, [{"a": value} for value in values])[0]


@pytest.mark.parametrize(
    "value",
    [2**53 + 1, -(2**53) - 1, 2**63 + 1, 2**64 + 1, -(2**63) - 1, 10**30, 10**400, -(10**5000), 12345678901234567890],
    ids=lambda x: str(x)[:12] if abs(x) < 10**99 else "long",
)
def test_an_integer_that_is_no_double_is_refused_in_a_column_of_doubles(tmp_path, value):
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        objects = [{"b": 1, "a": [{"x": 1.5}]}, {}, {"a": [None, {"x": 2}, {"x": value}]}]
        file = put(tmp_path / "a.jsonl", lines(objects[:2]) + "\n" + lines(objects[2:]))
    finally:
        sys.set_int_max_str_digits(before)

    with pytest.raises(RowsError, match=r"a\.jsonl: line 4: column a\[\]\.x holds .* no double.*as strings"):
        hash_rows([file])


def test_an_integer_that_is_no_double_is_refused_where_doubles_are_in_another_file(tmp_path):
    files = [put(tmp_path / f"{i}.jsonl", lines([{"a": value}])) for i, value in enumerate((2**53 + 1, 0.5))]

    with pytest.raises(RowsError, match=r"0\.jsonl: line 1: column a holds 9007199254740993"):
        hash_rows(files)


def test_a_number_below_zero_is_refused_beside_integers_above_63_bits(tmp_path):
    for values in ([-1, 2**63], [2**63, -1], [0, *[2**63] * 9, -1]):
        file = put(tmp_path / "a.jsonl", lines({"a": value} for value in values))
        line = values.index(-1) + 1
        with pytest.raises(RowsError, match=rf"a\.jsonl: line {line}: column a holds -1, and elsewhere"):
            hash_rows([file])


@pytest.mark.parametrize("gap", range(9))
@pytest.mark.parametrize("before", ["1", "1234567", "123456789012345"])
def test_a_long_integer_is_found_wherever_it_stands_and_whatever_is_before_it(tmp_path, before, gap):
    data = f'{{"b":"{"x" * gap}","a":[0.5,{before},{2**53 + 1}]}}\n'

    with pytest.raises(RowsError, match=r"line 1: column a\[\] holds 9007199254740993"):
        hash_rows([put(tmp_path / "a.jsonl", data)])


@pytest.mark.parametrize("value", [2**53, -(2**60), 2**64, 10**22, 10**16 + 2])
def test_a_long_integer_that_is_a_double_is_that_double(tmp_path, value):
    assert rows_of(put(tmp_path / "a.jsonl", lines([{"a": 0.5}, {"a": value}])))[1] == [[0.5], [float(value)]]


@pytest.mark.parametrize(
    "line",
    [
        '{"a": 0.12345678901234567}',
        '{"a": 12345678901234567.25}',
        '{"a": 1.5, "b": "x: 12345678901234567"}',
        '{"a": 1.5, "b": 12345678901234567}',
        '{"a": 12345678901234567e5}',
        '{"a": NaN, "b": 12345678901234567}',
    ],
)
def test_other_long_numbers_are_no_matter(tmp_path, line):
    hash_rows([put(tmp_path / "a.jsonl", '{"a": 1.5}\n' + line + "\n")])


def test_a_number_with_a_point_beyond_every_double_is_refused(tmp_path):
    with pytest.raises(RowsError, match="line 1: column a holds a number beyond every double"):
        hash_rows([put(tmp_path / "a.jsonl", '{"a": ' + "9" * 330 + ".5}\n")])


INTEGERS = st.one_of(
    st.integers(-5, 5),
    st.integers(2**53 - 3, 2**53 + 3),
    st.integers(2**63 - 3, 2**63 + 3),
    st.integers(2**64 - 3, 2**64 + 3),
    st.integers(-(2**63) - 3, -(2**63) + 3),
    st.sampled_from([0.5, 1e300, 123456789012345680.0]),
)


@given(st.lists(INTEGERS, min_size=1, max_size=6), st.integers(1, 30), st.booleans())
def test_numbers_are_read_as_they_are_or_not_at_all(tmp_path_factory, numbers, size, nested):
    place = (lambda x: [{"y": x}]) if nested else (lambda x: x)
    file = put(tmp_path_factory.mktemp("n") / "a.jsonl", lines({"x": place(value)} for value in numbers))
    whole = [value for value in numbers if isinstance(value, int)]
    if len(whole) < len(numbers) or not all(-(2**63) <= value < 2**64 for value in whole):
        sound = all(value == float(value) for value in numbers)
    else:
        sound = max(whole) < 2**63 or min(whole) >= 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "_JSON_BLOCK", size)
        if not sound:
            with pytest.raises(RowsError, match=r"line \d+: column x"):
                rows_of(file)
            return
        found = rows_of(file)[1]
    assert [[place(value)] for value in numbers] == json.loads(json.dumps(found))
