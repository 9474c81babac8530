"""What is noticed: the changes on which the usual tools were tried, each with what the report must say of it.

Record a tree, change one thing, verify. Every tool that was tried gets some of these wrong: says nothing, hangs on a
FIFO, leaves out an unreadable folder and reports success, or crashes on a name that is not UTF-8.
"""

import os

import pytest

from detdata import DatasetError, hash_dataset
from tests.versions.trees import PLAIN, make_device, make_socket, make_tree, refusing

TREE = PLAIN | {"empty": b"", ".secret": b"hidden"}


def flip(file, *, keep_times):
    before = file.stat()
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    if keep_times:
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def nothing_is_said(root):
    yield "nothing", lambda: None
    yield "mtime", lambda: os.utime(root / "a.txt", (1, 1))
    yield "mode", lambda: (root / "a.txt").chmod(0o600)
    yield "empty folder", (root / "new folder").mkdir
    yield "rewritten with the same bytes", lambda: (root / "a.txt").write_bytes(b"one")


@pytest.mark.parametrize("index", range(5))
def test_what_is_no_change_of_the_data_is_not_reported(tmp_path, index):
    root = make_tree(tmp_path, TREE)
    manifest = hash_dataset(root)
    _, change = list(nothing_is_said(root))[index]
    change()

    report = manifest.verify(root)
    assert report.ok
    assert str(report).startswith("same: ")


CHANGES = {
    "added": (lambda root: (root / "new").write_bytes(b"n"), {"added": ("new",)}),
    "hidden added": (lambda root: (root / ".new").write_bytes(b"n"), {"added": (".new",)}),
    "not utf-8 added": (lambda root: (root / os.fsdecode(b"n\xff")).write_bytes(b"n"), {"added": ("n\udcff",)}),
    "newline added": (lambda root: (root / "n\nm").write_bytes(b"n"), {"added": ("n\nm",)}),
    "empty added": (lambda root: (root / "zero").write_bytes(b""), {"added": ("zero",)}),
    "removed": (lambda root: (root / "b/c.txt").unlink(), {"removed": ("b/c.txt",)}),
    "renamed": (lambda root: (root / "a.txt").rename(root / "z"), {"renamed": (("a.txt", "z"),)}),
    "moved": (lambda root: (root / "a.txt").rename(root / "b/a"), {"renamed": (("a.txt", "b/a"),)}),
    "truncated": (lambda root: (root / "b.txt").write_bytes(b"fou"), {"changed": [("b.txt", "size")]}),
    "grown": (lambda root: (root / "b.txt").write_bytes(b"four!"), {"changed": [("b.txt", "size")]}),
    "bit flip": (lambda root: flip(root / "b.txt", keep_times=False), {"changed": [("b.txt", "content")]}),
    "flip, times kept": (lambda root: flip(root / "b.txt", keep_times=True), {"changed": [("b.txt", "content")]}),
    "hidden changed": (lambda root: flip(root / ".secret", keep_times=False), {"changed": [(".secret", "content")]}),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_told_for_what_it_is_and_nothing_else(tmp_path, name):
    root = make_tree(tmp_path, TREE)
    manifest = hash_dataset(root)
    change, expected = CHANGES[name]
    change(root)

    report = manifest.verify(root)
    found = {
        "added": report.added,
        "removed": report.removed,
        "renamed": report.renamed,
        "changed": [(item.path, item.kind) for item in report.changed],
    }
    assert {kind: items for kind, items in found.items() if items} == expected
    assert not report.ok


def loop(root):
    (root / "b" / "up").symlink_to(root)


ODD = {
    "fifo": (lambda root: os.mkfifo(root / "odd"), "a pipe"),
    "socket": (lambda root: make_socket(root / "odd"), "a socket"),
    "device": (lambda root: make_device(root / "odd"), "a character device"),
    "dangling link": (lambda root: (root / "odd").symlink_to("nowhere"), "leads nowhere"),
    "link loop": (loop, "a loop"),
}


@pytest.mark.timeout(30)
@pytest.mark.parametrize("name", ODD)
def test_what_cannot_be_data_is_an_error_at_once_and_never_left_out(tmp_path, name):
    root = make_tree(tmp_path / "data", TREE)
    manifest = hash_dataset(root)
    make, words = ODD[name]
    try:
        make(root)
    except PermissionError:
        pytest.skip("this system makes no devices for us")

    for attempt in (lambda: hash_dataset(root), lambda: manifest.verify(root)):
        with pytest.raises(DatasetError, match=words) as caught:
            attempt()
        assert caught.value.path.endswith(("odd", "up"))


@pytest.mark.parametrize("what", ["b", "c.txt"])
def test_what_cannot_be_read_is_an_error_that_names_it(tmp_path, monkeypatch, what):
    root = make_tree(tmp_path, TREE)
    manifest = hash_dataset(root)
    for call in ("scandir", "open"):
        monkeypatch.setattr(os, call, refusing(getattr(os, call), f"/{what}"))

    for attempt in (lambda: hash_dataset(root), lambda: manifest.verify(root)):
        with pytest.raises(DatasetError, match=f"{what}: cannot be"):
            attempt()


def test_a_link_counts_as_what_it_leads_to(tmp_path):
    root = make_tree(tmp_path / "data", TREE)
    manifest = hash_dataset(root)
    (root / "a.txt").rename(tmp_path / "blob")
    (root / "a.txt").symlink_to(tmp_path / "blob")

    assert manifest.verify(root).ok
    (tmp_path / "blob").write_bytes(b"eno")
    assert [change.path for change in manifest.verify(root).changed] == ["a.txt"]


def test_the_first_byte_that_differs_is_told_beside_a_good_copy(tmp_path):
    root = make_tree(tmp_path / "data", {"big": bytes(3_000_000)})
    good = make_tree(tmp_path / "good", {"big": bytes(3_000_000)})
    manifest = hash_dataset(root)
    with (root / "big").open("r+b") as file:
        file.seek(2_345_678)
        file.write(b"x")

    (change,) = manifest.verify(root, compare_to=good).changed
    assert change.offset == 2_345_678
    assert manifest.verify(root).changed[0].offset is None
    (good / "big").unlink()
    assert manifest.verify(root, compare_to=good).changed[0].offset is None


@pytest.mark.parametrize(
    ("name", "grown"), [("zz", True), ("a", False), ("b-zz", False), ("b/zz", True), ("b.txt0", True)]
)
def test_growth_is_only_what_comes_after_everything_old(tmp_path, name, grown):
    root = make_tree(tmp_path, {"a.txt": b"1", "b.txt": b"2"})
    manifest = hash_dataset(root)
    make_tree(root, {name: b"new"})

    report = manifest.verify(root)
    assert (report.added, report.grown) == ((name,), grown)
    flip(root / "a.txt", keep_times=False)
    assert not manifest.verify(root).grown
