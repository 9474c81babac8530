"""Parameters of extension types count, whether this process knows the type or not; and files of any name are read."""

import os
import sys

import pyarrow as pa
import pytest

from detdata.rows import RowsError, first_row_differences, hash_rows
from detdata.rows.schema import field_text, type_text
from tests.rows.test_reading import write
from tests.rows.test_text import put


class Marked(pa.ExtensionType):
    def __init__(self, mark):
        self.mark = mark
        super().__init__(pa.int32(), "example.marked")

    def __arrow_ext_serialize__(self):
        return self.mark

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type, serialized):
        return cls(serialized)


def tensors(shape):
    kind = pa.fixed_shape_tensor(pa.int32(), shape)
    return pa.table({"a": pa.ExtensionArray.from_storage(kind, pa.array([[1] * 6], pa.list_(pa.int32(), 6)))})


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_the_shape_of_a_tensor_is_part_of_its_type(tmp_path, suffix):
    one, other = (hash_rows([write(tmp_path / f"a{suffix}", tensors(shape))]) for shape in ([2, 3], [3, 2]))

    storage = "fixed_size_list<int32>[6]"
    assert (("a", f'extension<"arrow.fixed_shape_tensor", {storage}, "{{\\"shape\\":[2,3]}}">'),) == one.schema
    assert one.digest != other.digest
    assert one.unordered != other.unordered


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_metadata_of_an_extension_counts_whether_this_process_knows_it_or_not(tmp_path, suffix):
    found = []
    for mark in (b"one", b"two", b"", b"\xff\x00", b'{"b": [1, "x"], "a": null}'):
        array = pa.ExtensionArray.from_storage(Marked(mark), pa.array([1, None], pa.int32()))
        file = write(tmp_path / f"a{suffix}", pa.table({"a": array}))
        unknown = hash_rows([file])
        pa.register_extension_type(Marked(b""))
        try:
            known = hash_rows([file])
        finally:
            pa.unregister_extension_type("example.marked")
        assert known == unknown
        found.append(known)

    assert len({version.digest for version in found}) == len({version.unordered for version in found}) == 5
    texts = ['"one"', '"two"', None, "0xff00", r'"{\"a\":null,\"b\":[1,\"x\"]}"']
    expected = ['extension<"example.marked", int32' + (f", {text}>" if text else ">") for text in texts]
    assert expected == [version.schema[0][1] for version in found]


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        (b'{ "b":1, "a":{"d":2,"c":3} }', '{"a":{"c":3,"d":2},"b":1}'),
        (b'{"a": 1.50}', '{"a": 1.50}'),
        (b'{"a": NaN}', '{"a": NaN}'),
        (b'{"a": ', '{"a": '),
        (b"[1, 2]", "[1, 2]"),
        (b'{"a": 1, "a": 1}', '{"a": 1, "a": 1}'),
        (rb'{"a": "\ud800"}', r'{"a": "\\ud800"}'),
        (b'{"a": ' + b"[" * 5000, '{"a": ' + "[" * 5000),
    ],
)
def test_the_spelling_of_a_json_object_of_parameters_does_not_count(parameters, text):
    metadata = {"ARROW:extension:name": "x", "ARROW:extension:metadata": parameters}
    quoted = text.replace('"', '\\"')

    assert f'extension<x, int8, "{quoted}">' == field_text(pa.field("a", pa.int8(), metadata=metadata))


@pytest.mark.parametrize("kind", [pa.uuid(), pa.json_(), pa.bool8()])
def test_types_without_parameters_have_none(kind):
    assert type_text(kind) == f'extension<"{kind.extension_name}", {type_text(kind.storage_type)}>'


# --- names ---


@pytest.mark.skipif(sys.platform != "linux", reason="needs a file system that takes any name")
@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".arrows", ".csv", ".csv.gz", ".jsonl", ".jsonl.zst"])
def test_a_name_that_is_no_utf_8_is_a_name(tmp_path, suffix):
    path = tmp_path / (os.fsdecode(b"caf\xe9") + suffix)
    plain = tmp_path / f"plain{suffix}"
    if "csv" in suffix or "json" in suffix:
        put(plain, "a\nx\n" if "csv" in suffix else '{"a": "x"}\n')
    else:
        write(plain, pa.table({"a": ["x"]}))
    path.write_bytes(plain.read_bytes())

    found = hash_rows([(path.name, path)])

    assert hash_rows([(plain.name, plain)]).digest == found.digest
    assert ((path.name, 1),) == found.files
    assert first_row_differences([(path.name, path)], [(plain.name, plain)]).count == 0


@pytest.mark.skipif(sys.platform != "linux", reason="needs a file system that takes any name")
def test_an_error_about_such_a_name_can_be_printed(tmp_path):
    path = tmp_path / os.fsdecode(b"caf\xe9.csv")
    path.write_bytes(b"")

    with pytest.raises(RowsError) as caught:
        hash_rows([(path.name, path)])
    assert str(caught.value).encode().startswith(rb"caf\xe9.csv: has no line that names")
    assert path.name == caught.value.path
