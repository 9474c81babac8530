"""What this library writes among the data is never data, wherever it lies and by whatever name one comes to it."""

import gzip
import os
import time
from pathlib import Path

import pytest

from detdata import Manifest, hash_dataset
from detdata.versions import cache as cache_module
from detdata.versions.ignore import Rules
from detdata.versions.manifest_io import write_text
from detdata.versions.means import Means
from detdata.versions.own_files import CACHE_ENDINGS, OWN_ENDINGS, is_temporary, remove_leftovers, temporary_beside
from detdata.versions.remote import list_remote
from detdata.versions.scan import scan_paths
from tests.versions.entries import some
from tests.versions.trees import PLAIN, make_tree


@pytest.fixture(autouse=True)
def settled(monkeypatch):
    monkeypatch.setattr(cache_module, "GRAIN_NS", -(10**12))


@pytest.mark.parametrize("spelling", ["inside", "relative", "dots", "link inside", "link outside", "root", "deep"])
def test_a_cache_within_the_data_is_no_data(tmp_path, monkeypatch, spelling):
    root = make_tree(tmp_path / "data", PLAIN)
    plain = hash_dataset(root)
    cache = root / "cache"
    monkeypatch.chdir(root)
    if spelling == "relative":
        cache = "cache"
    elif spelling == "dots":
        cache = "b/../cache"
    elif spelling == "link inside":
        (tmp_path / "elsewhere").mkdir()
        (root / "cache").symlink_to(tmp_path / "elsewhere")
    elif spelling == "link outside":
        (root / "digests").mkdir()
        cache = tmp_path / "link"
        cache.symlink_to(root / "digests")
    elif spelling == "root":
        cache = root
    elif spelling == "deep":
        cache = root / "b" / "d" / "x" / "y"
    for way in ({}, {"algorithm": "sha256"}, {"piece_size": 2**16}):
        for asked in (root, ".", [root / "b", root], "../data"):
            found = scan_paths(asked, means=Means(cache=cache), **way)
            assert found.manifest.paths == plain.paths
    assert scan_paths(root, means=Means(cache=cache)).trusted == 5
    assert hash_dataset(root) == plain  # nor for those who know nothing of the cache
    assert plain.verify(root).ok
    assert plain.verify(root, quick=True, cache=cache).ok
    assert list_remote(f"file://{root}", Rules(exclude=("/cache", "/link"))).paths == list(plain.paths)


def test_a_journal_and_a_record_of_rows_within_the_data_are_no_data(tmp_path):
    pytest.importorskip("pyarrow")
    root = make_tree(tmp_path / "data", {"a.csv": b"x\n1\n"})
    plain = hash_dataset(root, content="rows")
    assert hash_dataset(root, content="rows", cache=root / "c") == plain
    name = next((root / "c").glob("*.digests")).stem
    (root / "c" / f"{name}.pieces").write_bytes(b"detdata.unfinished/1\n" + bytes(16))
    assert {file.suffix for file in (root / "c").iterdir()} == set(CACHE_ENDINGS)
    assert hash_dataset(root, content="rows") == plain
    assert hash_dataset(root).paths == ("a.csv",)


HEX = "0123456789abcdef"
NOT_OURS = {
    "x.digests": b"detdata.digests/1\n", "notes.pieces": b"", f"{HEX}{HEX}.digests": b"mine", f"{HEX}{HEX}.rows": b"[]",
    f"{HEX}.digests": b"detdata.digests/1\n", f"{HEX}{HEX}.pieces": b"", ".tmp-1.lock.json": b"", "a.lock.json": b"{}",
    f".tmp-{HEX.upper()}.lock.json": b"", f".tmp-{HEX}.json": b"", f"tmp-{HEX}.lock.json": b"", f".tmp-{HEX}": b"",
    f".tmp-{HEX}0.lock.json": b"", f".tmp-{HEX}.lock.json.bak": b"", f"x.tmp-{HEX}.lock.json": b"",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(NOT_OURS))
def test_a_users_file_with_a_similar_name_is_data(tmp_path, name):
    root = make_tree(tmp_path / "data", PLAIN | {name: NOT_OURS[name], f"b/{name}": NOT_OURS[name]})
    assert {name, f"b/{name}"} < set(hash_dataset(root).paths)
    assert {name, f"b/{name}"} < set(list_remote(f"file://{root}", Rules()).paths)


@pytest.mark.parametrize("ending", OWN_ENDINGS)
@pytest.mark.parametrize("content", [b"", b'{"form', gzip.compress(b"x", mtime=0)[:5]])
def test_what_a_killed_process_left_is_no_data(tmp_path, ending, content):
    root = make_tree(tmp_path / "data", PLAIN)
    plain = hash_dataset(root)
    for folder in (root, root / "b"):
        Path(temporary_beside(str(folder), ending)).write_bytes(content)
    assert hash_dataset(root) == plain
    assert plain.verify(root).ok
    assert list_remote(f"file://{root}", Rules()).paths == list(plain.paths)


def leave(folder, ending, age):
    path = Path(temporary_beside(str(folder), ending))
    path.touch()
    os.utime(path, (time.time() - age,) * 2)
    return path


@pytest.mark.parametrize("ending", [".lock.json", ".lock.json.gz"])
def test_the_next_save_removes_what_was_left_and_nothing_else(tmp_path, ending):
    old, fresh = leave(tmp_path, ending, 3600), leave(tmp_path, ending, 5)
    others = [tmp_path / ".tmp-notes.lock.json", tmp_path / "a.txt", tmp_path / f".tmp-{HEX}.lock.json.bak"]
    for other in others:
        other.write_bytes(b"")
        os.utime(other, (0, 0))
    some(2).save(tmp_path / f"x{ending}")
    assert Manifest.load(tmp_path / f"x{ending}") == some(2)
    assert not old.exists()
    assert fresh.exists()  # it may be another process's that writes just now
    assert all(other.exists() for other in others)


def test_the_caches_next_save_removes_what_was_left(tmp_path):
    root = make_tree(tmp_path / "data", PLAIN)
    cache = tmp_path / "cache"
    cache.mkdir()
    gone = [leave(cache, ending, 3600) for ending in CACHE_ENDINGS]
    stays = leave(cache, ".lock.json", 3600)
    hash_dataset(root, cache=cache)
    assert not any(path.exists() for path in gone)
    assert stays.exists()


def test_a_folder_or_link_by_such_a_name_is_left_alone(tmp_path):
    (tmp_path / f".tmp-{HEX}.lock.json").mkdir()
    link = tmp_path / f".tmp-{HEX[::-1]}.lock.json"
    link.symlink_to(tmp_path / "nowhere")
    os.utime(link, (0, 0), follow_symlinks=False)
    remove_leftovers(str(tmp_path), OWN_ENDINGS)
    assert len(list(tmp_path.iterdir())) == 2
    write_text(str(tmp_path / "x.lock.json"), "{}")
    assert is_temporary(str(link))
