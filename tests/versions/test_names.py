"""Names: byte order, what may be in a manifest, messages of one line, and no dependence on the locale."""

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detdata.errors import UnknownFormat
from detdata.versions import names
from detdata.versions.names import (
    check_all_relative,
    check_relative,
    clashes,
    from_system,
    path_key,
    printable,
    sort_order,
    to_system,
)
from tests.sources import ROOT
from tests.versions.trees import NAMES

ANY_BYTES = st.binary(min_size=1, max_size=12).filter(lambda name: b"\0" not in name)
BAD = [
    "",
    "/",
    "/a",
    ".",
    "..",
    "a/",
    "a//b",
    "./a",
    "a/.",
    "../a",
    "a/..",
    "a/../b",
    "a\0b",
    "\0",
    "\ud800",
    "a/\udbff",
]


@given(st.lists(ANY_BYTES))
def test_the_order_is_that_of_the_bytes(raw):
    paths = [os.fsdecode(name) for name in raw]
    assert sorted(raw) == [path_key(paths[i]) for i in sort_order(paths)]


@given(ANY_BYTES)
def test_every_name_that_linux_can_hold_is_kept_to_the_byte(raw):
    name = os.fsdecode(raw)
    assert path_key(name) == raw
    assert to_system(from_system(name)) == name
    if b"/" not in raw and raw not in {b".", b".."}:
        assert check_relative(name) == name


@pytest.mark.parametrize("path", BAD)
def test_a_path_that_could_leave_its_root_is_refused(path):
    with pytest.raises(UnknownFormat, match="relative to the root"):
        check_relative(path)
    with pytest.raises(UnknownFormat):
        check_all_relative(["a", path, "b"])


@pytest.mark.parametrize("path", [b"a", None, 3])
def test_what_is_no_text_is_refused(path):
    with pytest.raises(UnknownFormat, match="must be text"):
        check_relative(path)


def test_two_texts_for_one_name_are_refused():
    doubled = "é".encode().decode("ascii", "surrogateescape")
    assert path_key(doubled) == path_key("é")
    with pytest.raises(UnknownFormat, match="stand for no byte"):
        check_relative(doubled)


@given(st.lists(st.text(alphabet="a./\0\udcff\ud800é", max_size=5), max_size=5))
def test_many_paths_are_checked_as_one_by_one(paths):
    def passes(check, argument):
        try:
            check(argument)
        except UnknownFormat:
            return False
        return True

    assert passes(check_all_relative, paths) == all(passes(check_relative, path) for path in paths)


def test_ordinary_and_odd_names_pass():
    check_all_relative(NAMES)
    check_all_relative([])
    assert [check_relative(path) for path in ["...", ".a", "a..b/c", "..a/b.."]]


@pytest.mark.parametrize("path", ["a\\b", "c:/x"])
def test_on_windows_what_leads_elsewhere_is_refused(monkeypatch, path):
    check_relative(path)
    monkeypatch.setattr(names, "_WINDOWS", True)
    with pytest.raises(UnknownFormat, match="Windows"):
        check_relative(path)
    with pytest.raises(UnknownFormat, match="Windows"):
        check_all_relative([path])


@given(st.text(alphabet=st.characters(codec=None), max_size=300))
def test_a_name_in_a_message_is_one_printable_line(path):
    shown = printable(path)
    assert shown.isprintable()
    assert len(shown) <= 201 * 10


@pytest.mark.parametrize(("path", "shown"), [("a b", "a b"), ("a\nb", "a\\nb"), ("\udcff\t", "\\xff\\t"), ("é", "é")])
def test_a_name_in_a_message_can_be_recognised(path, shown):
    assert printable(path) == shown
    assert len(printable("x" * 10**6)) == 201


@pytest.mark.parametrize(
    ("paths", "pairs"),
    [
        ([], []),
        (["a", "b"], []),
        (["a", "A", "b"], [("a", "A")]),
        (["ß", "SS", "ss"], [("ß", "SS"), ("ß", "ss")]),
        (["e\u0301/x", "é/X"], [("e\u0301/x", "é/X")]),
        (["\udcff", "a", "\udcfe"], []),
    ],
)
def test_names_that_some_file_systems_hold_to_be_one_are_found(paths, pairs):
    assert clashes(paths) == pairs


@pytest.mark.skipif(sys.platform != "linux", reason="names are bytes on Linux")
def test_a_listing_is_the_same_in_a_locale_that_is_not_utf8(tmp_path):
    for raw in (b"\xc3\xa9", b"\xff", b"a", "日本".encode()):
        (tmp_path / os.fsdecode(raw)).write_bytes(raw)
    code = (
        "import sys; from detdata.versions.walk import Rules, list_files\n"
        "from detdata.versions.files import digest_many\n"
        "found = list_files(sys.argv[1], ('.',), Rules())\n"
        "print(sys.getfilesystemencoding(), file=sys.stderr)\n"
        "print(ascii([found.paths, [d.hex for d in digest_many(sys.argv[1], found.paths, 'xxh3-128')]]))"
    )
    results = []
    for plain in ({}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}):
        results.append(
            subprocess.run(
                [sys.executable, "-c", code, str(tmp_path)],
                env={**os.environ, "PYTHONPATH": str(ROOT), **plain},
                capture_output=True,
                text=True,
                check=True,
            )
        )
    assert results[0].stderr != results[1].stderr  # the encodings do differ
    assert results[0].stdout == results[1].stdout
