"""Section 7 of docs/spec.md says what the library does: its vectors hold, and its example is a manifest."""

import hashlib
import struct

import pytest
import xxhash

from detdata.versions.columns import encode_paths, listing_digest
from detdata.versions.files import digest_file, digest_piece
from detdata.versions.manifest import Manifest
from detdata.versions.pieces import join_pieces
from tests.test_docs import blocks_of
from tests.test_spec import SPEC, VECTORS
from tests.versions.entries import digest_by_the_page, key

EXAMPLES = [block.code for block in blocks_of(SPEC) if block.info == "text" and '"detdata.manifest/1"' in block.code]


def plain(algorithm, data):
    if algorithm == "blake3":
        return pytest.importorskip("blake3").blake3(data).digest()
    return xxhash.xxh3_128(data).digest() if algorithm == "xxh3-128" else hashlib.new(algorithm, data).digest()


@pytest.mark.parametrize(
    "row", VECTORS["file"], ids=lambda row: f"{row['algorithm']},{row['piece_size']},{row['bytes']}"
)
def test_the_digests_of_files_on_the_page_are_those_made(tmp_path, row):
    algorithm, step, data = row["algorithm"], row["piece_size"], bytes.fromhex(row["bytes"])
    (tmp_path / "x").write_bytes(data)
    if step:
        pieces = [plain(algorithm, data[at : at + step]) for at in range(0, len(data), step)]
        head = b"detdata.pieces/1" + struct.pack("<QQ", step, len(data))
        assert row["digest"] == plain(algorithm, head + b"".join(pieces)).hex()
        read = [
            digest_piece(tmp_path / "x", algorithm, at, min(at + step, len(data))) for at in range(0, len(data), step)
        ]
        assert row["digest"] == join_pieces(algorithm, step, len(data), read)
    else:
        assert row["digest"] == plain(algorithm, data).hex()
    assert row["digest"] == digest_file(tmp_path / "x", algorithm, step).hex


@pytest.mark.parametrize("row", VECTORS["dataset"], ids=lambda row: row["digest"])
def test_the_digests_of_datasets_on_the_page_are_those_made(row):
    entries = [(*entry, "file")[:4] for entry in row["entries"]]
    columns = list(zip(*entries, strict=True)) or [(), (), (), ()]

    manifest = Manifest.build(*columns, algorithm=row["algorithm"], piece_size=row["piece_size"])

    assert [entry[0] for entry in entries] == list(manifest.paths)
    assert row["digest"] == manifest.digest
    assert row["digest"] == digest_by_the_page({e[0]: e[1:] for e in entries}, row["algorithm"], row["piece_size"])


@pytest.mark.parametrize("row", VECTORS["listing"], ids=lambda row: row["digest"])
def test_the_digests_of_listings_on_the_page_are_those_made(row):
    paths, sizes = zip(*row["files"], strict=True)
    data = b"".join(key(path) + b"\0" for path in paths) + b"".join(struct.pack("<Q", size) for size in sizes)

    assert row["digest"] == xxhash.xxh3_128_hexdigest(data)
    assert row["digest"] == listing_digest(encode_paths(paths), sizes)


def test_the_example_on_the_page_is_the_text_of_a_manifest():
    [text] = EXAMPLES

    manifest = Manifest.from_text(text)

    assert manifest.to_text() == text
    assert manifest.paths == ("images/0001.jpg", "images/été.jpg", "labels.csv", "raw/\udcff.bin")
    assert manifest.kinds == ("file", "file", "link", "file")
