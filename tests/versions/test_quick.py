"""What a report says of how it was made: which files were read, which trusted, and what that leaves unproved."""

import pytest

from detdata import hash_dataset
from detdata.versions import cache as module
from detdata.versions.compare import compare
from detdata.versions.means import Means
from tests.versions.trees import PLAIN, make_tree


@pytest.fixture
def settled(monkeypatch):
    """A clock so coarse that it has always been long ago: what was just written counts as settled."""
    monkeypatch.setattr(module, "GRAIN_NS", -(10**12))


@pytest.mark.usefixtures("settled")
def test_a_quick_report_says_what_it_did_not_see(tmp_path):
    root = make_tree(tmp_path / "data", PLAIN)
    manifest = hash_dataset(root, cache=tmp_path / "cache")
    (root / "a.txt").write_bytes(b"longer")

    report = manifest.verify(root, quick=True, cache=tmp_path / "cache")

    assert (report.read_files, report.trusted_files) == (("a.txt",), (".hidden/f", "b.txt", "b/c.txt", "b/d/e.txt"))
    assert (report.read, report.trusted, report.quick) == (1, 4, True)
    record = report.to_dict()
    assert (record["quick"], record["read_files"]) == (True, ["a.txt"])
    assert record["unproved"].startswith("files taken from the cache were not read")
    assert f"note: quick: {record['unproved']}" in str(report)
    assert "ctime" in report.to_markdown()


@pytest.mark.usefixtures("settled")
def test_a_full_report_leaves_nothing_unproved_whatever_the_cache_holds(tmp_path):
    root = make_tree(tmp_path / "data", PLAIN)
    manifest = hash_dataset(root, cache=tmp_path / "cache")

    report = manifest.verify(root, cache=tmp_path / "cache")

    assert (report.read_files, report.trusted_files) == (manifest.paths, ())
    assert (report.quick, report.unproved, report.notes) == (False, "", ())


def test_a_quick_report_that_trusted_nothing_says_so(tmp_path):
    root = make_tree(tmp_path / "data", PLAIN)

    report = hash_dataset(root).verify(root, quick=True, cache=tmp_path / "cache")

    assert (report.quick, report.unproved, report.trusted_files) == (True, "", ())
    assert report.notes == ("quick: nothing was in the cache that could be trusted; every file was read",)


def test_two_folders_are_told_apart_in_what_was_read(tmp_path):
    old, new = make_tree(tmp_path / "old", PLAIN), make_tree(tmp_path / "new", PLAIN)

    report = compare(str(old), str(new), ways={}, means=Means())

    assert (report.read, report.trusted) == (10, 0)
    assert sorted(report.read_files) == sorted(f"{root}/{path}" for root in (old, new) for path in PLAIN)


# --- behind URLs ---


@pytest.mark.parametrize(
    ("ask", "root", "paths"),
    [
        (["b", "a.txt"], "", ["a.txt", "b/c.txt", "b/d/e.txt"]),
        (["*.txt"], "", ["a.txt", "b.txt"]),
        (["b/**/*.txt"], "b", ["c.txt", "d/e.txt"]),
        (["b/c.txt"], "b", ["c.txt"]),
        (["b*"], "", ["b.txt", "b/c.txt", "b/d/e.txt"]),
    ],
)
def test_what_was_asked_for_is_what_is_verified_behind_a_url(tmp_path, ask, root, paths):
    memory = pytest.importorskip("fsspec").filesystem("memory")
    folder = make_tree(tmp_path / "data", PLAIN)
    for path in PLAIN:
        memory.pipe(f"/detdata-select/{path}", (folder / path).read_bytes())
    manifest = hash_dataset([folder / item for item in ask] if len(ask) > 1 else str(folder / ask[0]))
    url = f"memory://detdata-select/{root}".rstrip("/")

    try:
        assert list(manifest.paths) == paths
        report = manifest.verify(url)
        assert (report.ok, report.notes, report.files) == (True, (), len(paths))
        last = f"{url.removeprefix('memory:/')}/{paths[-1]}"
        memory.pipe(last, b"other")
        assert [change.path for change in manifest.verify(url).changed] == [paths[-1]]
        memory.rm(last)
        assert manifest.verify(url).removed == (paths[-1],)
    finally:
        memory.rm("/detdata-select", recursive=True)
