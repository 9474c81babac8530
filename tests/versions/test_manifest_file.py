"""The file of a manifest: one text for one manifest, and whatever else lies there is refused, never half believed."""

import gzip
import json
import os
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detdata.errors import UnknownFormat
from detdata.versions import manifest_io
from detdata.versions.errors import DatasetError
from detdata.versions.ignore import Rules
from detdata.versions.manifest import Manifest
from detdata.versions.manifest_file import FORMAT
from tests.sources import run_python
from tests.versions.entries import ENTRIES, build, some

JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.just("link")),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=8,
)
TEXT = some(3).to_text()


def edited(**changes):
    """The text of a manifest with some values of its record replaced."""
    return json.dumps({**json.loads(TEXT), **changes})


def with_entry(*entry, at=0):
    entries = json.loads(TEXT)["entries"]
    entries[at] = list(entry)
    return edited(entries=entries)


@given(ENTRIES)
def test_what_is_written_is_read(entries):
    manifest = build(entries, rules=Rules(ignore=("a\\ b", "é\udcff"), symlinks="record"), select=("*.é", "b"))

    again = Manifest.from_text(manifest.to_text())

    assert again == manifest
    assert {file.path: (file.size, file.digest, file.kind) for file in again.files} == entries
    assert (again.rules, again.select, again.part, again.digest) == (
        manifest.rules,
        manifest.select,
        None,
        manifest.digest,
    )
    assert again.to_text() == manifest.to_text()


@given(ENTRIES)
def test_each_file_has_one_line_of_json_and_utf8(entries):
    text = build(entries).to_text()
    first = 1 + text.split("\n").index('"entries": [')

    lines = text.encode("utf-8").split(b"\n")[first : first + len(entries)]

    assert sorted(entries) == sorted(json.loads(line.rstrip(b","))[0] for line in lines)
    assert text.endswith('],\n"rows": null\n}\n')


@given(ENTRIES)
def test_any_layout_of_the_same_json_is_read_as_the_same(entries):
    manifest = build(entries)
    record = json.loads(manifest.to_text())

    for text in (json.dumps(record), json.dumps(record, indent=2), manifest.to_text().replace("\n", "\r\n")):
        assert Manifest.from_text(text) == manifest


def test_the_text_is_the_same_to_the_byte_in_every_process():
    code = "from tests.versions.entries import some; import sys; sys.stdout.write(some(50).to_text())"

    assert [some(50).to_text()] * 2 == [run_python(code).stdout for _ in range(2)]


@pytest.mark.parametrize("name", ["data.lock.json", "data.lock.json.gz", "é \udcff.gz"])
def test_a_saved_file_is_loaded(tmp_path, name):
    manifest = some(1000, part=(2, 3, "0" * 32))

    manifest.save(tmp_path / name)
    again = Manifest.load(tmp_path / name)

    assert again == manifest
    assert (again.path, again.part) == (tmp_path / name, manifest.part)
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_gzip_holds_the_same_text_and_nothing_of_the_time_or_the_name(tmp_path):
    for name in ("a.gz", "other.lock.json.gz"):
        some(1000).save(tmp_path / name)

    data = (tmp_path / "a.gz").read_bytes()

    assert gzip.decompress(data).decode() == some(1000).to_text()
    assert data == (tmp_path / "other.lock.json.gz").read_bytes()
    assert data[:10] == bytes([31, 139, 8, 0, 0, 0, 0, 0, 0, 255])
    assert len(data) < len(some(1000).to_text()) / 2


def test_gzip_by_any_other_tool_and_under_any_name_is_read(tmp_path):
    for level in (0, 1, 9):
        (tmp_path / "renamed.json").write_bytes(gzip.compress(some(3000).to_text().encode(), level))
        assert Manifest.load(tmp_path / "renamed.json") == some(3000)


# --- made by another release ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", ["2", "10", "0", "1.5", "", "99999999999999999999"])
def test_a_manifest_of_another_version_is_named_and_never_called_changed_data(tmp_path, number):
    (tmp_path / "x.lock.json").write_text(f'{{"format": "detdata.manifest/{number}", "lines": []}}', encoding="utf-8")

    with pytest.raises(UnknownFormat, match=r"x\.lock\.json: made by detdata\.manifest/.*update detdata") as caught:
        Manifest.load(tmp_path / "x.lock.json")

    assert f"detdata.manifest/{number};" in str(caught.value)
    assert "nothing about whether the data changed" in str(caught.value)


@pytest.mark.parametrize(("key", "value"), [("algorithm", "xxh4-256"), ("algorithm", "md5"), ("content", "tokens")])
def test_a_manifest_made_by_another_scheme_is_named_and_never_called_changed_data(key, value):
    with pytest.raises(UnknownFormat, match=f"made with {key} '{value}'; .*nothing about whether the data changed"):
        Manifest.from_text(edited(**{key: value}))


def test_rows_of_another_format_are_named():
    with pytest.raises(UnknownFormat, match=r"detdata\.rows/2"):
        Manifest.from_text(edited(content="rows", rows={"format": "detdata.rows/2"}))


@pytest.mark.parametrize(
    "text",
    ["", " ", "{", "[]", "null", '{"format": 1}', '{"format": "detdata.checkpoint/1"}', '{"outs": []}', "PAR1\x15\x04",
     "a,b\n1,2\n", f'{{"x": 1, "format": "{FORMAT}"}}', f'{{"format": "{"x" * 5000}"}}', " " * 5000 + TEXT],
)  # fmt: skip
def test_another_kind_of_file_is_no_manifest(text):
    with pytest.raises(UnknownFormat, match="no manifest of a dataset"):
        Manifest.from_text(text)


# --- edited and torn --------------------------------------------------------------------------------------------------


@given(st.data())
def test_bytes_edited_at_random_are_refused_or_say_the_same(tmp_path_factory, data):
    file = tmp_path_factory.mktemp("fuzz") / "x.lock.json"
    manifest = some(4)
    content = bytearray(manifest.to_text().encode())
    if data.draw(st.booleans()):
        content = bytearray(manifest_io.compress(bytes(content)))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content) - 1))
        match data.draw(st.sampled_from(["set", "insert", "delete", "double"])):
            case "set":
                content[at] = data.draw(st.integers(0, 255))
            case "insert":
                content.insert(at, data.draw(st.integers(0, 255)))
            case "delete":
                del content[at : at + data.draw(st.integers(1, 40))]
            case "double":
                content[at:at] = content[at : at + data.draw(st.integers(1, 80))]
        content = content or bytearray(b" ")
    file.write_bytes(content)

    try:
        loaded = Manifest.load(file)
    except (UnknownFormat, DatasetError):
        return
    assert loaded == manifest


def test_every_single_changed_character_of_the_entries_is_found():
    start, end = TEXT.index('"digest"'), TEXT.index('"rows"')
    for at in range(start, end):
        for other in ("0", '"', "x", "\\"):
            text = TEXT[:at] + other + TEXT[at + 1 :]
            try:
                assert Manifest.from_text(text) == some(3)
            except UnknownFormat:
                continue


def test_a_text_cut_anywhere_is_refused(tmp_path):
    file = tmp_path / "x.json.gz"
    packed = manifest_io.compress(TEXT.encode())
    for cut in range(len(TEXT) - 2):
        with pytest.raises(UnknownFormat):
            Manifest.from_text(TEXT[:cut])
    for cut in range(len(packed)):
        file.write_bytes(packed[:cut])
        with pytest.raises(UnknownFormat):
            Manifest.load(file)
    assert Manifest.from_text(TEXT[:-1]) == some(3)


@given(st.sampled_from(sorted(json.loads(TEXT))), JSON)
def test_any_value_in_the_place_of_another_is_refused_or_says_the_same(key, value):
    try:
        loaded = Manifest.from_text(json.dumps({**json.loads(TEXT), key: value}))
    except UnknownFormat:
        return
    assert loaded == some(3)


@given(st.lists(st.one_of(JSON, st.lists(JSON, min_size=3, max_size=4)), max_size=4))
def test_any_entries_are_refused_or_say_the_same(entries):
    body = ",\n".join(json.dumps(entry) for entry in entries)
    laid_out = TEXT[: TEXT.index("[\n[") + 2] + body + TEXT[TEXT.index('\n],\n"rows"') :]
    for text in (edited(entries=entries), laid_out):
        try:
            loaded = Manifest.from_text(text)
        except UnknownFormat:
            continue
        assert loaded == some(3)


def test_what_is_no_json_is_refused_though_the_quick_way_could_make_sense_of_it():
    manifest = build({"a, null, b": (1, "1" * 32, "file"), "c": (2, "2" * 32, "file")})
    text = manifest.to_text()
    assert Manifest.from_text(text) == manifest
    ones, twos = "1" * 32, "2" * 32
    proper = f'["a, null, b", 1, "{ones}"],\n["c", 2, "{twos}"]'
    assert proper in text
    for odd in (
        f'["a],\n[b", 1, "{ones}", null, "c", 2, "{twos}"]',
        f'["a],\n[b", 1, "{ones}",null , "c", 2, "{twos}"]',
    ):
        with pytest.raises(UnknownFormat, match="no JSON"):
            Manifest.from_text(text.replace(proper, odd))


@given(st.data())
def test_brackets_moved_between_entries_are_never_read_as_if_they_were_in_place(data):
    tokens = [
        '"a", 1, "' + "1" * 32 + '"',
        "null",
        "],\n[",
        ", null, ",
        '"b", 2, "' + "2" * 32 + '"',
        ", ",
        "[",
        "]",
        "2",
    ]
    body = "".join(data.draw(st.lists(st.sampled_from(tokens), max_size=7)))
    manifest = build({"a": (1, "1" * 32, "file"), "b": (2, "2" * 32, "file")})
    text = manifest.to_text()
    start, end = text.index("[\n[") + 3, text.index(']\n],\n"rows"')

    try:
        loaded = Manifest.from_text(text[:start] + body + text[end:])
    except UnknownFormat:
        return

    record = json.loads(text[:start] + body + text[end:])
    assert [list(row) for row in zip(loaded.paths, loaded.sizes, loaded.hexes, strict=True)] == record["entries"]
    assert loaded == manifest


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (edited(files=4), "says files 4, and its entries make 3"),
        (edited(bytes=0), "says bytes 0, and its entries make 3"),
        (edited(digest="xxh3-128:" + "0" * 32), "says digest xxh3-128:000"),
        (edited(digest="sha256:" + "0" * 64), "says digest"),
        (edited(piece_size=1), "says digest"),
        (with_entry("folder/00000.bin", 0, "1" * 32), "says digest"),
        (with_entry("folder/00000.bin", 2, "0" * 32), "says bytes"),
        (with_entry("folder/00000.bin", 0, "0" * 32, "link"), "says digest"),
        (with_entry("folder/00000.bin", 0, "0" * 32, "file"), "entry 0 must be"),
        (with_entry("folder/00000.bin", 0), "entry 0 must be"),
        (with_entry("folder/00000.bin", 0, "0" * 32, "link", 1), "entry 0 must be"),
        (with_entry("../etc/passwd", 0, "0" * 32), "'..'"),
        (with_entry("/etc/passwd", 0, "0" * 32), "absolute"),
        (with_entry("a\0b", 0, "0" * 32), "NUL"),
        (with_entry("folder/00001.bin", 0, "0" * 32), "listed twice"),
        (with_entry("z", 0, "0" * 32), "out of order"),
        (with_entry("a", 2**63, "0" * 32), "size"),
        (with_entry("a", 10**400, "0" * 32), "size"),
        (with_entry("a", -1, "0" * 32), "size"),
        (with_entry("a", 0.0, "0" * 32), "size"),
        (with_entry("a", True, "0" * 32), "size"),
        (with_entry("a", float("nan"), "0" * 32), "size"),
        (with_entry(["a"], 0, "0" * 32), "text"),
        (with_entry("a", 0, None), "digest"),
        (edited(entries={}), "array"),
        (edited(select=["../.."]), "'..'"),
        (edited(select=["/"]), "absolute"),
        (edited(select=[]), "empty"),
        (edited(select="."), "array of texts"),
        (edited(select=[1]), "array of texts"),
        (edited(rules={}), "rules must have"),
        (edited(rules={"exclude": [], "ignore": [], "include": [], "symlinks": "maybe"}), "symlinks"),
        (edited(rules={"exclude": [], "ignore": [], "include": [], "symlinks": ["follow"]}), "symlinks"),
        (edited(rules={"exclude": [], "ignore": ["a\nb"], "include": [], "symlinks": "follow"}), "one line"),
        (edited(part=[1, 2]), "part"),
        (edited(part=[3, 2, "0" * 32]), "part"),
        (edited(part=[1.0, 2, "0" * 32]), "part"),
        (edited(rows={}), "rows"),
        (edited(rows=[]), "rows"),
        (edited(content="rows"), "rows"),
        (edited(extra=1), "has the keys"),
        (TEXT.replace('"files": 3', '"files": 1, "files": 3'), "twice"),
        (TEXT.replace('"rows": null', '"entries": [], "rows": null'), "twice"),
        (TEXT.replace('"symlinks": "follow"', '"symlinks": "refuse", "symlinks": "follow"'), "twice"),
        (TEXT + TEXT, "no JSON"),
        (TEXT.replace('"bytes": 3', '"bytes": ' + "9" * 5000), "no JSON"),
        (TEXT.replace('"rules": ', '"rules": ' + "[" * 200_000), "deep"),
        (TEXT.replace('"entries": [\n[', '"entries": [\n[' + "[" * 200_000), "deep"),
    ],
    ids=lambda value: value if len(value) < 50 else "",
)  # fmt: skip
def test_what_is_not_sound_is_refused_and_named(text, match):
    with pytest.raises(UnknownFormat, match=match) as caught:
        Manifest.from_text(text)

    assert len(str(caught.value)) < 1000


# --- within bounds ----------------------------------------------------------------------------------------------------


def peak_of_refusing(file, match):
    tracemalloc.start()
    try:
        with pytest.raises(UnknownFormat, match=match):
            Manifest.load(file)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("start", ["", TEXT[:-3] + " " * 4096])
def test_a_bomb_of_gzip_is_refused_long_before_it_is_unpacked(tmp_path, start):
    bomb = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    piece = b" " * (1 << 20)
    data = bomb.compress(start.encode()) + b"".join(bomb.compress(piece) for _ in range(512)) + bomb.flush()
    (tmp_path / "x.json.gz").write_bytes(data)

    assert len(data) < 1 << 20
    assert peak_of_refusing(tmp_path / "x.json.gz", "no manifest") < 200 << 20


def test_a_huge_file_that_is_no_manifest_is_refused_by_its_beginning(tmp_path):
    file = tmp_path / "x.lock.json"
    for start in (b"PAR1", b'{"text": "hello"}\n' * 1000, TEXT.encode() + b" " * 4096):
        file.write_bytes(start)
        os.truncate(file, 9 << 30)  # a hole: takes no room on the disk
        assert peak_of_refusing(file, "no manifest") < 2 << 20


def test_more_text_than_the_limit_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(manifest_io, "MAX_TEXT", 100_000)
    for name in ("x.lock.json", "x.lock.json.gz"):
        some(10_000).save(tmp_path / name)
        with pytest.raises(UnknownFormat, match="100000"):
            Manifest.load(tmp_path / name)


def test_what_follows_the_end_of_gzip_data_is_refused(tmp_path):
    packed = manifest_io.compress(TEXT.encode())
    for more in (packed, b"x", b"\0", b" " * (1 << 17)):
        (tmp_path / "x.gz").write_bytes(packed + more)
        with pytest.raises(UnknownFormat, match="follows the end"):
            Manifest.load(tmp_path / "x.gz")


@pytest.mark.parametrize(
    "data", [b"\xff\xfe{\0", b"\xef\xbb\xbf" + TEXT.encode(), TEXT.encode() + b"\xff", b"\x1f\x8b", b""]
)
def test_text_that_is_not_utf8_without_a_mark_is_refused(tmp_path, data):
    (tmp_path / "x.json").write_bytes(data)

    with pytest.raises(UnknownFormat, match=r"x\.json"):
        Manifest.load(tmp_path / "x.json")


def test_what_is_no_file_is_an_error_of_the_system(tmp_path):
    for path in (tmp_path, tmp_path / "missing", tmp_path / "x" / "y"):
        with pytest.raises(DatasetError, match=path.name):
            Manifest.load(path)
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(DatasetError, match="no regular file"):
            Manifest.load(tmp_path / "pipe")
