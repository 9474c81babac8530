"""Failures that others have had with the identity of a dataset, by the ids under which they were collected."""

import json
import os
import random
import shutil

import pytest
import xxhash

from detdata import Manifest, UnknownFormat, hash_dataset
from detdata.versions.files import digest_file
from tests.versions.trees import ScandirWith

NAMES = [f"{folder}{name}" for folder in ("", "9/", "10/", "é/", "B/", "a/b/") for name in
         ("9", "10", "a", "B", "é", "z.bin", "A1", "_", "ß")]  # fmt: skip


def written(root, names):
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        if not (root / name).is_dir():
            (root / name).write_bytes(name.encode())
    return root


@pytest.mark.parametrize("seed", range(4))
def test_o_di1_the_order_of_a_directory_never_counts(tmp_path, monkeypatch, seed):
    names = [name for name in NAMES if name not in {"9", "10", "a", "B", "é"}]
    assert len(names) >= 45
    one, other = written(tmp_path / "one", names), written(tmp_path / "other", names[::-1])
    expected = sorted(names, key=lambda name: name.encode())

    def change(entries):
        if seed == 0:
            return entries[::-1]
        return random.Random(seed).sample(entries, len(entries))

    monkeypatch.setattr(os, "scandir", ScandirWith(change))
    found = hash_dataset(one), hash_dataset(other)

    assert list(found[0].paths) == expected
    assert found[0] == found[1]


def crlf_at(offset, size=3 * 2**20):
    data = bytearray(b"x" * size)
    data[offset : offset + 2] = b"\r\n"
    return bytes(data)


@pytest.mark.parametrize("offset", [edge + by for edge in (2**16, 2**20) for by in (-2, -1, 0, 1)])
def test_o_di2_line_ends_are_bytes_like_others_wherever_they_fall(tmp_path, monkeypatch, offset):
    crlf = crlf_at(offset)
    (tmp_path / "a").write_bytes(crlf)
    (tmp_path / "b").write_bytes(crlf.replace(b"\r\n", b"\n"))

    digests = set()
    for chunk in (1000, 2**16, 2**20 - 1, 2**20, 8 * 2**20):
        monkeypatch.setattr("detdata.versions.files._BLOCK", chunk)
        digests.add(digest_file(tmp_path / "a", "xxh3-128").hex)
    assert digests == {xxhash.xxh3_128_hexdigest(crlf)}
    assert digest_file(tmp_path / "b", "xxh3-128").hex not in digests


def test_o_di3_a_flipped_byte_with_the_mtime_put_back_is_seen(tmp_path):
    file = tmp_path / "data" / "file"
    file.parent.mkdir()
    file.write_bytes(b"some bytes")
    manifest = hash_dataset(file.parent, cache=tmp_path / "cache")
    before = file.stat()

    file.write_bytes(b"some bytez")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (file.stat().st_mtime_ns, file.stat().st_size) == (before.st_mtime_ns, before.st_size)

    for quick in (True, False):
        report = manifest.verify(file.parent, quick=quick, cache=tmp_path / "cache")
        assert [change.path for change in report.changed] == ["file"]


def test_o_di3_another_inode_with_the_same_bytes_is_no_change(tmp_path):
    (tmp_path / "file").write_bytes(b"some bytes")
    manifest = hash_dataset(tmp_path)
    shutil.copy2(tmp_path / "file", tmp_path / "new")
    (tmp_path / "new").replace(tmp_path / "file")

    assert manifest.verify(tmp_path).ok
    assert manifest.verify(tmp_path, quick=True, cache=tmp_path.parent / "cache").ok


def test_o_di4_a_manifest_is_verified_under_its_own_scheme(tmp_path):
    (tmp_path / "file").write_bytes(b"some bytes")
    for algorithm in ("sha256", "xxh3-128"):
        assert Manifest.from_text(hash_dataset(tmp_path, algorithm).to_text()).verify(tmp_path).ok


@pytest.mark.parametrize(("key", "value"), [("format", "detdata.manifest/2"), ("algorithm", "xxh4-256")])
def test_o_di4_an_unknown_scheme_is_named_and_never_called_a_change_of_data(tmp_path, key, value):
    (tmp_path / "file").write_bytes(b"some bytes")
    record = json.loads(hash_dataset(tmp_path).to_text())

    with pytest.raises(UnknownFormat, match=value) as caught:
        Manifest.from_text(json.dumps(record | {key: value}))
    assert "hash" in str(caught.value)
