"""Patterns mean what git means by them (git itself is the oracle), and cost little whatever they are."""

import os
import re
import shutil
import subprocess
import time

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from detdata.versions.ignore import Rules, filter_for, keeps_path
from detdata.versions.patterns import compile_path, escape_glob, parse_glob, parse_line, unescape_glob
from tests.versions.trees import NAMES, make_tree

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is the oracle")

FILES = [
    "a", "b", "ab", "abc", "a.txt", "b.csv", ".a", "d/a", "d/b", "d/a.txt", "d/e/a", "d/e/b.txt", "d/e/f/a.txt", "e/a",
    "e/d/a", "e/d/b", "x/d/e/a", "x/a b", "x/ab ", "[a]", "a]", "a-c", "x/!a", "#a", "a\\b", "*", "d/*", "line\nbreak",
]  # fmt: skip
PIECES = ["a", "b", "d", "e", "x", "*", "**", "?", "/", "/", ".txt", "[ab]", "[!a]", "[a-c]", "\\", " ", "!", "#", "["]


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    folder = make_tree(tmp_path_factory.mktemp("git"), dict.fromkeys(FILES, b""))
    subprocess.run(["git", "init", "-q", folder], check=True, capture_output=True)
    return folder


def kept_by_git(folder, lines):
    exclude = folder.parent / "exclude"
    exclude.write_text("\n".join(lines) + "\n", encoding="utf-8")
    command = ["git", "-c", "core.ignoreCase=false", "ls-files", "--others", "-z", f"--exclude-from={exclude}"]
    environment = {**os.environ, "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
    listed = subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True).stdout
    return {os.fsdecode(name) for name in listed.split(b"\0") if name}


def kept_by_us(lines):
    chosen = filter_for(Rules(ignore=tuple(lines)))
    return {path for path in FILES if keeps_path(chosen, path)}


@needs_git
@pytest.mark.parametrize(
    "lines",
    [
        ["*.txt"], ["d"], ["d/"], ["/d"], ["/d/"], ["d/*"], ["d/**"], ["d/**/"], ["**/d"], ["d/**/a"], ["**"], ["**/"],
        ["*", "!*/", "!*.txt"], ["d/**", "!d/a"], ["d", "!d/a"], ["/*", "!/d", "/d/*", "!/d/e"], ["a*c"], ["?"],
        ["[a-b]"], ["[b-a]"], ["[]a]"], ["[a"], ["\\[a\\]"], ["\\#a"], ["#a"], ["\\!a"], ["ab\\ "], ["ab "], ["a\\"],
        ["/"], ["//"], ["a//b"], ["[[:alpha:]]"], ["[[:nope:]]"], ["**a"], ["d/**a"], ["!a"], ["a", "!a", "a"], ["*/a"],
        ["[!a]"], [""], ["d/e"], ["e/d/"], ["\\*"], ["a\\\\b"], ["[a-c]-[!x]"], [".*"], ["x/**/a"], ["*?b"], ["[^a]"],
        ["[\\]]a"], ["[--a]"], ["[a-]*"], ["[!-c]"], ["[a-b-c]-c"],
        ["[[:][[:alpha:]]"], ["[[:x][[:alpha:]]"], ["[[::]]"], ["[[:alpha:][:]"], ["[[:alpha:]*[[:x]"],
    ],
)  # fmt: skip
def test_lines_mean_what_git_means(repository, lines):
    assert kept_by_us(lines) == kept_by_git(repository, lines)


# Where a name ends in stars (`d**/a`), git cuts off the plain text before them and takes the rest for a leading `**/`;
# its manual says that they are ordinary stars, and here they are.
NAME_ENDS_IN_STARS = re.compile(r"[^/!*]\*\*+/|\*\*\*+/|.!\*\*+/")


@needs_git
@given(st.lists(st.lists(st.sampled_from(PIECES), min_size=1, max_size=6).map("".join), min_size=1, max_size=4))
def test_any_lines_mean_what_git_means(repository, lines):
    assume(not any(NAME_ENDS_IN_STARS.search(line) for line in lines))
    assert kept_by_us(lines) == kept_by_git(repository, lines)


@pytest.mark.parametrize(
    ("glob", "path", "selected"),
    [
        ("*", ".hidden", True), ("*", "a/b", False), ("**", "a/b/c", True), ("**/*.txt", "a.txt", True),
        ("**/*.txt", "a/b/c.txt", True), ("a/**/c", "a/c", True), ("a/**/c", "a/b/b/c", True), ("a/**", "a", False),
        ("[0-9][0-9]", "07", True), ("?", "é", True), ("?", "line\n", False), ("*break", "line\nbreak", True),
        ("A", "a", False),
    ],
)  # fmt: skip
def test_globs(glob, path, selected):
    assert parse_glob(glob).selects(path) is selected


@given(st.lists(st.sampled_from(["a", "b", "**", "*", "?", "a*"]), min_size=1, max_size=4), st.sampled_from(FILES))
def test_a_glob_enters_every_folder_that_holds_what_it_selects(parts, path):
    glob = parse_glob("/".join(parts))
    if glob.selects(path):
        names = path.split("/")
        assert all(glob.enters("/".join(names[:depth])) for depth in range(1, len(names)))


@pytest.mark.parametrize("name", NAMES)
def test_an_escaped_name_is_matched_by_itself_alone(name):
    assert unescape_glob(escape_glob(name)) == name
    glob = parse_glob(f"x/{escape_glob(name)}")
    assert [other for other in NAMES if glob.selects(f"x/{other}")] == [name]


def naive(pattern, text):
    """`*` and `?` by the textbook's recursion."""
    if not pattern:
        return not text
    if pattern[0] == "*":
        return naive(pattern[1:], text) or (text != "" and naive(pattern, text[1:]))
    return text != "" and pattern[0] in {"?", text[0]} and naive(pattern[1:], text[1:])


@given(st.text(alphabet="ab*?", max_size=7), st.text(alphabet="ab\n", min_size=1, max_size=7))
def test_stars_within_a_name_match_as_in_the_textbook(pattern, name):
    if pattern != "**":
        assert bool(compile_path(pattern).fullmatch(name)) == naive(pattern, name)


def test_no_pattern_takes_long():
    begin = time.process_time()
    assert parse_line("*a" * 60 + "b").regex.fullmatch("a" * 255) is None
    assert parse_line("**/a/" * 40 + "b").regex.fullmatch("a/" * 1000 + "c") is None
    assert time.process_time() - begin < 30  # it would be years without atomic groups


def test_names_with_no_pattern_in_them_are_taken_as_they_are():
    for name in NAMES:
        assert re.fullmatch(compile_path(escape_glob(name)), name)
