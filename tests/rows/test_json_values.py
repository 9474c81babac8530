"""JSON lines against the page, from Python's own reading of them: every value, and nulls wherever they may stand."""

import json
import random
import struct

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from detdata.rows import RowsError, hash_rows, text
from tests.rows import second
from tests.rows.test_text import kind_of, lines, put, rows_of

NAMES = st.sampled_from(["x", "é", "a b"])
LEAVES = st.sampled_from(
    [
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        st.text(max_size=4),
        st.sampled_from(["2020-01-01", "2020-01-01T00:00:00Z"]),
        st.floats(allow_nan=False, allow_infinity=False),
        st.nothing(),
    ]
)


def shaped(inner):
    """Strategies of values of one type from such strategies; any value may be null."""
    lists = inner.map(lambda items: st.lists(st.none() | items, max_size=4))
    objects = st.dictionaries(NAMES, inner, max_size=3).map(
        lambda fields: st.fixed_dictionaries({}, optional={name: st.none() | one for name, one in fields.items()})
    )
    return lists | objects


TYPED = st.recursive(LEAVES, shaped, max_leaves=4)


@st.composite
def objects_of_one_type(draw):
    fields = draw(st.dictionaries(st.sampled_from(["a", "b", "c d"]), TYPED, max_size=3))
    one = st.fixed_dictionaries({}, optional={name: st.none() | values for name, values in fields.items()})
    return draw(st.lists(one, max_size=8))


def shape_of(values):
    known = [value for value in values if value is not None]
    if not known:
        return ("null",)
    if isinstance(known[0], list):
        return ("list", shape_of([item for value in known for item in value]))
    if isinstance(known[0], dict):
        names = sorted({name for value in known for name in value}, key=str.encode)
        return ("struct", [shape_of([value.get(name) for value in known]) for name in names], names)
    return {bool: ("fixed", 1), int: ("fixed", 8), float: ("fixed", 8), str: ("bytes",)}[type(known[0])]


def value_of(shape, value):
    if value is None:
        return None
    if shape[0] == "list":
        return [value_of(shape[1], item) for item in value]
    if shape[0] == "struct":
        return tuple(value_of(one, value.get(name)) for one, name in zip(*shape[1:], strict=True))
    if isinstance(value, float):
        return struct.pack("<d", value)
    return value.encode() if isinstance(value, str) else int(value).to_bytes(shape[1], "little", signed=shape[1] == 8)


@given(objects_of_one_type(), st.integers(1, 60), st.integers(0, 2**32))
@example([{"a": [None, 1]}], 60, 0)
@example([{"a": [None, None]}, {"a": [2.5]}], 60, 0)
@example([{"a": {"x": [None, None]}, "b": None}], 60, 0)
@example([{"a": [None, {}]}, {"a": [None]}], 60, 0)
def test_the_digests_are_those_of_the_page(tmp_path_factory, objects, size, seed):
    folder, r = tmp_path_factory.mktemp("json"), random.Random(seed)
    names = sorted({name for one in objects for name in one}, key=str.encode)
    columns = [[one.get(name) for one in objects] for name in names]
    schema = [(name, kind_of(column)) for name, column in zip(names, columns, strict=True)]
    shapes = list(map(shape_of, columns))
    values = [[value_of(shape, one) for one in column] for shape, column in zip(shapes, columns, strict=True)]
    data = "".join(
        json.dumps(dict(r.sample(list(one.items()), len(one))), ensure_ascii=r.random() < 0.5) + "\n" for one in objects
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "_JSON_BLOCK", size)
        found = hash_rows([put(folder / "a.jsonl", data)])

    assert second.ordered(schema, shapes, values, len(objects)) == found.digest
    assert second.unordered(schema, shapes, values, len(objects)) == found.unordered
    assert tuple(schema) == found.schema


def test_a_byte_order_mark_is_no_part_of_a_file(tmp_path):
    data = lines([{"a": 1}, {"a": 2}])
    expected = hash_rows([put(tmp_path / "a.jsonl", data)]).digest

    for name in ("b.jsonl", "b.jsonl.gz", "b.jsonl.zst"):
        assert expected == hash_rows([put(tmp_path / name, "\ufeff" + data)]).digest
    assert rows_of(put(tmp_path / "c.jsonl", "\ufeff")) == ((), [])


@pytest.mark.parametrize("size", [20, 1 << 20])
def test_two_kinds_in_a_file_are_an_error_that_names_the_line(tmp_path, monkeypatch, size):
    monkeypatch.setattr(text, "_JSON_BLOCK", size)
    data = '{"a": 1}\n\n' * 5 + '{"b": 1}\n{"b": "x"}\n'

    with pytest.raises(RowsError, match=r"in line 12; make it one type|column b holds string where lines before"):
        hash_rows([put(tmp_path / "a.jsonl", data)])


@pytest.mark.parametrize("value", [b"Inf", b'"\xff"', b'"\\ud800"'])
def test_what_is_no_json_beside_a_long_number_is_named(tmp_path, value):
    data = b'{"a":%b,"b":12345678901234567890}\n' % value

    with pytest.raises(RowsError, match=r"a\.jsonl: cannot be read: "):
        hash_rows([put(tmp_path / "a.jsonl", data)])


def test_an_endless_line_is_refused_before_it_fills_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("detdata.rows.lines._LONGEST_LINE", 3 << 20)
    data = '{"a":1}\n{"a":"' + "x" * (5 << 20)

    with pytest.raises(RowsError, match=r"a\.jsonl\.gz: line 2 has more than 3 MiB; is it JSON lines"):
        hash_rows([put(tmp_path / "a.jsonl.gz", data)])


def test_an_item_that_became_something_else_than_null_meanwhile_is_noticed(tmp_path):
    file = put(tmp_path / "a.jsonl", '{"a":[true]}\n')

    schema = pa.schema([("a", pa.list_(pa.null()))])

    with pytest.raises(RowsError, match="changed while it was read"):
        next(text.open_json(str(file[1]), "a.jsonl", schema).groups)
