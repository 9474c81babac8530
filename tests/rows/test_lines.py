"""One object on each line of JSON lines, and no type nested so deep that reading it would end the process."""

import pyarrow as pa
import pytest

from detdata.rows import RowsError, hash_rows
from detdata.rows.schema import MOST_LEVELS, schema_of
from tests.rows.test_text import put, rows_of


@pytest.mark.parametrize(
    ("data", "line"),
    [
        ('{"a":1}{"a":2}\n\n', 1),
        ('{"a":1}\n{"a":1}{"a":2}\n\n{"a":3}\n', 2),
        ('{"a":1}{"a":2}\n{"a":\n3}\n', 2),
        ('{"a":1} {"a":2}\r\n\r\n', 1),
        ('{"a":\n\n1}{"a":2}', 1),
        ('\n\n {"a":1}x\n', 3),
    ],
)
def test_a_line_has_one_whole_object(tmp_path, data, line):
    with pytest.raises(RowsError, match=rf"a\.jsonl: line {line} .*one"):
        hash_rows([put(tmp_path / "a.jsonl", data)])


@pytest.mark.parametrize("data", ["", "\n", " \r\n\t\n"])
def test_a_file_of_blank_lines_has_no_rows(tmp_path, data):
    assert rows_of(put(tmp_path / "a.jsonl", data)) == ((), [])


def nested(levels, leaf="1"):
    return '{"a":' + "[" * (levels - 1) + leaf + "]" * (levels - 1) + "}"


DEEP = {
    "lists": nested(MOST_LEVELS + 1),
    "objects": '{"a":' * (MOST_LEVELS + 1) + "1" + "}" * (MOST_LEVELS + 1),
    "two thousand": nested(2000),
    "so many that a reader's stack ends": nested(200_000),
    "after quotes": '{"a":"\\\\\\"[[","b":' + "[" * 70 + "]" * 70 + "}",
}


@pytest.mark.parametrize("name", DEEP)
def test_lines_nested_too_deep_are_refused_by_line_and_limit(tmp_path, name):
    data = f'{{"b":1}}\n{DEEP[name]}\n'

    with pytest.raises(RowsError, match=rf"a\.jsonl: line 2 is nested more than {MOST_LEVELS} levels deep; flatten"):
        hash_rows([put(tmp_path / "a.jsonl", data)])


@pytest.mark.parametrize(
    "line",
    [
        nested(MOST_LEVELS),
        '{"a":[' + ",".join(['{"x":[1]}'] * 200) + "]}",
        '{"a":"' + "[{" * 100 + '"}',
        '{"a":"' + '\\"[' * 100 + '"}',
        '{"a":"' + "\\\\" * 3 + '","b":"' + "[" * 100 + '"}',
    ],
)
def test_brackets_that_do_not_nest_are_no_matter(tmp_path, line):
    assert hash_rows([put(tmp_path / "a.jsonl", f"{line}\n{line}\n")]).rows == 2


@pytest.mark.parametrize("wrap", [pa.list_, lambda kind: pa.struct([("x", kind)]), lambda kind: pa.list_(kind, 2)])
def test_types_nested_too_deep_are_refused_by_column_and_limit(wrap):
    kind = pa.int8()
    for _ in range(MOST_LEVELS - 1):
        kind = wrap(kind)

    assert schema_of(pa.schema([("a", kind)]))[0][0] == "a"
    for _ in range(2):
        kind = wrap(kind)
        with pytest.raises(TypeError, match=f"column 'a': its type is nested more than {MOST_LEVELS} levels deep"):
            schema_of(pa.schema([("a", kind)]))


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".arrows"])
def test_arrow_and_parquet_files_nested_too_deep_are_refused_by_name(tmp_path, suffix, monkeypatch):
    from tests.rows.test_reading import write

    array = pa.array([1])
    for _ in range(20):
        array = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), array)
    file = write(tmp_path / f"a{suffix}", pa.table({"c": array}))
    assert hash_rows([file]).rows == 1
    monkeypatch.setattr("detdata.rows.schema.MOST_LEVELS", 20)

    with pytest.raises(RowsError, match=rf"a\{suffix}: column 'c': its type is nested more than 20 levels deep"):
        hash_rows([file])


def test_a_type_too_long_to_be_kept_is_refused_by_column():
    kind = pa.struct([(f"member {i}", pa.int8()) for i in range(5000)])

    with pytest.raises(TypeError, match=r"column 'a': its type takes .* characters"):
        schema_of(pa.schema([("a", kind)]))
