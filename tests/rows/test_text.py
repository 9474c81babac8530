"""CSV and JSON lines: types that do not depend on where blocks fall, and the same rows as in Parquet."""

import gzip
import json
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detdata.rows import RowsError, commas, hash_rows, text
from detdata.rows.reading import read_table


def put(path, data):
    data = data.encode() if isinstance(data, str) else data
    if path.suffix == ".gz":
        middle = len(data) // 2
        data = gzip.compress(data[:middle]) + gzip.compress(data[middle:])  # two members
    elif path.suffix == ".zst":
        data = pa.Codec("zstd").compress(data, asbytes=True)
    path.write_bytes(data)
    return path.name, path


def rows_of(*files):
    """(schema, rows as lists of values) as they are read."""
    schema, batches = read_table(files)
    return schema, [list(row) for batch in batches for row in zip(*(c.to_pylist() for c in batch.columns), strict=True)]


def lines(objects):
    return "".join(json.dumps(one) + "\n" for one in objects)


# --- CSV ---


def test_every_value_of_a_csv_is_text_and_none_is_null(tmp_path):
    file = put(tmp_path / "a.csv", "n,t\n1,2020-01-01\n,NA\n007,true\n")

    assert rows_of(file) == ((("n", "string"), ("t", "string")), [["1", "2020-01-01"], ["", "NA"], ["007", "true"]])


CSV = 'a,b\n1,"x, ""y"""\n2,"two\nlines"\n3,é\n'


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.csv.gz", CSV),
        ("a.CSV.zst", CSV),
        ("a.csv", CSV.rstrip("\n")),
        ("a.csv", "\ufeff" + CSV),
        ("a.csv", CSV.replace("3,é", "\n\n3,é\n")),
        ("a.tsv", 'a\tb\n1\t"x, ""y"""\n2\t"two\nlines"\n3\té\n'),
        ("a.csv", 'a,b\r\n1,"x, ""y"""\r\n2,"two\nlines"\r\n3,é\r\n'),
    ],
)
def test_packing_and_line_ends_of_a_csv_do_not_count(tmp_path, name, data):
    expected = hash_rows([put(tmp_path / "first.csv", CSV)])

    found = hash_rows([put(tmp_path / name, data)])

    assert rows_of((name, tmp_path / name))[1] == [["1", 'x, "y"'], ["2", "two\nlines"], ["3", "é"]]
    assert (expected.digest, expected.unordered) == (found.digest, found.unordered)


@given(
    st.lists(st.lists(st.text('ab,"\n\r 0é', max_size=5), min_size=2, max_size=2), max_size=30), st.integers(40, 200)
)
def test_where_blocks_of_a_csv_fall_does_not_count(tmp_path_factory, rows, size):
    quoted = ["a,b", *(",".join('"' + value.replace('"', '""') + '"' for value in row) for row in rows)]
    file = put(tmp_path_factory.mktemp("csv") / "a.csv", "\n".join(quoted) + "\n")
    whole = hash_rows([file])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commas, "_BLOCKS", (size,))
        assert whole == hash_rows([file])
    assert rows == rows_of(file)[1]


@pytest.mark.parametrize("data", ["a,b\n1,2,3\n", b"a,b\n1,\xff\n"])
def test_what_is_no_csv_is_named(tmp_path, data):
    with pytest.raises(RowsError, match=r"a\.csv: cannot be read"):
        hash_rows([put(tmp_path / "a.csv", data)])


def test_a_csv_with_a_header_alone_has_columns_and_no_rows(tmp_path):
    assert rows_of(put(tmp_path / "a.csv", "a,b\n")) == ((("a", "string"), ("b", "string")), [])


# --- JSON lines ---


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([None], "null"),
        ([True, None], "bool"),
        ([1, -(2**63), 2**63 - 1], "int64"),
        ([1, 2.5], "double"),
        ([1, 2**63], "uint64"),
        ([1, 2**64], "double"),
        ([2**63, 1.5], "double"),
        ([[2**64 - 1], [1, None]], "list<uint64>"),
        (["2020-01-01", "2020-01-01T00:00:00Z"], "string"),
        ([[], None], "list<null>"),
        ([[1], [None, 2.5]], "list<double>"),
        ([{"b": 1}, {"a": [{}]}], "struct<a: list<struct<>>, b: int64>"),
    ],
)
def test_json_has_the_types_of_json(tmp_path, values, kind):
    assert (("x", kind),) == rows_of(put(tmp_path / "a.jsonl", lines({"x": value} for value in values)))[0]


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.text(max_size=4)
    | st.sampled_from(["2020-01-01"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["x", "é", "a b"]), inner, max_size=3),
    max_leaves=4,
)
OBJECTS = st.lists(st.dictionaries(st.sampled_from(["a", "b", "c d"]), JSON, max_size=3), max_size=12)


def kind_of(values):
    """The type of some JSON values by the page; raises ValueError for two kinds."""
    kinds = {type(value) for value in values if value is not None}
    if len(kinds) > 1:
        raise ValueError(kinds)
    kind = kinds.pop() if kinds else None
    if kind is list:
        return f"list<{kind_of([one for value in values or [] for one in value or []])}>"
    if kind is dict:
        names = sorted({name for value in values for name in value or {}}, key=str.encode)
        word = {
            name: name if name.isidentifier() and name.isascii() else json.dumps(name, ensure_ascii=False)
            for name in names
        }
        inner = {name: kind_of([value.get(name) for value in values if value]) for name in names}
        return f"struct<{', '.join(f'{word[name]}: {inner[name]}' for name in names)}>"
    return {None: "null", bool: "bool", int: "int64", float: "double", str: "string"}[kind]


@given(OBJECTS, st.integers(1, 40), st.integers(0, 2**32))
def test_the_types_are_those_of_all_files_together_wherever_blocks_fall(tmp_path_factory, objects, size, seed):
    folder, r = tmp_path_factory.mktemp("json"), random.Random(seed)
    whole = put(folder / "whole.jsonl", lines(objects))
    cut = r.randrange(len(objects) + 1)
    parts = [put(folder / f"{i}.ndjson", lines(part)) for i, part in enumerate((objects[:cut], objects[cut:]))]
    try:
        kind = kind_of(objects) if objects else "struct<>"
    except ValueError:
        with pytest.raises(RowsError):
            hash_rows([whole])
        return
    expected = hash_rows([whole])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "_JSON_BLOCK", size)
        assert expected == hash_rows([whole])
        found = hash_rows(parts)
    assert (expected.schema, expected.digest) == (found.schema, found.digest)
    fields = ", ".join(f"{name if name.isidentifier() else json.dumps(name)}: {one}" for name, one in expected.schema)
    assert kind == f"struct<{fields}>"
    assert len(objects) == expected.rows


def test_order_of_members_blank_lines_spaces_and_packing_of_json_do_not_count(tmp_path):
    objects = [{"b": 1, "a": "é"}, {"a": None, "b": 2.5}, {"b": 3}]
    expected = hash_rows([put(tmp_path / "a.jsonl", lines(objects))])
    other = '\n {"a": "\\u00e9", "b" : 1.0}\r\n\n{"b": 2.5}\n{"a":null,"b":3e0}'

    for name in ("b.jsonl", "b.ndjson.gz", "b.jsonl.zst"):
        found = hash_rows([put(tmp_path / name, other)])
        assert (expected.digest, expected.unordered) == (found.digest, found.unordered)


def test_json_lines_are_the_rows_of_a_parquet_file_of_the_same_types(tmp_path):
    objects = [{"a": 1, "b": [{"x": "y"}], "c": None}, {"a": 2, "b": [], "c": True}]
    pq.write_table(pa.Table.from_pylist(objects), tmp_path / "a.parquet")

    expected = hash_rows([("a.parquet", tmp_path / "a.parquet")])

    assert expected.digest == hash_rows([put(tmp_path / "a.jsonl", lines(objects))]).digest


def test_chosen_columns_of_json_lines(tmp_path):
    objects = [{"a": 1, "b": 2}, {"a": 3}]
    alone = put(tmp_path / "a.jsonl", lines({"a": one["a"]} for one in objects))
    both = put(tmp_path / "b.jsonl", lines(objects))

    assert hash_rows([alone]).digest == hash_rows([both], columns=["a"]).digest


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ('{"a": 1}\n{"a": "x"}\n', "changed from number to string"),
        ('{"a": 1} {"a": 2}\n', "line 1 has more than one object"),
        ('{"a":\n1}\n{"a": 2}\n', "line 1 is no JSON object"),
        ("[1]\n", "line 1 is no JSON object"),
        ('{"a": 1}\r\n\n{"a": 1\n', "line 3 is no JSON object"),
        (b'{"a": "\xff"}\n', "cannot be read"),
        ('{"a": 1, "a": 2}\n', "specified twice"),
    ],
)
def test_what_is_no_json_lines_is_named(tmp_path, data, why):
    with pytest.raises(RowsError, match=rf"a\.jsonl: .*{why}"):
        hash_rows([put(tmp_path / "a.jsonl", data)])


def test_two_kinds_in_two_files_are_an_error_that_names_the_place(tmp_path):
    files = [put(tmp_path / f"{i}.jsonl", lines([{"a": {"b": [value]}}])) for i, value in enumerate((1, "x"))]

    with pytest.raises(RowsError, match=r"1\.jsonl: column a\.b\[\] holds string where lines before have int64"):
        hash_rows(files)


def test_a_packed_file_that_is_cut_short_is_named(tmp_path):
    for name in ("a.jsonl.gz", "a.csv.zst"):
        file = put(tmp_path / name, "a\n" * 1000 if "csv" in name else '{"a": 1}\n' * 1000)
        file[1].write_bytes(file[1].read_bytes()[:-6])
        with pytest.raises(RowsError, match=f"{name}: cannot be read"):
            hash_rows([file])
