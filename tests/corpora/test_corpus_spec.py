"""docs/spec.md, section 9: its vectors are what the library writes and reads, and what the words alone give."""

import numpy as np
import pytest
import xxhash

from detdata.corpora import version
from detdata.corpora.files import Identity, LocalFile
from detdata.corpora.index_file import Index, read_index, write_index
from detdata.corpora.protocol import Outline
from detdata.corpora.skips import Skips
from detdata.records import canonical_json
from tests.corpora.test_index_file import by_hand
from tests.corpora.test_skips import stand_in
from tests.test_spec import VECTORS


@pytest.mark.parametrize("row", VECTORS["index"])
def test_indexes(tmp_path, row):
    arrays = {name: np.array(values, dtype) for name, dtype, values in row["arrays"]}
    sizes = np.array(row["block_sizes"], np.int64)
    identity = Identity(row["file"]["size"], row["file"]["tag"])
    outline = Outline(block_sizes=sizes, arrays=arrays, meta=row["meta"])
    write_index(tmp_path / "a", Index(outline, identity, row["file"]["digest"]), row["format"])
    listed = [
        ["block_sizes", "<i8", len(sizes)],
        *([name, dtype, len(values)] for name, dtype, values in row["arrays"]),
    ]
    header = {"arrays": listed} | {key: row[key] for key in ("file", "format", "meta")}

    assert (tmp_path / "a").read_bytes().hex() == row["bytes"] == by_hand(header, sizes, *arrays.values()).hex()
    found = read_index(tmp_path / "a", row["format"])
    assert (found.identity, found.digest, found.outline.meta) == (identity, row["file"]["digest"], row["meta"])
    assert found.outline.block_sizes.tolist() == row["block_sizes"]
    assert {name: array.tolist() for name, array in found.outline.arrays.items()} == {
        name: values for name, _, values in row["arrays"]
    }


@pytest.mark.parametrize("row", VECTORS["skips"])
def test_rows_that_stand_in(row):
    expected = [stand_in(number, set(row["skip"]), row["rows"]) for number in row["skip"]]
    assert row["stands_in"] == expected == Skips.of(row["skip"], row["rows"]).fills.tolist()


@pytest.mark.parametrize("row", VECTORS["corpus_order"])
def test_versions_of_another_order(monkeypatch, row):
    class Manifest:
        digest = row["dataset"]

    monkeypatch.setattr(version, "hash_dataset", lambda names: Manifest)
    files = [LocalFile(f"/data/{'abcdef'[place]}") for place in row["places"]]
    text = canonical_json(["detdata.corpus_order/1", row["dataset"], row["places"]])
    assert version.version_of(files, {}) == row["version"] == f"xxh3-128:{xxhash.xxh3_128_hexdigest(text)}"
