"""Selections: one root and what is chosen below it, the same for every way of asking for the same files."""

import os

import pytest

from detdata.errors import ArgumentTypeError, ArgumentValueError, UnknownFormat
from detdata.versions.errors import DatasetError
from detdata.versions.walk import Rules, list_files, select
from tests.versions.trees import make_tree, refusing

FILES = [
    "a.txt",
    "b.csv",
    ".h.txt",
    "d/a.txt",
    "d/e/a.txt",
    "d/e/b.csv",
    "f/a.txt",
    "p.parquet/part-0",
    "x[1].txt",
    "x1.txt",
]


@pytest.fixture
def tree(tmp_path, monkeypatch):
    make_tree(tmp_path / "t", dict.fromkeys(FILES, b""))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "t"


def chosen(*paths):
    found = select(list(paths))
    return os.path.relpath(found.root), found.select, list_files(found.root, found.select, Rules()).paths


@pytest.mark.parametrize("spelling", ["t", "t/", "./t", "t/.", "t/d/..", "{}", "t//"])
def test_one_folder_is_its_own_root(tree, spelling):
    found = select(spelling.format(tree))
    assert (found.root, found.select) == (tree, (".",))
    assert select(tree) == select([tree]) == select((tree, str(tree))) == found


CASES = [
    (["t/a.txt"], "t", ("a.txt",), ["a.txt"]),
    (["t/d", "t/f"], "t", ("d", "f"), ["d/a.txt", "d/e/a.txt", "d/e/b.csv", "f/a.txt"]),
    (["t/f", "t/d"], "t", ("d", "f"), ["d/a.txt", "d/e/a.txt", "d/e/b.csv", "f/a.txt"]),
    (["t/d", "t/d/e"], "t/d", (".",), ["a.txt", "e/a.txt", "e/b.csv"]),
    (["t/d/e/a.txt", "t/f/a.txt"], "t", ("d/e/a.txt", "f/a.txt"), ["d/e/a.txt", "f/a.txt"]),
    (["t/d/e/a.txt", "t/d/e/b.csv"], "t/d/e", ("a.txt", "b.csv"), ["a.txt", "b.csv"]),
    (["t/*.txt"], "t", ("*.txt",), [".h.txt", "a.txt", "x1.txt", "x[1].txt"]),
    (["t/**/*.csv"], "t", ("**/*.csv",), ["b.csv", "d/e/b.csv"]),
    (["t/d/**"], "t/d", ("**",), ["a.txt", "e/a.txt", "e/b.csv"]),
    (["t/*/a.txt"], "t", ("*/a.txt",), ["d/a.txt", "f/a.txt"]),
    (["t/[df]"], "t", ("[df]",), ["d/a.txt", "d/e/a.txt", "d/e/b.csv", "f/a.txt"]),
    (["t/**/*.parquet"], "t", ("**/*.parquet",), ["p.parquet/part-0"]),
    (["t/d/*/b.csv", "t/a.txt"], "t", ("a.txt", "d/*/b.csv"), ["a.txt", "d/e/b.csv"]),
    (["t/**/a.txt", "t/d"], "t", ("**/a.txt", "d"), ["a.txt", "d/a.txt", "d/e/a.txt", "d/e/b.csv", "f/a.txt"]),
    (["t/./*.csv"], "t", ("*.csv",), ["b.csv"]),
    (["*/a.txt"], ".", ("*/a.txt",), ["t/a.txt"]),
    (["t/x[1].txt"], "t", ("x[[]1].txt",), ["x[1].txt"]),  # a path that exists is no glob
    (["t/x[0-9].txt"], "t", ("x[0-9].txt",), ["x1.txt"]),
]  # fmt: skip


@pytest.mark.parametrize(("paths", "root", "selected", "files"), CASES)
def test_what_is_asked_for(tree, paths, root, selected, files):
    assert chosen(*paths) == (root, selected, files)
    assert chosen(*reversed(paths)) == (root, selected, files)
    assert chosen(*(f"{tree.parent}/{path}" for path in paths))[1:] == (selected, files)


def test_a_name_with_a_bracket_still_means_itself_when_it_has_gone(tree):
    found = select("t/x[1].txt")
    (tree / "x[1].txt").unlink()
    assert list_files(found.root, found.select, Rules()).paths == []
    (tree / "d").rename(tree / "d[x]")
    assert chosen("t/d[x]/e", "t/f")[1] == ("d[[]x]/e", "f")
    assert chosen("t/d[x]/*.txt", "t/f") == ("t", ("d[[]x]/*.txt", "f"), ["d[x]/a.txt", "f/a.txt"])


ODD = ["a", "a[1]", "a1", "b\\c", "bc", "*", "x*", "back\\", "[b\\c]", "?\\?"]


@pytest.mark.skipif(os.name == "nt", reason="a backslash is no part of a name there")
@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("folder", ODD)
def test_whatever_is_named_is_what_is_meant(tmp_path, monkeypatch, folder, name):
    make_tree(tmp_path / "t", {f"{one}/{other}": b"" for one in ODD for other in ODD})
    make_tree(tmp_path / "t", {"other": b""})
    monkeypatch.chdir(tmp_path)
    in_folder = [f"{folder}/{other}" for other in ODD]

    for asked in (f"t/{folder}/{name}", f"{tmp_path}/t/{folder}/{name}"):
        found = select([asked, "t/other"])
        assert list_files(found.root, found.select, Rules()).paths == sorted([f"{folder}/{name}", "other"])
    assert chosen(f"t/{folder}", "t/other")[2] == sorted([*in_folder, "other"])
    assert chosen(f"t/{folder}/**/*", "t/other")[2] == sorted([*in_folder, "other"])


def test_what_has_gone_since_is_not_listed_and_no_error(tree):
    assert list_files(
        tree, ("gone", "gone/**", "d/gone.txt", "a.txt", "a.txt/x", "[", "d/[", "x" * 9999), Rules()
    ).paths == ["a.txt"]


@pytest.mark.parametrize("choice", ["..", "../t", "d/../../t", "/", "d/*/../../..", "", "a\0b", "d//e", "./d", "d/"])
def test_no_choice_leads_out_of_the_root(tree, choice):
    with pytest.raises(UnknownFormat, match="stay below it"):
        list_files(tree, ("a.txt", choice), Rules())


def test_rules_hold_for_what_is_asked_for_by_name(tree):
    assert list_files(tree, ("d/e/a.txt", "d/*"), Rules(exclude=("e/",))).paths == ["d/a.txt"]
    assert list_files(tree, ("d/e/a.txt",), Rules(exclude=("/d",))).paths == []
    assert list_files(tree, ("d/**/a.txt",), Rules(exclude=("/d",))).paths == []


@pytest.mark.parametrize(
    "paths", ["gone", "t/gone", "t/a.txt/x", "t/*.gone", "t/**/gone", "gone/*.txt", "t/[", "t/a.txt/*"]
)
def test_what_is_not_there_is_named(tree, paths):
    with pytest.raises(DatasetError) as caught:
        select(["t", paths])
    assert caught.value.path == paths


@pytest.mark.parametrize("paths", [[], "", [""], "a\0b", "t/*/../x"])
def test_what_is_no_path_is_refused(tree, paths):
    with pytest.raises(ArgumentValueError, match="paths"):
        select(paths)


@pytest.mark.parametrize("paths", [None, 3, b"t", [b"t"], [None], {"t"}])
def test_what_is_no_text_is_refused(tree, paths):
    with pytest.raises(ArgumentTypeError, match="paths"):
        select(paths)


def test_a_path_that_cannot_be_looked_at_is_not_said_to_be_gone(tree, monkeypatch):
    monkeypatch.setattr(os, "lstat", refusing(os.lstat, "/a.txt"))
    with pytest.raises(DatasetError, match="Permission denied"):
        select("t/a.txt")


@pytest.mark.skipif(os.name == "nt", reason="links")
def test_links_are_asked_for_by_their_own_name(tree):
    (tree / "link").symlink_to("d")
    (tree / "f/up").symlink_to("../d/e")
    (tree / "file").symlink_to("d/a.txt")
    assert chosen("t/link")[1:] == ((".",), ["a.txt", "e/a.txt", "e/b.csv"])
    assert chosen("t/link", "t/f/a.txt")[2] == ["f/a.txt", "link/a.txt", "link/e/a.txt", "link/e/b.csv"]
    assert chosen("t/file")[1:] == (("file",), ["file"])
    assert chosen("t/f/up/../a.txt") == ("t/d", ("a.txt",), ["a.txt"])  # the parent of where the link leads
    assert chosen("t/li*/*.txt")[2] == ["link/a.txt"]
    for symlinks in ("record", "refuse"):
        with pytest.raises(DatasetError, match="on the way"):
            list_files(tree, ("link/a.txt",), Rules(symlinks=symlinks))
    assert list_files(tree, ("link",), Rules(symlinks="record")).kinds == ["link"]


def test_a_glob_over_a_circle_of_links_ends(tree):
    (tree / "d/up").symlink_to("..")
    with pytest.raises(DatasetError, match="matches nothing"):
        select("t/**/*.gone")


def test_the_file_systems_root_is_a_root():
    assert list_files("/", ("no-such-file-here",), Rules()).paths == []
    assert select("/").root.as_posix() == "/"
