"""The index of a file on disk: exact round trips, and nothing but None or an error for whatever else may lie there."""

import json
import os
import random

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from detdata import CorpusError, open_corpus
from detdata.corpora.files import Identity
from detdata.corpora.formats import format_named
from detdata.corpora.index_file import Index, index_key, read_index, write_index
from detdata.corpora.protocol import Options, Outline
from detdata.records import canonical_json
from tests.corpora.rows_of_lines import numbered, write_lines

KEY = {"name": "jsonl", "options": {}}
DTYPES = ["<i8", "<i4", "<u4", "<u2", "|u1"]


def an_index(sizes=(2, 3), arrays=None, meta=None):
    outline = Outline(block_sizes=np.array(sizes, np.int64), arrays=arrays or {}, meta=meta or {})
    return Index(outline, Identity(17, "1:2:3:4"), "ab" * 16)


def sealed(body):
    return body + xxhash.xxh3_128_digest(body)


def by_hand(header, *arrays):
    """An index written by the words of the specification, without the library's writer."""
    text = header if isinstance(header, bytes) else canonical_json(header)
    body = b"detdata.index/1\n" + len(text).to_bytes(8, "little") + text
    for array in arrays:
        body += bytes(-len(body) % 64) + array.tobytes()
    return sealed(body)


def a_header(**change):
    header = {
        "arrays": [["block_sizes", "<i8", 2]],
        "file": {"digest": "ab" * 16, "size": 17, "tag": "1:2:3:4"},
        "format": KEY,
        "meta": {},
    }
    return header | change


names = st.text("abc_", min_size=1, max_size=5).filter(lambda name: name != "block_sizes")
meta = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
bytes_of = st.lists(st.integers(0, 255), max_size=70)


@settings(deadline=None, max_examples=60)
@given(
    sizes=st.lists(st.integers(0, 2**40), max_size=5),
    arrays=st.dictionaries(names, st.tuples(st.sampled_from(DTYPES), bytes_of), max_size=3),
    meta=st.dictionaries(st.text(), meta, max_size=3),
)  # fmt: skip
def test_an_index_comes_back_as_it_was(tmp_path_factory, sizes, arrays, meta):
    path = tmp_path_factory.mktemp("index") / "a"
    index = an_index(sizes, {name: np.array(values, dtype) for name, (dtype, values) in arrays.items()}, meta)
    write_index(path, index, KEY)

    found = read_index(path, KEY)

    assert (found.identity, found.digest, found.outline.meta) == (index.identity, index.digest, meta)
    assert found.outline.block_sizes.tolist() == sizes
    assert found.outline.block_sizes.dtype == np.int64
    assert {name: (array.dtype.str, array.tolist()) for name, array in found.outline.arrays.items()} == arrays


def test_an_index_is_the_bytes_of_the_specification(tmp_path):
    write_index(tmp_path / "a", an_index((2, 3), {"starts": np.array([0, 7, 17])}), KEY)
    header = a_header(arrays=[["block_sizes", "<i8", 2], ["starts", "<i8", 3]])
    assert (tmp_path / "a").read_bytes() == by_hand(header, np.array([2, 3]), np.array([0, 7, 17]))


def test_any_damage_makes_it_none(tmp_path):
    path = tmp_path / "a"
    write_index(path, an_index((2, 3), {"starts": np.array([0, 7, 17])}, {"x": [1]}), KEY)
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at])
        assert read_index(path, KEY) is None
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert read_index(path, KEY) is None
    path.write_bytes(whole + b"\0")
    assert read_index(path, KEY) is None


@pytest.mark.parametrize(
    "key", [{"name": "text", "options": {}}, {"name": "jsonl", "options": {"rows_per_block": 2}}, {}]
)
def test_an_index_of_another_format_or_other_options_is_none(tmp_path, key):
    write_index(tmp_path / "a", an_index(), KEY)
    assert read_index(tmp_path / "a", key) is None


TWO = np.array([2, 3])


def arrays(*listed):
    return {"arrays": list(listed)}


def file(**change):
    return {"file": a_header()["file"] | change}


SIZES = ["block_sizes", "<i8", 2]
WRONG = [
    {"arrays": None}, arrays(), arrays(["starts", "<i8", 2]), arrays([["block_sizes"], "<i8", 2]),
    arrays(["block_sizes", "<i4", 2]), arrays(["block_sizes", "<f8", 2]), arrays(["block_sizes", "|O", 2]),
    arrays(["block_sizes", "<i8", 200]), arrays(["block_sizes", "<i8", -2]), arrays(["block_sizes", "<i8", 2**62]),
    arrays(SIZES, SIZES), arrays(["block_sizes", "<i8", True]), arrays(["block_sizes", ["<i8"], 2]),
    arrays(SIZES, [5, "|u1", 0]), {"meta": None}, {"meta": []}, {"meta": "x"}, {"file": None}, {"file": {}},
    file(size="9" * 10_000), file(size=1.5), file(size=-1), file(tag=5), file(digest=None),
]  # fmt: skip
HEADERS = [b"[" * 100_000, b'{"a":' * 100_000, b"null", b"[]", b"{}", b"\xff", b"9" * 10_000]
SUMS = [[-1, 3], [2**62, 2**62], [2**63 - 1, 3]]
START = b"detdata.index/1\n"


@pytest.mark.parametrize(
    "content",
    [
        *(b"", START, sealed(START), sealed(START + bytes(8)), sealed(START + b"\xff" * 8)),
        *map(by_hand, HEADERS),
        *(by_hand(a_header(**change), TWO) for change in WRONG),
        *(by_hand(a_header(), np.array(sizes)) for sizes in SUMS),
    ],
)
def test_an_index_that_is_whole_and_yet_none(tmp_path, content):
    (tmp_path / "a").write_bytes(content)
    assert read_index(tmp_path / "a", KEY) is None


def test_what_is_no_file_is_none(tmp_path):
    assert read_index(tmp_path, KEY) is None
    assert read_index(tmp_path / "none", KEY) is None


@pytest.mark.parametrize("seed", range(60))
def test_a_hostile_index_gives_rows_or_an_error(tmp_path, seed):
    """One that is whole, and of this very file, and leads anywhere: no other exception, no memory for nothing."""
    rng = random.Random(seed)
    path = write_lines(tmp_path / "a.jsonl", numbered(40))
    corpus = open_corpus(path, rows_per_block=8)
    (entry,) = corpus.entries
    arrays = {name: array.copy() for name, array in entry.outline.arrays.items()}
    sizes = entry.outline.block_sizes.copy()
    name = rng.choice([None, *arrays])
    target = sizes if name is None else arrays[name]
    kind = rng.choice(["value", "drop", "cut", "more", "type"])
    if kind == "value":
        target[rng.randrange(len(target))] = rng.choice([-1, 0, 1, 5, 2**31, 2**40, 2**62, 2**63 - 1, -(2**63)])
    elif name is None:
        sizes = {"drop": sizes[:0], "cut": sizes[:-1], "more": np.append(sizes, 3), "type": sizes[::-1]}[kind]
    elif kind == "drop":
        del arrays[name]
    else:
        arrays[name] = {"cut": target[:-1], "more": np.append(target, 7), "type": target.astype(np.uint8)}[kind]
    key = index_key(format_named("jsonl"), Options(rows_per_block=8))
    beside = path.with_name(path.name + ".detdata-index")
    write_index(beside, Index(Outline(block_sizes=sizes, arrays=arrays), entry.identity, ""), key)

    try:
        corpus = open_corpus(path, rows_per_block=8)
        rows = list(corpus) if len(corpus) < 1000 else [corpus[0], corpus[len(corpus) - 1]]
    except CorpusError as error:
        assert str(path) in str(error)  # noqa: PT017
    else:
        assert all(json.dumps(row) for row in rows)


def test_a_huge_file_in_the_place_of_an_index_is_not_read(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(START)
    os.truncate(path, 2**40)  # full of holes
    assert read_index(path, KEY) is None
