"""A store's folders are all listed or named: one that may not be read is an error, and links are said to be links."""

import io
from typing import ClassVar

import pytest

from detdata import hash_dataset
from detdata.versions.errors import DatasetError
from detdata.versions.ignore import Rules
from detdata.versions.remote import digest_remote, list_remote, read_remote_ignore
from tests.versions.trees import PLAIN, closed_folder, make_tree

fsspec = pytest.importorskip("fsspec")
DENIED = PermissionError(13, "Permission denied")


class FakeStore(fsspec.AbstractFileSystem):
    """Lists FILES; `trouble` maps a folder or file to what asking for it raises."""

    protocol = "fake"
    cachable = False
    files: ClassVar[dict[str, bytes]] = {}
    trouble: ClassVar[dict[str, Exception]] = {}
    asked: ClassVar[list[str]] = []

    def ls(self, path, detail=True, **kwargs):
        path = self._strip_protocol(path).strip("/")
        self.asked.append(path)
        if path in self.trouble:
            raise self.trouble[path]
        prefix = f"{path}/" if path else ""
        if path in self.files:
            return [{"name": path, "type": "file", "size": len(self.files[path])}]
        found = {}
        for name, data in self.files.items():
            if name.startswith(prefix):
                child, _, rest = name[len(prefix) :].partition("/")
                kind = "directory" if rest else "file"
                found[child] = {"name": prefix + child, "type": kind, "size": 0 if rest else len(data)}
        if not found:
            raise FileNotFoundError(path)
        return list(found.values())

    def _open(self, path, mode="rb", **kwargs):
        return io.BytesIO(self.files[path.strip("/")])


@pytest.fixture
def fake(monkeypatch):
    fsspec.register_implementation("fake", FakeStore, clobber=True)
    for name, value in (("files", {f"top/{path}": data for path, data in PLAIN.items()}), ("trouble", {})):
        monkeypatch.setattr(FakeStore, name, value)
    monkeypatch.setattr(FakeStore, "asked", [])
    return FakeStore


@pytest.mark.parametrize("error", [DENIED, OSError("503: slow down"), TimeoutError(), RuntimeError("401 of a library")])
@pytest.mark.parametrize("folder", ["b", "b/d"])
def test_a_folder_that_cannot_be_listed_is_an_error_that_names_it(fake, folder, error):
    assert list_remote("fake://top", Rules()).paths == sorted(PLAIN, key=str.encode)
    fake.trouble[f"top/{folder}"] = error
    for call in (lambda: list_remote("fake://top", Rules()), lambda: hash_dataset("fake://top")):
        with pytest.raises(DatasetError, match="cannot be read") as caught:
            call()
        assert caught.value.path == f"fake://top/{folder}"


def test_a_folder_that_vanishes_meanwhile_is_an_error(fake):
    fake.trouble["top/b"] = FileNotFoundError("top/b")
    with pytest.raises(DatasetError, match="fake://top/b: is not there any more"):
        list_remote("fake://top", Rules())


def test_a_root_that_may_not_be_looked_at_is_not_called_missing(fake):
    fake.trouble |= {"top": DENIED, "": DENIED}
    with pytest.raises(DatasetError, match="cannot be read"):
        list_remote("fake://top", Rules())


def test_an_ignore_file_that_may_not_be_looked_at_is_not_taken_for_none(fake, monkeypatch):
    real = FakeStore.info

    def info(self, path, **kwargs):
        if path.endswith(".detdataignore"):
            raise DENIED
        return real(self, path, **kwargs)

    monkeypatch.setattr(FakeStore, "info", info)
    with pytest.raises(DatasetError, match="detdataignore"):
        read_remote_ignore("fake://top")


def test_a_folder_that_does_not_count_need_not_be_readable(fake):
    fake.trouble["top/b"] = DENIED
    others = sorted(set(PLAIN) - {"b/c.txt", "b/d/e.txt"}, key=str.encode)
    assert list_remote("fake://top", Rules(exclude=("b/",))).paths == others
    assert list_remote("fake://top/*.txt", Rules()).paths == ["a.txt", "b.txt"]
    assert list_remote("fake://top/.h*", Rules()).paths == [".hidden/f"]
    with pytest.raises(DatasetError, match="fake://top/"):
        list_remote("fake://top/**/*.txt", Rules())


def test_local_folders_that_cannot_be_listed(tmp_path):
    with closed_folder() as root, pytest.raises(DatasetError, match="Permission") as caught:
        list_remote(f"file://{root}", Rules(exclude=("/file",)))
    assert caught.value.path == f"file://{root}/shut"


def test_a_folder_of_the_memory_store_that_cannot_be_listed(monkeypatch):
    system = fsspec.filesystem("memory")
    system.pipe("/closed/a/x", b"1")
    real = type(system).ls

    def ls(self, path, *arguments, **options):
        if path.rstrip("/").endswith("/a"):
            raise DENIED
        return real(self, path, *arguments, **options)

    monkeypatch.setattr(type(system), "ls", ls)
    with pytest.raises(DatasetError, match="memory://closed/a: cannot be read"):
        list_remote("memory://closed", Rules())
    del system.store["/closed/a/x"]


@pytest.mark.parametrize("symlinks", ["follow", "record", "refuse"])
@pytest.mark.parametrize("target", ["a.txt", "b", "nowhere"])
def test_links_under_a_file_url_are_said_to_be_links(tmp_path, symlinks, target):
    root = make_tree(tmp_path / "t", PLAIN)
    (root / "link").symlink_to(target)
    with pytest.raises(DatasetError, match="is a symbolic link") as caught:
        list_remote(f"file://{root}", Rules(symlinks=symlinks))
    assert caught.value.path == f"file://{root}/link"
    assert f"give the plain path {root}/link" in caught.value.reason
    assert list_remote(f"file://{root}", Rules(exclude=("link",))).paths == sorted(PLAIN, key=str.encode)


@pytest.mark.parametrize(
    ("info", "message"),
    [
        ({"name": "top/pipe", "type": "other", "size": 0}, "no regular file"),
        ({"name": "top/l", "type": "link", "size": 0}, "symbolic link"),
        ({"name": "elsewhere/x", "type": "file", "size": 0}, "does not lie there"),
        ({"name": "top/../x", "type": "directory", "size": 0}, "stay below it"),
        ({"name": "top/", "type": "directory", "size": 0}, "stay below it"),
        ({"name": "top/b//", "type": "directory", "size": 0}, "stay below it"),
        ({"name": "top/x/", "type": "file", "size": 3}, "has content"),
    ],
)
def test_what_a_store_lists_and_is_no_data_is_named(fake, info, message, monkeypatch):
    real = FakeStore.ls
    monkeypatch.setattr(
        FakeStore, "ls", lambda self, path, **o: real(self, path, **o) + [info] * (path.strip("/") == "top")
    )
    with pytest.raises(DatasetError, match=message):
        list_remote("fake://top", Rules())


def test_a_store_that_lists_the_folder_itself(fake, monkeypatch):
    real = FakeStore.ls

    def ls(self, path, detail=True, **kwargs):
        return [{"name": path.strip("/"), "type": "directory", "size": 0}, *real(self, path, detail)]

    monkeypatch.setattr(FakeStore, "ls", ls)
    assert list_remote("fake://top", Rules()).paths == sorted(PLAIN, key=str.encode)


@pytest.mark.parametrize("package", ["s3fs", "gcsfs", "adlfs"])
def test_stores_without_folders_are_asked_once_for_all_keys(fake, monkeypatch, package):
    monkeypatch.setattr(FakeStore, "__module__", f"{package}.core")
    found = {f"top/{path}": {"name": f"top/{path}", "type": "file", "size": 1} for path in ("a", "b/c")}
    found["top/mark/"] = {"name": "top/mark/", "type": "directory", "size": 0}
    monkeypatch.setattr(FakeStore, "find", lambda self, path, detail: found)
    fake.asked.clear()
    assert list_remote("fake://top", Rules()).paths == ["a", "b/c"]
    assert "top/b" not in fake.asked

    def fail(*_, **__):
        raise RuntimeError("403 forbidden")

    monkeypatch.setattr(FakeStore, "find", fail)
    with pytest.raises(DatasetError, match=r"fake://top: cannot be read .403"):
        list_remote("fake://top", Rules())


def test_what_a_users_function_raises_is_not_taken_for_the_stores(fake):
    def stop(_):
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match=r"^stop$"):
        digest_remote("fake://top", "a.txt", "xxh3-128", on_bytes=stop)
