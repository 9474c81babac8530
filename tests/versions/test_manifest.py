"""A manifest is its files and one digest of them: nothing else enters it, and nothing unsound is one."""

import pickle
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detdata.errors import UnknownFormat
from detdata.rows import RowsVersion
from detdata.versions.ignore import Rules
from detdata.versions.manifest import FileEntry, Manifest
from tests.versions.entries import ENTRIES, build, digest_by_the_page, key, some

ONE = "1" * 32


@given(ENTRIES, st.sampled_from([0, 1, 4 << 20, 2**63 - 1]))
def test_the_digest_is_the_one_that_the_page_defines(entries, piece_size):
    manifest = build(entries, piece_size=piece_size)

    assert manifest.digest == digest_by_the_page(entries, piece_size=piece_size)


@pytest.mark.parametrize("count", [0, 1, 2, 2**16 - 1, 2**16, 2**16 + 1])
def test_the_digest_is_the_same_where_entries_are_put_together_in_several_goes(count):
    entries = {f"{i}": (i, f"{i:032x}", "link" if i % 3 == 0 else "file") for i in range(count)}

    assert build(entries).digest == digest_by_the_page(entries)


def test_the_digest_of_strong_algorithms_is_made_by_them():
    entries = {"a": (1, "2" * 64, "file"), "b": (2, "3" * 64, "link")}

    assert build(entries, algorithm="sha256").digest == digest_by_the_page(entries, "sha256")


@given(ENTRIES, st.randoms(use_true_random=False))
def test_the_order_in_which_entries_are_given_does_not_count(entries, random):
    shuffled = list(entries)
    random.shuffle(shuffled)

    manifest, other = build(entries), build({path: entries[path] for path in shuffled})

    assert manifest == other
    assert hash(manifest) == hash(other)
    assert manifest.to_text() == other.to_text()
    assert list(manifest.paths) == sorted(entries, key=key)


@given(ENTRIES.filter(bool), st.data())
def test_each_field_of_an_entry_counts(entries, data):
    path = data.draw(st.sampled_from(sorted(entries, key=key)))
    size, hex, kind = entries[path]
    others = [
        {**entries, path: (size ^ 1, hex, kind)},
        {**entries, path: (size, f"{int(hex, 16) ^ 1:032x}", kind)},
        {**entries, path: (size, hex, "link" if kind == "file" else "file")},
        {(name + "x" if name == path else name): row for name, row in entries.items()},
        {name: row for name, row in entries.items() if name != path},
    ]

    digests = {build(other).digest for other in others if len(other) >= len(entries) - 1}

    assert build(entries).digest not in digests


def test_where_data_lies_and_what_was_asked_for_does_not_count():
    plain = some()

    for other in (
        some(rules=Rules(exclude=("*.tmp",), symlinks="record")),
        some(select=("folder", "*.bin")),
        some(part=(1, 2, "0" * 32)),
    ):
        assert plain.digest == other.digest
        assert plain == other
    assert plain.digest != some(piece_size=1).digest


def test_entries_are_objects_when_they_are_asked_for():
    manifest = build({"b": (3, ONE, "link"), "a": (5, ONE, "file")})

    assert manifest.files == (FileEntry("a", 5, ONE, "file"), FileEntry("b", 3, ONE, "link"))
    assert (len(manifest), manifest.bytes, manifest.path) == (2, 8, None)


def test_manifests_travel_to_other_processes():
    manifest = some(3, part=(2, 3, "0" * 32), rules=Rules(include=("*.bin",)))

    copy = pickle.loads(pickle.dumps(manifest))

    assert copy == manifest
    assert (copy.part, copy.rules, copy.digest) == (manifest.part, manifest.rules, manifest.digest)
    assert manifest != "a manifest"
    assert repr(manifest) == f"<Manifest of 3 files, 3 bytes, {manifest.digest}>"


@pytest.mark.parametrize(
    "path",
    [
        "", "/", "/a", "a/", "a//b", ".", "..", "./a", "a/.", "a/..", "../a", "a/../b", "a\0b", "\0", "a/\0/b", "a/./b",
        "\ud800", "a\udbff", "c\udc7f", "b\udd00", "\udcc3\udca9", "a" * (2**16 + 1), 5, None, b"a", ["a"],
    ],
    ids=lambda path: repr(path)[:12],
)  # fmt: skip
def test_a_path_that_could_leave_its_root_or_is_no_path_is_refused(path):
    for paths in ([path], ["0", path], [path, "zz"]):
        with pytest.raises(UnknownFormat):
            Manifest.build(paths, [1] * len(paths), [ONE] * len(paths))


@pytest.mark.skipif(sys.platform == "win32", reason="there they are no names")
def test_a_path_that_only_looks_odd_is_a_path():
    for path in ("...", ".a", "a/.b", "..a/b..", "a/...", "\\", "C:", "a\\..\\b", " ", "\udcff", "é", "a" * 2**16):
        assert some().digest != Manifest.build([path], [1], [ONE]).digest


@pytest.mark.parametrize("size", [-1, 2**63, 2**64, 10**40, 1.0, True, None, "1", float("nan")])
def test_a_size_that_is_none_is_refused(size):
    with pytest.raises(UnknownFormat, match=r"size.*for 'a'"):
        Manifest.build(["a", "b"], [size, 1], [ONE, ONE])


@pytest.mark.parametrize(
    "hex",
    ["", "1" * 31, "1" * 33, "1" * 64, "A" * 32, "g" * 32, " " + "1" * 31, "1" * 30 + "\n1", "１" * 32, None, 1, b""],
)
def test_a_digest_that_is_none_is_refused(hex):
    for hexes in ([ONE, hex], [hex, ONE]):
        with pytest.raises(UnknownFormat, match="digest"):
            Manifest.build(["a", "b"], [1, 1], hexes)


def test_digests_that_are_only_together_of_the_right_length_are_refused():
    with pytest.raises(UnknownFormat, match="digest"):
        Manifest.build(["a", "b"], [1, 1], ["1" * 30, "1" * 34])


@pytest.mark.parametrize("kind", ["", "File", "dir", None, 0, ["file"]])
def test_a_kind_that_is_none_is_refused(kind):
    with pytest.raises(UnknownFormat, match="kind"):
        Manifest.build(["a", "b"], [1, 1], [ONE, ONE], ["file", kind])


def test_columns_must_be_of_one_length_sorted_and_without_doubles():
    with pytest.raises(UnknownFormat, match="2 paths, 1 sizes"):
        Manifest.build(["a", "b"], [1], [ONE, ONE])
    with pytest.raises(UnknownFormat, match="'a' is listed twice"):
        Manifest.build(["a", "b", "a"], [1, 1, 1], [ONE] * 3)
    with pytest.raises(UnknownFormat, match="'a' is out of order"):
        Manifest(("b", "a"), (1, 1), (ONE, ONE), ("file", "file"))


@pytest.mark.parametrize(
    ("ways", "match"),
    [
        ({"algorithm": "md5"}, "made with algorithm 'md5'"),
        ({"algorithm": None}, "algorithm"),
        ({"content": "pixels"}, "made with content 'pixels'"),
        ({"content": "rows"}, "rows"),
        ({"piece_size": -1}, "piece_size"),
        ({"piece_size": True}, "piece_size"),
        ({"piece_size": 2**63}, "piece_size"),
        ({"select": ()}, "select is empty"),
        ({"select": ("../x",)}, "part"),
        ({"select": ("/etc",)}, "absolute"),
        ({"part": (0, 2, "0" * 32)}, "part must be"),
        ({"part": (3, 2, "0" * 32)}, "part must be"),
        ({"part": (1, 2, "nothing")}, "part must be"),
        ({"part": (1, 2)}, "part must be"),
        ({"part": (True, 2, "0" * 32)}, "part must be"),
    ],
)
def test_ways_that_this_release_does_not_have_are_refused(ways, match):
    with pytest.raises(UnknownFormat, match=match):
        some(**ways)


def rows_version(digest="0" * 32, **changes):
    fields = {"algorithm": "xxh3-128", "schema": (("x", "int8"),), "rows": 5, "digest": digest, "unordered": ""}
    return RowsVersion(**{**fields, "blocks": (("0" * 16,),), "files": (("a.parquet", 2), ("b.parquet", 3)), **changes})


def of_rows(version, **ways):
    return Manifest.build([name for name, _ in version.files], [rows for _, rows in version.files], ["", ""],
                          content="rows", rows=version, **ways)  # fmt: skip


def test_the_version_of_rows_is_the_rows_own():
    manifest = of_rows(rows_version("f" * 32))

    assert manifest.digest == "xxh3-128:" + "f" * 32
    assert repr(manifest).startswith("<Manifest of 2 files, 5 rows")
    again = Manifest.from_text(manifest.to_text())
    assert again == manifest
    assert again.rows == manifest.rows


@pytest.mark.parametrize(
    "make",
    [
        lambda: of_rows(rows_version(algorithm="sha256")),
        lambda: of_rows(rows_version(), piece_size=1),
        lambda: Manifest.build(["a.parquet"], [5], [""], content="rows", rows=rows_version()),
        lambda: Manifest.build(["a.parquet", "b.parquet"], [3, 2], ["", ""], content="rows", rows=rows_version()),
        lambda: Manifest.build(["a.parquet", "b.parquet"], [2, 3], [ONE, ONE], content="rows", rows=rows_version()),
        lambda: Manifest.build(["a.parquet", "b.parquet"], [2, 3], [ONE, ONE], rows=rows_version()),
        lambda: of_rows(rows_version(files=(("a.parquet", 2), ("a.parquet", 3)))),
    ],
)
def test_rows_and_files_that_contradict_each_other_are_refused(make):
    with pytest.raises(UnknownFormat):
        make()
