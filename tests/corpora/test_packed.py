"""Packed lines: the rows of the plain file, whatever it was packed by; blocks, warnings and errors."""

import gzip
import json
import random
import warnings
import zlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from detdata import BlockShuffle, open_corpus
from detdata.corpora import CorpusError, CorpusWarning
from detdata.corpora.protocol import Outline
from tests.corpora.zst_writer import frame, skippable

CODEC = pa.Codec("zstd")


def one_frame(text):
    return bytes(CODEC.compress(text))


def pieces(text, size):
    return [text[at : at + size] for at in range(0, len(text), size)] or [b""]


PACKINGS = {
    "one member": ("gz", gzip.compress),
    "stored": ("gz", lambda text: gzip.compress(text, 0)),
    "members": ("gz", lambda text: b"".join(map(gzip.compress, pieces(text, 3001)))),
    "empty members": (
        "gz",
        lambda text: gzip.compress(b"").join(map(gzip.compress, [b"", *pieces(text, 50_000), b""])),
    ),
    "padded": ("gz", lambda text: gzip.compress(text) + b"\0" * 600),
    "one frame": ("zst", one_frame),
    "frames": ("zst", lambda text: b"".join(map(one_frame, pieces(text, 70_001)))),
    "small frames": ("zst", lambda text: b"".join(map(one_frame, pieces(text, 501)))),
    "checked frames": ("zst", lambda text: b"".join(frame(part, checksum=True) for part in pieces(text, 9999))),
    "skipped": ("zst", lambda text: skippable(b"head") + one_frame(text) + skippable(b"seek table")),
}
PACKING = pytest.mark.parametrize(("ending", "pack"), PACKINGS.values(), ids=PACKINGS)


def rows_of(count, seed=0):
    rng = random.Random(seed)
    return [{"id": number, "text": rng.randbytes(rng.randrange(90)).hex()} for number in range(count)]


def lines(rows):
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def opened(folder, ending, packed, kind="jsonl", **how):
    path = folder / f"a.{kind}.{ending}"
    path.write_bytes(packed)
    return open_corpus(path, index="no", **how)


@PACKING
def test_rows_are_those_of_the_plain_file(tmp_path, ending, pack):
    rows = rows_of(6000)
    text = lines(rows)
    for how in (
        {},
        {"spacing": 4096},
        {"spacing": 50_000},
        {"rows_per_block": 7},
        {"cache_bytes": 0, "spacing": 10_000},
    ):
        corpus = opened(tmp_path, ending, pack(text), **how)
        ids = np.random.default_rng(0).integers(0, len(rows), 30).tolist()

        assert corpus.take(ids) == [rows[row] for row in ids]
        assert list(corpus.read(0)) == rows
        assert list(corpus.read(5990)) == rows[5990:]
        assert int(corpus.block_sizes.sum()) == len(rows)


TEXTS = st.lists(
    st.sampled_from([b'{"x": 1}', b'{"y": "\xc3\xa4"}', b"", b" \t", b'{"z": "' + b"long " * 3000 + b'"}']), max_size=30
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    TEXTS,
    st.sampled_from(sorted(PACKINGS)),
    st.sampled_from([b"\n", b"\r\n"]),
    st.sampled_from([b"", b"\xef\xbb\xbf"]),
    st.booleans(),
    st.sampled_from([{}, {"rows_per_block": 2}, {"spacing": 4096}]),
    st.sampled_from(["jsonl", "txt"]),
)
def test_texts_with_blank_lines_marks_and_no_last_end(tmp_path, texts, packing, line_end, mark, ended, how, kind):
    text = mark + line_end.join(texts) + line_end * ended
    ending, pack = PACKINGS[packing]
    path = tmp_path / f"plain.{kind}"
    path.write_bytes(text)
    try:
        plain = list(open_corpus(path, index="no"))
    except ValueError as error:  # it has no row
        with pytest.raises(type(error), match="empty"):
            opened(tmp_path, ending, pack(text), kind, **how)
        return

    corpus = opened(tmp_path, ending, pack(text), kind, **how)

    assert list(corpus) == plain
    assert corpus.take(range(len(plain))[::-1]) == plain[::-1]


def test_a_row_longer_than_many_pages(tmp_path):
    rows = [{"a": 1}, {"long": "x y " * 300_000}, {"b": 2}, {"long": "z" * 200_000}, {"c": 3}]
    for ending, pack in PACKINGS.values():
        corpus = opened(tmp_path, ending, pack(lines(rows)), spacing=4096)
        assert corpus.take([4, 3, 2, 1, 0]) == rows[::-1]


@pytest.mark.parametrize(("ending", "pack"), [PACKINGS["one member"], PACKINGS["frames"]])
def test_an_index_of_another_process_is_enough(tmp_path, ending, pack):
    rows = rows_of(9000)
    path = tmp_path / f"a.jsonl.{ending}"
    path.write_bytes(pack(lines(rows)))
    open_corpus(path, spacing=100_000)

    corpus = open_corpus(path, spacing=100_000)

    assert corpus[8500] == rows[8500]
    assert corpus.blocks_loaded == 1
    assert len(corpus.block_sizes) >= 5


def test_blocks_are_the_rows_between_points(tmp_path):
    rows = rows_of(9000)
    text = lines(rows)
    for ending, pack in PACKINGS.values():
        corpus = opened(tmp_path, ending, pack(text), spacing=100_000)
        starts = corpus.entries[0].outline.arrays["starts"]
        assert int(np.diff(starts).max()) < 300_000 + 300, ending
        assert corpus.block_sizes.min() > 0


def test_a_block_of_some_rows_is_asked_for_in_any_order(tmp_path):
    rows = rows_of(9000)
    corpus = opened(tmp_path, "gz", gzip.compress(lines(rows)), spacing=100_000, cache_bytes=0)
    order = BlockShuffle(corpus.block_sizes, seed=1, window=2)
    ids = order.take(np.arange(len(rows)))

    assert [row["id"] for row in corpus.take(ids)] == ids.tolist()


@pytest.mark.parametrize(
    ("ending", "pack", "told", "helps"),
    [
        ("gz", gzip.compress, "unpacking all text", True),
        ("zst", lambda text: b"".join(map(one_frame, pieces(text, 1 << 18))), "unpacking all text", True),
        ("zst", one_frame, "so does a block out of order", False),
    ],
)
def test_random_rows_warn_once_with_ways_out(tmp_path, ending, pack, told, helps):
    rows = [{"id": number, "text": f"{number * 7919 % 1_000_003} some words " * 600} for number in range(2000)]
    corpus = opened(tmp_path, ending, pack(lines(rows)), cache_bytes=0)
    ids = np.random.default_rng(0).integers(0, len(rows), 70).tolist()
    with pytest.warns(CorpusWarning, match=told) as caught:
        found = [corpus[row]["id"] for row in ids[: 70 if helps else 10]]
    assert found == ids[: len(found)]
    (warning,) = caught
    assert ("BlockShuffle" in str(warning.message)) == helps
    assert "detdata convert" in str(warning.message)


def test_reading_forward_warns_of_nothing(tmp_path):
    corpus = opened(tmp_path, "zst", one_frame(lines(rows_of(5000))), spacing=4096, cache_bytes=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sum(1 for _ in corpus.read(0)) == 5000


def test_errors_name_file_block_and_row(tmp_path):
    text = lines(rows_of(3000))
    broken = text.replace(b'{"id": 2500,', b'{"id" 2500,')
    corpus = opened(tmp_path, "gz", gzip.compress(broken), spacing=20_000)
    place = corpus.locate(2500)
    with pytest.raises(CorpusError, match="is no JSON") as caught:
        corpus[2500]
    assert (caught.value.file, caught.value.block, caught.value.row) == place
    assert place.block > 0


def test_damage_that_came_later_names_the_block(tmp_path):
    text = lines(rows_of(3000))
    packed = bytearray(gzip.compress(text))
    corpus = opened(tmp_path, "gz", bytes(packed), spacing=20_000)
    form, entry = corpus._form, corpus.entries[0]
    packed[len(packed) // 2] ^= 0x10
    (tmp_path / "a.jsonl.gz").write_bytes(packed)

    shard = form.open(entry.file.fresh(), entry.outline, corpus._options)
    errors = []
    for block in range(len(corpus.block_sizes)):
        try:
            shard.load(block)
        except CorpusError as error:
            errors.append((error.file, error.block))
    assert 1 <= len(errors) < len(corpus.block_sizes)
    assert all(file == str(tmp_path / "a.jsonl.gz") and block is not None for file, block in errors)


def test_false_indexes_are_errors(tmp_path):
    rows = rows_of(3000)
    corpus = opened(tmp_path, "gz", gzip.compress(lines(rows)), spacing=20_000)
    entry, rng = corpus.entries[0], random.Random(2)
    for _ in range(150):
        arrays = {name: array.copy() for name, array in entry.outline.arrays.items()}
        sizes = entry.outline.block_sizes.copy()
        changed = rng.choice([sizes, *arrays.values()])
        value = rng.choice([0, 1, 255, -1, 2**31, 2**62, -(2**63)])
        changed[rng.randrange(changed.size)] = value % 256 if changed.dtype == np.uint8 else value
        if rng.random() < 0.1:
            del arrays[rng.choice(sorted(arrays))]
        outline = Outline(block_sizes=sizes, arrays=arrays)
        try:
            shard = corpus._form.open(entry.file.fresh(), outline, corpus._options)
            for block in range(sizes.size):
                shard.view(block, shard.load(block)).take([0])
        except CorpusError as error:
            assert error.file == entry.file.name  # noqa: PT017


@pytest.mark.parametrize("spacing", [0, 4095, 2**31, "many", 1.5])
def test_a_spacing_that_makes_no_sense_is_refused(tmp_path, spacing):
    with pytest.raises((TypeError, ValueError), match="spacing"):
        opened(tmp_path, "gz", gzip.compress(b"{}\n"), spacing=spacing)


def test_text_in_utf_16_is_told(tmp_path):
    with pytest.raises(CorpusError, match="UTF-16"):
        opened(tmp_path, "gz", gzip.compress("{}\n".encode("utf-16")))


def test_progress_counts_packed_bytes(tmp_path):
    for ending, pack in PACKINGS.values():
        corpus = opened(tmp_path, ending, pack(lines(rows_of(4000))))
        seen = []
        entry = corpus.entries[0]
        corpus._form.outline(entry.file, corpus._options, seen.append)
        assert sum(seen) == entry.identity.size


def test_a_bomb_is_read_without_much_memory(tmp_path):
    import tracemalloc

    packing = zlib.compressobj(9, zlib.DEFLATED, 31)
    packed = b"".join([*(packing.compress(b" " * (1 << 20)) for _ in range(200)), packing.compress(b'\n{"x":1}\n')])
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(packed + packing.flush())
    tracemalloc.start()
    try:
        with pytest.raises(CorpusError, match="more than 128 MiB"):
            open_corpus(path, index="no")
        assert tracemalloc.get_traced_memory()[1] < 30 << 20
    finally:
        tracemalloc.stop()
