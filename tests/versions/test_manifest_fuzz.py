"""Manifests made to hurt: only the documented error comes out, nothing leaves the root, the cost is that of the size.

There are no clocks here. A text of a megabyte is read at once where the cost is linear; where it were the square of the
size, these tests would not end.
"""

import gzip
import json
import posixpath
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detdata.errors import ArgumentValueError, UnknownFormat
from detdata.versions.errors import DatasetError
from detdata.versions.ignore import Rules, filter_for
from detdata.versions.manifest import Manifest
from detdata.versions.patterns import parse_glob
from tests.versions.entries import ENTRIES, build, some

TEXT = some(3).to_text()
START = '{"format": "detdata.manifest/1", '
MANY = 300_000
NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70),
    st.sampled_from(["1e400", "-0", "0.5", "1E3", "NaN", "-Infinity", "9" * 5000, "0x1", "01", "1_0", "+1", "true"]),
).map(str)
STRINGS = st.one_of(
    st.text(max_size=12).map(json.dumps),
    st.sampled_from([
        '"../a"', '"/etc/passwd"', '"a/../../b"', '"C:\\\\x"', '"a\\u0000b"', '"\\ud800"', '"\\udc80"', '"."', '"a//b"',
        '"\\udcc3\\udca9"', '"\\ud83d\\ude00"', '"\\udbff"', '"~/x"', '"a/"', '""', '"link"', '"file"',
    ]),
)  # fmt: skip
VALUES = st.recursive(
    st.one_of(NUMBERS, STRINGS, st.just("null")),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]"),
        st.lists(st.tuples(STRINGS, inner), max_size=3).map(
            lambda items: "{" + ", ".join(f"{key}: {value}" for key, value in items) + "}"
        ),
    ),
    max_leaves=6,
)
TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|-?[0-9]+|null|[\[\]{},:]')


def check(text):
    """Read a text as anyone's manifest: it is one, and harmless, or the error is the one in the documentation."""
    manifest, message = None, ""
    try:
        manifest = Manifest.from_text(text)
    except UnknownFormat as error:
        message = str(error)
    if manifest is None:
        assert len(message) < 3000
        assert message.isprintable()
        return None
    for path in (*manifest.paths, *manifest.select):
        assert posixpath.normpath(path) == path
        assert not path.startswith(("/", "../"))
        assert path != ".."
    assert Manifest.from_text(manifest.to_text()) == manifest
    return manifest


@given(ENTRIES, st.data())
def test_a_text_in_which_some_words_are_others(entries, data):
    text = build(entries).to_text()
    for _ in range(data.draw(st.integers(1, 4))):
        places = list(TOKEN.finditer(text))
        place = data.draw(st.sampled_from(places))
        text = text[: place.start()] + data.draw(st.one_of(VALUES, st.sampled_from(list('[]{},:" \n'))))
        text += place.string[place.end() :]
    check(text)


@given(st.lists(st.tuples(st.sampled_from(sorted(json.loads(TEXT))), VALUES), max_size=14))
def test_a_text_of_any_keys_and_values_twice_too(pairs):
    check(START + ", ".join(f'"{key}": {value}' for key, value in pairs) + "}")


@given(st.lists(st.lists(VALUES, min_size=2, max_size=5), max_size=5), st.booleans())
def test_a_text_of_any_entries(entries, laid_out):
    between = "],\n[" if laid_out else "], ["
    body = "[" + between.join(", ".join(entry) for entry in entries) + "]" if entries else ""
    check(TEXT[: TEXT.index("[\n[") + 2] + body + TEXT[TEXT.index('\n],\n"rows"') :])


@given(st.binary(max_size=60), st.booleans(), st.booleans())
def test_a_file_of_any_bytes(tmp_path_factory, data, packed, begun):
    file = tmp_path_factory.mktemp("fuzz") / "x.lock.json"
    content = (START.encode() if begun else b"") + data
    file.write_bytes(gzip.compress(content) if packed else content)
    with pytest.raises((UnknownFormat, DatasetError)):
        Manifest.load(file)


LARGE = {
    "arrays": START + '"x": ' + "[" * MANY,
    "objects": START + '"x": ' + '{"a":' * MANY,
    "arrays among the entries": TEXT.replace("[\n[", "[\n" + "[" * MANY),
    "arrays closed again": TEXT.replace("[\n[", "[\n" + "[" * MANY + "]" * MANY + ",\n["),
    "rows in rows": TEXT.replace('"rows": null', '"rows": ' + '{"a":' * MANY + "1" + "}" * MANY),
    "digits": TEXT.replace(", 1, ", f", {'9' * MANY}, "),
    "digits of a fraction": TEXT.replace(", 1, ", f", 0.{'9' * MANY}, "),
    "digits of an exponent": TEXT.replace(", 1, ", f", 1e{'9' * MANY}, "),
    "digits of a piece size": TEXT.replace('"piece_size": 0', f'"piece_size": {"9" * MANY}'),
    "spaces before": " " * MANY + TEXT,
    "spaces within": START + " " * MANY + "}",
    "one key over and over": START + ", ".join(['"digest": 1'] * MANY) + "}",
    "keys": START + ", ".join(f'"{i}": 1' for i in range(MANY)) + "}",
    "surrogates": TEXT.replace("folder/00001", "\\ud800" * MANY),
    "bytes": TEXT.replace("folder/00001", "\\udc80" * MANY),
    "letters as bytes": TEXT.replace("folder/00001", "\\udcc3\\udca9" * MANY),
    "folders": TEXT.replace("folder/00001", "a/" * MANY),
    "ways up": TEXT.replace("folder/00001", "../" * MANY),
    "zeros": TEXT.replace("folder/00001", "\\u0000" * MANY),
    "ends of entries": TEXT.replace("[\n[", "[\n" + '["a", 1, "b"],\n[' * MANY),
    "starts of rows": TEXT.replace('"rows": null', '"rows": ' + '\n],\n"rows": ' * MANY),
    "starts of entries": TEXT.replace('"entries": [\n', '"entries": [\n' * MANY),
    "quotes": START + '"' * MANY,
    "backslashes": START + '"' + "\\" * MANY,
    "a digest": TEXT.replace("0" * 31 + "1", "0" * MANY),
    "an algorithm": TEXT.replace('"xxh3-128",', f'"{"x" * MANY}",'),
    "kinds of links": TEXT.replace('"symlinks": "follow"', f'"symlinks": "{"f" * MANY}"'),
    "numbers of parts": TEXT.replace('"part": null', f'"part": [1, {"9" * 4000}, "{"a" * MANY}"]'),
}


@pytest.mark.parametrize("name", LARGE)
def test_a_large_text_made_to_hurt_is_refused(name):
    assert LARGE[name] != TEXT
    assert check(LARGE[name]) is None


SOME = 16_000
HARD_PATTERNS = {
    "stars": "*a" * (SOME // 2) + "b",
    "folders": "**/a/" * (SOME // 5) + "b",
    "folders by name": "a/*/" * (SOME // 4) + "b",
    "classes that do not end": "[" + "[:" * (SOME // 2) + "]",
    "brackets": "[" * SOME,
    "brackets closed": "[]]" * (SOME // 3),
    "ranges": "[" + "a-z" * (SOME // 3) + "]",
    "backslashes": "\\" * SOME,
    "spaces": " " * SOME + "x",
    "spaces at the end": "x" + "\\ " * (SOME // 4) + " " * (SOME // 2),
    "questions": "?" * SOME,
}
HARD_PATHS = ["a" * 3000, "a/" * 1500 + "c", "a/b/" * 700 + "c"]


@pytest.mark.parametrize("name", HARD_PATTERNS)
def test_patterns_made_to_hurt_are_matched(name):
    pattern = HARD_PATTERNS[name]
    manifest = check(TEXT.replace('"exclude": []', f'"exclude": [{json.dumps(pattern)}]'))
    assert manifest is not None
    found, glob = filter_for(manifest.rules), parse_glob(pattern)
    for path in HARD_PATHS:
        assert found is None or found.keeps(path) in {True, False}
        assert glob is None or glob.selects(path) in {True, False}
        assert glob is None or glob.enters(path) in {True, False}


@pytest.mark.parametrize("key", ["exclude", "include", "ignore"])
def test_a_pattern_of_any_length_is_refused(key):
    assert check(TEXT.replace(f'"{key}": []', f'"{key}": ["{"*a" * MANY}"]')) is None
    with pytest.raises(ArgumentValueError, match="at most 16384 characters"):
        Rules(**{key: ("x" * 16385,)})


def test_a_choice_of_any_length_is_refused(tmp_path):
    text = TEXT.replace('"select": ["."]', f'"select": ["{"*/" * 16_000}x"]')
    with pytest.raises(ValueError, match="at most"):
        Manifest.from_text(text).verify(tmp_path)


@given(st.text(alphabet="*?[]!-^:\\/a. #{}()+|$", max_size=40), st.text(alphabet="ab/.", min_size=1, max_size=40))
def test_any_pattern_compiles_to_something(pattern, path):
    found = filter_for(Rules(exclude=(pattern,)))
    assert found is None or found.keeps(path) in {True, False}
