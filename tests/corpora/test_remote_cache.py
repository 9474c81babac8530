"""The cache of ranges: what is in it is right or fetched again, its size is bounded, and it may fail in any way."""

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import fsspec
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from detdata import hash_dataset, open_corpus
from detdata.corpora import range_cache
from detdata.corpora.range_cache import RangeCache
from detdata.corpora.remote_file import RemoteFile, RemoteOptions
from tests.test_spec import VECTORS

WHOLE = bytes(range(256)) * 40
HEAD = 32


@pytest.fixture
def url(tmp_path):
    url = f"memory://{tmp_path.name}/a"
    fsspec.filesystem("memory").pipe(url, WHOLE)
    return url


@pytest.fixture
def fetched(monkeypatch):
    """The ranges that the store was asked for."""
    asked = []
    real = RemoteFile.fetch

    def fetch(self, start, length):
        asked.append((start, length))
        return real(self, start, length)

    monkeypatch.setattr(RemoteFile, "fetch", fetch)
    return asked


def cached(url, folder, limit=1 << 20):
    return RemoteFile(url, RemoteOptions(RangeCache(str(folder), limit)))


def entries(folder):
    return sorted(folder.rglob("*.range"))


def used(folder):
    return sum(path.stat().st_size for path in entries(folder))


def test_a_range_is_fetched_once_for_all_processes_and_runs(url, fetched, tmp_path):
    assert cached(url, tmp_path).read(10, 20) == WHOLE[10:30]
    assert pickle.loads(pickle.dumps(cached(url, tmp_path))).read(10, 20) == WHOLE[10:30]
    assert cached(url, tmp_path).read(10, 21) == WHOLE[10:31]
    assert fetched == [(10, 20), (10, 21)]


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_damaged_entry_is_fetched_again(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache")
    url = f"memory://{folder.name}/a"
    fsspec.filesystem("memory").pipe(url, WHOLE)
    assert cached(url, folder).read(100, 50) == WHOLE[100:150]
    (entry,) = entries(folder)
    content = bytearray(entry.read_bytes())
    kind = data.draw(st.sampled_from(["flip", "cut", "longer", "empty", "another"]))
    if kind == "flip":
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    elif kind == "cut":
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    elif kind == "longer":
        content += b"x"
    elif kind == "empty":
        content = b""
    else:
        cached(url, folder).read(200, 50)
        content = next(path for path in entries(folder) if path != entry).read_bytes()
    entry.write_bytes(content)
    assert cached(url, folder).read(100, 50) == WHOLE[100:150]
    assert entry.read_bytes()[HEAD:] == WHOLE[100:150]


def test_an_object_of_another_time_never_hits(url, fetched, tmp_path):
    assert cached(url, tmp_path).read(0, 256) == WHOLE[:256]
    fsspec.filesystem("memory").pipe(url, WHOLE[::-1])
    assert cached(url, tmp_path).read(0, 256) == WHOLE[::-1][:256]
    assert len(fetched) == 2


def test_what_a_store_does_not_tag_is_not_kept(url, fetched, tmp_path, monkeypatch):
    system = type(fsspec.filesystem("memory"))
    real = system.info
    monkeypatch.setattr(
        system, "info", lambda self, path, **o: {"size": real(self, path)["size"], "type": "file", "name": path}
    )
    for _ in range(2):
        assert cached(url, tmp_path).read(0, 256) == WHOLE[:256]
    assert len(fetched) == 2
    assert entries(tmp_path) == []


@pytest.mark.parametrize("processes", [1, 3])
def test_the_limit_holds_and_what_was_used_last_stays(url, fetched, tmp_path, processes):
    limit = 64 * (100 + HEAD)
    files = [cached(url, tmp_path, limit) for _ in range(processes)]  # each knows only what it wrote itself
    for number in range(100):
        files[number % processes].read(number * 100, 100)
        assert files[0].read(0, 100) == WHOLE[:100]
        path = files[0].options.cache._path(key_of(files[0], 0, 100))
        os.utime(path, ns=(2**62, 2**62))  # later than any tick of the clock
        assert used(tmp_path) <= limit + processes * limit // 64
    assert fetched.count((0, 100)) == 1
    assert used(tmp_path) > limit // 2


def key_of(file, start, length):
    return RangeCache.key(file.name, *file.identity(), start, length)


def test_what_is_larger_than_the_limit_is_not_kept(url, tmp_path):
    assert cached(url, tmp_path, 100).read(0, 1000) == WHOLE[:1000]
    assert entries(tmp_path) == []


@pytest.mark.parametrize("fault", ["full at once", "full in the middle", "read-only", "no folder", "cannot rename"])
def test_a_disk_that_fails_costs_only_the_cache(url, tmp_path, monkeypatch, fault):
    folder = tmp_path / "cache"
    if fault == "no folder":
        folder.write_text("a file")
    elif fault == "read-only":
        monkeypatch.setattr(os, "makedirs", fail)
    elif fault == "cannot rename":
        monkeypatch.setattr(os, "replace", fail)
    else:
        monkeypatch.setattr(range_cache, "open", Full if fault == "full at once" else Short, raising=False)
    for _ in range(2):
        assert cached(url, folder).read(5, 500) == WHOLE[5:505]
    assert fault == "no folder" or entries(folder) == []


def fail(*arguments, **options):
    raise OSError(28, "No space left on device")


class Full:
    def __init__(self, path, mode, buffering):
        self.file = Path(path).open(mode, buffering)  # noqa: SIM115 - closed on leaving

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.file.close()

    def write(self, data):
        fail()


class Short(Full):
    def write(self, data):
        return self.file.write(data[: len(data) // 2])


@pytest.mark.parametrize("row", VECTORS["range"])
def test_the_specification_says_what_is_written(tmp_path, row):
    data = bytes.fromhex(row["bytes"])
    text = json.dumps([row["url"], row["size"], row["tag"], row["start"], len(data)], separators=(",", ":"))
    name = xxhash.xxh3_128_hexdigest(text.encode())
    cache = RangeCache(str(tmp_path), 1 << 20)
    key = cache.key(row["url"], row["size"], row["tag"], row["start"], len(data))
    cache.put(key, data)
    (path,) = entries(tmp_path)
    assert str(path.relative_to(tmp_path)) == row["name"] == f"ranges/{name[:2]}/{name}.range"
    by_hand = b"detdata.range/1\n" + xxhash.xxh3_128_digest(name.encode() + data) + data
    assert path.read_bytes() == by_hand == bytes.fromhex(row["content"])


def test_processes_that_write_at_once(tmp_path):
    """Three processes read the same and other ranges, in a cache that holds a few of them."""
    (tmp_path / "data").write_bytes(WHOLE)
    program = f"""
import random
from detdata.corpora.files import Identity
from detdata.corpora.range_cache import RangeCache
whole = bytes(range(256)) * 40
cache = RangeCache({str(tmp_path / "cache")!r}, 20000)
rng = random.Random()
hits = 0
for _ in range(400):
    start = rng.randrange(40) * 100
    key = cache.key("s3://b/a", len(whole), "tag", start, 700)
    data = cache.get(key, 700)
    assert data is None or data == whole[start : start + 700]
    hits += data is not None
    cache.put(key, whole[start : start + 700])
print(hits > 0)
"""
    running = [
        subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert [process.communicate() for process in running] == [("True\n", "")] * 3
    assert used(tmp_path / "cache") <= 20000 + 3 * (20000 // 64 + 732)


def test_a_cache_among_the_data_is_no_data(tmp_path, url):
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "a.jsonl").write_text('{"x": 1}\n')
    before = hash_dataset(folder)
    cached(url, folder).read(0, 100)
    assert hash_dataset(folder) == before
    assert entries(folder)


def test_a_corpus_with_a_cache_reads_blocks_again_without_the_store(tmp_path, url, fetched):
    text = "".join(f'{{"x": {number}}}\n' for number in range(100))
    fsspec.filesystem("memory").pipe(f"{url}.jsonl", text.encode())
    for times in (10, 0):
        corpus = open_corpus(f"{url}.jsonl", rows_per_block=10, index_folder=tmp_path, remote_cache=tmp_path / "cache")
        fetched.clear()
        assert [row["x"] for row in corpus] == list(range(100))
        assert len(fetched) == times
