"""Data behind URLs: the same names and digests as on disk; what changes, vanishes or is no file is named."""

import gzip
import pickle
import sys

import pytest

from detdata.errors import ArgumentValueError, MissingExtra
from detdata.versions.errors import DatasetError
from detdata.versions.files import digest_many
from detdata.versions.ignore import IGNORE_FILE, Rules
from detdata.versions.remote import digest_remote, is_url, list_remote, read_remote_ignore
from detdata.versions.walk import list_files, select
from tests.versions.trees import PLAIN, make_tree

fsspec = pytest.importorskip("fsspec")

MANIFEST = b'{"format": "detdata.manifest/1", "digest": ""}'
FILES = PLAIN | {
    "é/日本 x.txt": b"six", "big.bin": bytes(range(256)) * 5000, "empty": b"", "x.lock.json": MANIFEST,
    "y.lock.json.gz": gzip.compress(MANIFEST), "z.lock.json": b"{}", IGNORE_FILE: b"*.csv\n", "a.csv": b"1,2",
}  # fmt: skip


@pytest.fixture
def memory():
    system = fsspec.filesystem("memory")
    system.store.clear()
    system.pseudo_dirs[:] = [""]
    yield system
    system.store.clear()
    system.pseudo_dirs[:] = [""]


def upload(system, files, top="/bucket/data"):
    for path, data in files.items():
        system.pipe(f"{top}/{path}", data)
    return f"memory://{top}"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("s3://b/x", True), ("memory://x", True), ("file:///x", True), ("simplecache::s3://b", True),
        ("zip://*.csv::s3://b/x.zip", True), ("C:/x", False), ("C:\\x", False), ("x", False), ("/x", False),
        ("a:b", False), ("://x", False), (None, False), (b"s3://x", False), ("dir/s3://x", False),
    ],
)  # fmt: skip
def test_what_is_a_url(path, expected):
    assert is_url(path) is expected


RULES = [Rules(), Rules(ignore=("*.csv",)), Rules(exclude=("b/", "*.bin")), Rules(include=("*.txt",))]


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("scheme", ["memory", "file"])
def test_listing_and_digests_are_those_of_local_files(tmp_path, memory, rules, scheme):
    root = make_tree(tmp_path / "t", FILES)
    url = upload(memory, FILES) if scheme == "memory" else f"file://{root}"
    here, there = list_files(root, (".",), rules), list_remote(url, rules)

    assert there.paths == here.paths
    assert there.sizes == here.stats.sizes()
    assert there.select == (".",)
    for piece_size in (0, 1000):
        digests = digest_many(str(root), here.paths, "xxh3-128", piece_size)
        found = [digest_remote(there.root, path, "xxh3-128", piece_size) for path in there.paths]
        assert [(f.size, f.hex) for f in found] == [(d.size, d.hex) for d in digests]
        assert [f.tag for f in found] == there.tags


@pytest.mark.parametrize(
    "choice", ["a.txt", "b", "*.txt", "**/*.txt", "b/**", "?", ".hidden", "**/e.txt", "b/d/e.txt", ""]
)
def test_what_is_asked_for_is_what_it_is_on_disk(tmp_path, memory, choice):
    root = make_tree(tmp_path / "t", PLAIN)
    url = upload(memory, PLAIN)
    chosen = select(f"{root}/{choice}")
    here, there = list_files(chosen.root, chosen.select, Rules()), list_remote(f"{url}/{choice}", Rules())
    assert (there.paths, there.select) == (here.paths, chosen.select)
    assert there.root.removeprefix(url) == str(chosen.root).removeprefix(str(root))


def test_a_whole_bucket_is_a_root(memory):
    upload(memory, PLAIN, "/bucket")
    assert list_remote("memory://bucket", Rules()).paths == sorted(PLAIN, key=str.encode)
    assert "bucket/a.txt" in list_remote("memory://", Rules()).paths


@pytest.mark.parametrize("choice", ["gone", "*.gone", "a.txt/x", "["])
def test_what_is_not_there_is_named(memory, choice):
    url = upload(memory, PLAIN)
    with pytest.raises(DatasetError) as caught:
        list_remote(f"{url}/{choice}", Rules())
    assert caught.value.path == f"{url}/{choice}"


@pytest.mark.parametrize("key", ["a//b", "../up", "x/../y", "."])
def test_keys_that_are_no_paths_are_refused(memory, key):
    url = upload(memory, PLAIN)
    memory.store[f"/bucket/data/{key}"] = memory.store["/bucket/data/a.txt"]
    with pytest.raises(DatasetError, match="stay below it"):
        list_remote(url, Rules())


def test_marks_of_folders_do_not_count(memory, monkeypatch):
    url = upload(memory, PLAIN)
    memory.pipe("/bucket/empty", b"")
    memory.store["/bucket/data/folder/"] = memory.store["/bucket/empty"]
    assert list_remote(url, Rules()).paths == sorted(PLAIN, key=str.encode)
    memory.store["/bucket/data/folder/"] = memory.store["/bucket/data/a.txt"]
    with pytest.raises(DatasetError, match="has content"):
        list_remote(url, Rules())


def test_the_ignore_file_at_the_root(memory):
    url = upload(memory, FILES)
    for spelling in (url, f"{url}/", f"{url}/a.txt", f"{url}/*.txt"):
        assert read_remote_ignore(spelling) == ("*.csv",)
    assert read_remote_ignore(f"{url}/b") == ()
    assert read_remote_ignore(f"{url}/gone") == ()
    memory.pipe(f"/bucket/data/{IGNORE_FILE}", b"\xff")
    with pytest.raises(DatasetError, match=IGNORE_FILE):
        read_remote_ignore(url)


@pytest.mark.parametrize("change", [b"otherwise", b"one", None])
@pytest.mark.parametrize("piece_size", [0, 2])
def test_a_file_that_changes_while_it_is_read_has_no_digest(memory, monkeypatch, change, piece_size):
    url = upload(memory, PLAIN)
    real = type(memory).open

    def open_and_change(self, path, *arguments, **options):
        file = real(self, path, *arguments, **options)
        if change is None:
            del self.store[path]
        elif "rb" in arguments:
            self.store.pop(path)
            self.pipe(path, change)
        return file

    monkeypatch.setattr(type(memory), "open", open_and_change)
    with pytest.raises(DatasetError) as caught:
        digest_remote(url, "a.txt", "xxh3-128", piece_size)
    assert caught.value.path == f"{url}/a.txt"
    assert ("changed" if change is not None else "not there") in caught.value.reason


def test_what_the_store_reports_is_named(memory, monkeypatch):
    url = upload(memory, PLAIN)

    def fail(*arguments, **options):
        raise PermissionError("403: access denied")

    monkeypatch.setattr(type(memory), "open", fail)
    with pytest.raises(DatasetError, match="403"):
        digest_remote(url, "a.txt", "xxh3-128")
    with pytest.raises(DatasetError, match="not there"):
        digest_remote(url, "gone", "xxh3-128")
    monkeypatch.setattr(type(memory), "ls", fail)
    with pytest.raises(DatasetError, match="403"):
        list_remote(url, Rules())


def test_a_store_that_tells_no_size_is_read_to_the_end(memory, monkeypatch):
    url = upload(memory, PLAIN)
    real = type(memory).info
    monkeypatch.setattr(type(memory), "info", lambda self, path, **o: {**real(self, path, **o), "size": None})
    assert digest_remote(url, "a.txt", "xxh3-128").size == 3


def test_progress_counts_every_byte(memory):
    url = upload(memory, FILES)
    counts = []
    digest_remote(url, "big.bin", "xxh3-128", 1000, counts.append)
    assert sum(counts) == 256 * 5000
    assert pickle.loads(pickle.dumps(digest_remote)) is digest_remote


def test_paths_cannot_leave_the_root(memory):
    url = upload(memory, PLAIN)
    with pytest.raises(ValueError, match="stay below it"):
        digest_remote(f"{url}/b", "../a.txt", "xxh3-128")


def test_without_fsspec_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(MissingExtra, match=r"pip install 'detdata\[remote\]'"):
        list_remote("s3://bucket", Rules())


def test_a_protocol_that_nobody_knows_is_refused():
    with pytest.raises(ArgumentValueError, match="nosuch"):
        list_remote("nosuch://bucket", Rules())


def test_a_protocol_whose_package_is_missing_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with pytest.raises(MissingExtra, match="gcsfs"):
        list_remote("gs://bucket", Rules())
