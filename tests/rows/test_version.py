"""The record of a version: plain JSON, read back strictly."""

import json
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given

from detdata.errors import UnknownFormat
from detdata.rows import RowsHasher, RowsVersion
from tests.rows import made
from tests.rows.test_digest import version


@given(made.tables(), made.RANDOMS)
def test_a_record_is_plain_json_and_gives_the_version_back(table, r):
    whole = version(table, r, block=65_536)
    record = json.loads(json.dumps(whole.to_record()))
    if whole.rows:
        record["files"] = [["a", whole.rows - 1], ["b", 1]]

    assert whole.to_record()["digest"] == record["digest"]
    found = RowsVersion.from_record(record)
    assert record == json.loads(json.dumps(found.to_record()))
    assert (whole.schema, whole.blocks) == (found.schema, found.blocks)


def sample():
    hasher = RowsHasher((("a", "int64"), ("b", "string")), "sha256")
    hasher.update([pa.array([1, 2]), pa.array(["x", None])], 2)
    return replace(hasher.version([("f", 2)]), ends=(hasher.mark(),))


DAMAGE = {
    "format": ["detdata.rows/2", None],
    "algorithm": ["md5", 3, None, ["sha256"]],
    "digest": ["", "0" * 32, "g" * 64, 5, "0" * 63 + "\n"],
    "unordered": ["0" * 31, None, "A" * 32],
    "rows": [-1, 3, True, 2.0, "2", 2**63, 65_537],
    "schema": [None, [["a"]], [["a", 1]], ["ab"], [["a", "int64"]], {"a": "int64"}, [["a", "x" * 10**6], ["b", "c"]]],
    "files": [None, [["f", 1]], [["f", 3]], [["f", -1], ["g", 3]], [[1, 2]], [["f", 2.0]], [["f"]], []],
    "ends": [None, ["0" * 16], ["0" * 15], ["g" * 16], [5], [sample().digest[:16]] * 2],
    "block_rows": [1, 65_536.5, None],
    "blocks": [None, [], ["0" * 31], ["0" * 32] * 2, [5], ["0" * 31 + "x"]],
}


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in DAMAGE.items() for value in values])
def test_a_record_with_anything_amiss_is_refused(key, value):
    with pytest.raises(UnknownFormat):
        RowsVersion.from_record({**sample().to_record(), key: value})


@pytest.mark.parametrize("record", [None, [], "x", {}, {**sample().to_record(), "more": 1}])
def test_what_is_no_record_is_refused(record):
    with pytest.raises(UnknownFormat):
        RowsVersion.from_record(record)


@pytest.mark.parametrize("key", sorted(DAMAGE))
def test_a_record_that_lacks_a_key_is_refused(key):
    record = sample().to_record()
    del record[key]
    with pytest.raises(UnknownFormat):
        RowsVersion.from_record(record)


def test_another_format_says_what_to_do():
    with pytest.raises(UnknownFormat, match=r"'detdata\.rows/2'; this release reads 'detdata\.rows/1': update detdata"):
        RowsVersion.from_record({**sample().to_record(), "format": "detdata.rows/2"})
