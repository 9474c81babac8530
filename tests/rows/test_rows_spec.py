"""Section 8 of docs/spec.md has vectors; the library and the second implementation both give them, for ever."""

import random

import numpy as np
import pyarrow as pa
import pytest

from detdata.rows import RowsHasher
from detdata.rows.schema import schema_of
from tests.rows import made, second
from tests.test_spec import VECTORS

MAP = made.maps(made.STRING, made.OTHERS[0])
STRUCT = made.structs({"x": made.INT32, '"y z"': made.fixed_lists(made.BOOL, 2)})
KINDS = {kind.text: kind for kind in (*made.PLAIN, made.lists(made.INT32), made.lists(made.STRING), MAP, STRUCT)}


def decoded(shape, value):
    if value is None:
        return None
    if shape[0] in {"fixed", "bytes"}:
        return bytes.fromhex(value)
    if shape[0] == "struct":
        return tuple(decoded(field, one) for field, one in zip(shape[1], value, strict=True))
    return [decoded(shape[-1], one) for one in value]


@pytest.mark.parametrize("row", VECTORS["rows"], ids=lambda row: str(row["schema"]))
def test_the_digests_on_the_page_are_those_made(row):
    columns = [[decoded(s, v) for v in values] for s, values in zip(row["shapes"], row["values"], strict=True)]
    rows = len(columns[0]) if columns else 0
    schema = tuple((name, kind) for name, kind in row["schema"])

    assert row["digest"] == second.ordered(schema, row["shapes"], columns, rows, row["algorithm"])
    assert row["unordered"] == second.unordered(schema, row["shapes"], columns, rows)
    for seed in range(5):
        r = random.Random(seed)
        hasher = RowsHasher(schema, row["algorithm"])
        hasher.update([made.array_of(KINDS[t], c, r) for (_, t), c in zip(schema, columns, strict=True)], rows)
        found = hasher.version([])
        assert (row["digest"], row["unordered"]) == (found.digest, found.unordered)
        assert row["marks"] == [list(marks) for marks in found.blocks]


def many_rows():
    """A table over two blocks, of what pyarrow makes by itself of NumPy's and Python's values."""
    n = 70_001
    i = np.arange(n, dtype=np.int64)
    words = pa.array([f"word {k}" for k in range(97)])
    tokens = pa.ListArray.from_arrays(
        pa.array(np.append(i * 3, 3 * n), pa.int32()), pa.array(np.arange(3 * n) % 50_257)
    )
    return pa.table(
        {
            "id": i * 7919 % 100_003,
            "score": pa.array(np.where(i % 11 == 0, np.nan, i / 8), from_pandas=False),
            "known": pa.array(i % 3 == 0, mask=i % 5 == 0),
            "word": words.take(pa.array(i % 97)),
            "tokens": tokens,
            "day": pa.array((i % 20_000).astype(np.int32)).cast(pa.date32()),
            "pair": pa.StructArray.from_arrays([pa.array(i.astype(np.float32)), pa.array(i % 2 == 0)], ["x", "y"]),
            "price": pa.array(i % 10_000).cast(pa.decimal128(24, 3)),
        }
    )


GOLDEN = {
    "xxh3-128": "01aeb7f23c72704b5bf6d2f0c7651ab6",
    "sha256": "139b1a389eb26357ac1cdefbca0d10ae93374e4cb55de1ae664fb2202cde8fdc",
}
UNORDERED = "ed83b313925d175601b2b6a01cd5fa3b"


@pytest.mark.parametrize("algorithm", GOLDEN)
@pytest.mark.parametrize("size", [1000, 65_536, 10**6])
def test_a_large_table_has_the_digests_it_always_had(algorithm, size):
    table = many_rows()
    hasher = RowsHasher(schema_of(table.schema), algorithm)
    for batch in table.to_batches(max_chunksize=size):
        hasher.update(batch.columns, batch.num_rows)
    found = hasher.version([])

    assert (GOLDEN[algorithm], UNORDERED) == (found.digest, found.unordered)


def test_blake3_is_the_same_streams_hashed_by_blake3():
    blake3 = pytest.importorskip("blake3").blake3
    schema, values = (("a", "int32"),), [b"\1\0\0\0", None]
    hasher = RowsHasher(schema, "blake3")
    hasher.update([pa.array([1, None], pa.int32())], 2)

    C = blake3(b"".join(blake3(stream).digest() for stream in second.streams(("fixed", 4), values))).digest()
    data = b"detdata.rows/1\0" + second.schema_bytes(schema) + C + second.u64(2)
    assert blake3(data).hexdigest() == hasher.version([]).digest
