"""Rules: which files count, the ignore file, and what is said where it cannot be read."""

import os
import socket

import pytest

from detdata.errors import ArgumentTypeError, ArgumentValueError
from detdata.versions.errors import DatasetError
from detdata.versions.ignore import IGNORE_FILE, Rules, filter_for, keeps_path, parse_ignore, read_ignore
from detdata.versions.walk import list_files
from tests.versions.trees import make_socket, make_tree, oracle, refusing

FILES = ["a.txt", "a.csv", ".hidden", "raw/a.txt", "raw/keep/a.txt", "sub/raw/b.csv", "sub/c.txt", "line\nbreak.txt"]

# rules -> what is left of FILES; and the walk over a real tree must agree with the look at the path alone.
CASES = [
    (Rules(), FILES),
    (Rules(exclude=("*.csv",)), ["a.txt", ".hidden", "raw/a.txt", "raw/keep/a.txt", "sub/c.txt", "line\nbreak.txt"]),
    (Rules(ignore=("*.txt", "!a.txt")), ["a.txt", "a.csv", ".hidden", "raw/a.txt", "raw/keep/a.txt", "sub/raw/b.csv"]),
    (Rules(exclude=("raw/",)), ["a.txt", "a.csv", ".hidden", "sub/c.txt", "line\nbreak.txt"]),
    (Rules(exclude=("/raw",)), ["a.txt", "a.csv", ".hidden", "sub/raw/b.csv", "sub/c.txt", "line\nbreak.txt"]),
    (Rules(exclude=("raw", "!raw/keep")), ["a.txt", "a.csv", ".hidden", "sub/c.txt", "line\nbreak.txt"]),
    (Rules(exclude=("/raw/*", "!/raw/keep"), include=("/raw",)), ["raw/keep/a.txt"]),
    (Rules(include=("*.csv",)), ["a.csv", "sub/raw/b.csv"]),
    (Rules(include=("*.csv", "raw/")), ["a.csv", "raw/a.txt", "raw/keep/a.txt", "sub/raw/b.csv"]),
    (Rules(include=("raw/", "!*.csv")), ["raw/a.txt", "raw/keep/a.txt"]),
    (Rules(include=("*.csv",), exclude=("sub",)), ["a.csv"]),
    (Rules(include=("*.csv",), ignore=("*.csv",)), []),
    (Rules(ignore=("*.txt",), exclude=("!a.txt", "*.csv")), [".hidden"]),
    (Rules(exclude=("line*",)), [file for file in FILES if not file.startswith("line")]),
    (Rules(exclude=(".*",)), [file for file in FILES if not file.startswith(".")]),
    (Rules(exclude=("#a.txt", "")), FILES),
    (Rules(include=("#none",)), []),
]


@pytest.mark.parametrize(("rules", "left"), CASES)
def test_what_the_patterns_leave(tmp_path, rules, left):
    make_tree(tmp_path, dict.fromkeys(FILES, b""))
    chosen = filter_for(rules)
    assert [file for file in FILES if keeps_path(chosen, file)] == left
    assert list_files(tmp_path, (".",), rules).paths == sorted(left)


def test_without_patterns_nothing_is_matched():
    assert filter_for(Rules()) is None
    assert filter_for(Rules(symlinks="refuse")) is None


@pytest.mark.parametrize("name", ["ignore", "include", "exclude"])
@pytest.mark.parametrize(
    ("patterns", "error"),
    [
        ("*.txt", ArgumentTypeError),
        (["*.txt"], ArgumentTypeError),
        ((1,), ArgumentTypeError),
        (("a\nb",), ArgumentValueError),
    ],
)
def test_patterns_that_are_none_are_refused_by_name(name, patterns, error):
    with pytest.raises(error, match=name):
        Rules(**{name: patterns})


def test_ways_with_links_are_three():
    with pytest.raises(ArgumentValueError, match="follow, record, refuse"):
        Rules(symlinks="copy")


@pytest.mark.parametrize(
    ("data", "patterns"),
    [
        (b"", ()),
        (b"# only a comment\n\n   \n", ()),
        (b"*.tmp\n/raw/\n!x", ("*.tmp", "/raw/", "!x")),
        (b"*.tmp\r\n\\#x \r\n", ("*.tmp", "\\#x ")),
        (b"\xef\xbb\xbf*.tmp\n", ("*.tmp",)),  # saved by an editor that marks UTF-8
        ("é\n日本/\n".encode(), ("é", "日本/")),
        (b"a\x0cb\x85"[:3] + b"\n", ("a\x0cb",)),  # only a newline ends a line
    ],
)
def test_the_lines_of_an_ignore_file(tmp_path, data, patterns):
    (tmp_path / IGNORE_FILE).write_bytes(data)
    assert read_ignore(tmp_path) == patterns == parse_ignore(data)
    assert Rules(ignore=patterns).ignore == patterns


@pytest.mark.parametrize("data", [b"\xff\n", b"a\0b\n", b"a\n" * 2**20])
def test_an_ignore_file_that_is_none_is_refused(tmp_path, data):
    (tmp_path / IGNORE_FILE).write_bytes(data)
    with pytest.raises(DatasetError, match=IGNORE_FILE):
        read_ignore(tmp_path)


def test_no_ignore_file_means_no_patterns(tmp_path):
    assert read_ignore(tmp_path) == ()
    assert read_ignore(tmp_path / "nothing") == ()


@pytest.mark.skipif(not hasattr(os, "mkfifo") or not hasattr(socket, "AF_UNIX"), reason="POSIX")
@pytest.mark.parametrize(
    "make", [os.mkdir, getattr(os, "mkfifo", None), make_socket, lambda path: path.symlink_to("gone")]
)
def test_an_ignore_file_that_is_no_file_is_refused_at_once(tmp_path, make):
    make(tmp_path / IGNORE_FILE)
    with pytest.raises(DatasetError, match=IGNORE_FILE):
        read_ignore(tmp_path)


def test_an_ignore_file_that_may_not_be_read_is_refused(tmp_path, monkeypatch):
    (tmp_path / IGNORE_FILE).write_bytes(b"*")
    monkeypatch.setattr(os, "open", refusing(os.open, IGNORE_FILE))
    with pytest.raises(DatasetError, match="Permission denied"):
        read_ignore(tmp_path)


def test_only_the_roots_ignore_file_is_no_data(tmp_path):
    make_tree(tmp_path, {IGNORE_FILE: b"", f"sub/{IGNORE_FILE}": b"", "a": b""})
    assert list_files(tmp_path, (".",), Rules()).paths == ["a", f"sub/{IGNORE_FILE}"]
    assert oracle(tmp_path) == [IGNORE_FILE, "a", f"sub/{IGNORE_FILE}"]
