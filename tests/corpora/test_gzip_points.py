"""Gzip: text and points against the standard library, streams entered at every bit, damage everywhere."""

import gzip
import random
import zlib

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from detdata.corpora import CorpusError
from detdata.corpora.deflate_start import inflate_from, needed_of
from detdata.corpora.files import LocalFile
from detdata.corpora.gzip_points import GzipText, gzip_text, open_gzip
from detdata.corpora.survey import Survey

WINDOW = 1 << 15
PROSE = random.Random(7)
WORDS = ["".join(PROSE.choices("etaoinshrdlu", k=PROSE.randint(2, 9))) for _ in range(800)]


def prose(size, seed=0):
    rng = random.Random(seed)
    parts = []
    while size > 0:
        parts.append(" ".join(rng.choices(WORDS, k=12)) + "\n")
        size -= len(parts[-1])
    return "".join(parts).encode()


def survey_of(path, spacing):
    survey = Survey(spacing)
    text = b"".join(gzip_text(LocalFile(str(path)), survey, spacing))
    return text, survey.points()


def check_points(path, text, points):
    """Each point gives the text from there on, to its end."""
    file = LocalFile(str(path))
    for number, place in enumerate(points.places.tolist()):
        begin = int(points.page_starts[points.pages[number]])
        window = points.window(number, "a")
        known = text[max(0, begin - WINDOW) : begin]
        assert all(one in {0, other} for one, other in zip(window[::-1], known[::-1], strict=False))
        assert len(window) <= len(known)
        assert open_gzip(file, place, window, 0).read(len(text) + 1) == text[begin:]


def member(text, level=6, strategy=zlib.Z_DEFAULT_STRATEGY, flush=None, every=1000):
    packing = zlib.compressobj(level, zlib.DEFLATED, 31, 8, strategy)
    parts = []
    for at in range(0, len(text), every):
        parts.append(packing.compress(text[at : at + every]))
        if flush is not None:
            parts.append(packing.flush(flush))
    return b"".join([*parts, packing.flush()])


def shifted(stream, shift):
    """The bits of a stream from bit `shift` of the first byte on; ones are before it."""
    return (int.from_bytes(stream, "little") << shift | (1 << shift) - 1).to_bytes(len(stream) + 1, "little")


@pytest.mark.parametrize("shift", range(8))
@pytest.mark.parametrize("strategy", [zlib.Z_DEFAULT_STRATEGY, zlib.Z_FIXED, zlib.Z_HUFFMAN_ONLY])
def test_a_deflate_stream_is_entered_at_every_bit_of_a_byte(shift, strategy):
    text = prose(3000)
    for window in (b"", prose(40_000, 1)[-WINDOW:], text[:100]):
        packing = zlib.compressobj(9, zlib.DEFLATED, -15, 8, strategy, *([window] if window else []))
        moved = shifted(packing.compress(text) + packing.flush(), shift)

        unpacking = inflate_from(shift, moved[0], window)

        assert unpacking.decompress(moved[shift > 0 :]) == text
        assert unpacking.eof


@pytest.mark.parametrize("level", [1, 2, 6, 9])
def test_points_are_near_their_spacing_at_every_level(tmp_path, level):
    text = prose(3_000_000)
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(text, level))

    found, points = survey_of(path, 1 << 18)

    assert found == text
    assert points.longest < 3 << 18
    assert points.places.size >= 4
    check_points(path, text, points)


def test_points_hold_what_is_copied_from_the_text_before_and_no_more():
    text = prose(200_000)
    window, rest = text[:WINDOW], text[WINDOW:]
    packing = zlib.compressobj(6, zlib.DEFLATED, -15, zdict=window)
    packed = packing.compress(rest) + packing.flush()

    needed = needed_of(window, packed, 0)

    assert zlib.decompressobj(-15, zdict=needed).decompress(packed) == rest
    assert 1000 < needed.count(0) < WINDOW
    for place in np.flatnonzero(np.frombuffer(needed, np.uint8))[::97]:
        wrong = needed[:place] + b"\0" + needed[place + 1 :]
        assert zlib.decompressobj(-15, zdict=wrong).decompress(packed) != rest
    assert needed_of(window, packed[:900], 0) == window  # too little is known of the stream


@pytest.mark.parametrize("flush", [zlib.Z_SYNC_FLUSH, zlib.Z_FULL_FLUSH, zlib.Z_PARTIAL_FLUSH, None])
@pytest.mark.parametrize("every", [100, 20_000])
def test_points_of_streams_that_were_flushed(tmp_path, flush, every):
    text = prose(400_000)
    path = tmp_path / "a.gz"
    path.write_bytes(member(text, flush=flush, every=every))

    found, points = survey_of(path, 1 << 15)

    assert found == text
    check_points(path, text, points)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\n",
        b"a" * 2_000_000,  # 1000 : 1
        np.random.default_rng(0).bytes(300_000),  # stored as it is
        prose(100_000) + b"\0" * 3_000_000 + prose(200_000, 5),
        bytes(range(256)) * 4000,
    ],
    ids=["nothing", "a line end", "one letter", "noise", "zeros between", "all bytes"],
)
@pytest.mark.parametrize("level", [0, 1, 9])
def test_texts_at_the_edges(tmp_path, text, level):
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(text, level))

    found, points = survey_of(path, 1 << 16)

    assert found == text
    check_points(path, text, points)


MEMBERS = st.lists(
    st.tuples(
        st.integers(0, 60_000),
        st.integers(0, 9),
        st.sampled_from([zlib.Z_DEFAULT_STRATEGY, zlib.Z_FIXED, zlib.Z_HUFFMAN_ONLY, zlib.Z_RLE, zlib.Z_FILTERED]),
        st.sampled_from([None, zlib.Z_SYNC_FLUSH, zlib.Z_FULL_FLUSH]),
        st.sampled_from([333, 5000, 50_000]),
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(MEMBERS, st.integers(0, 3), st.sampled_from([4096, 20_000, 1 << 20]))
def test_members_of_all_kinds(tmp_path, members, zeros, spacing):
    packed = b"\0" * zeros
    packed = packed.join(member(prose(size, size), *how) for size, *how in members) + packed
    text = gzip.decompress(packed)
    path = tmp_path / "a.gz"
    path.write_bytes(packed)

    found, points = survey_of(path, spacing)

    assert found == text
    check_points(path, text, points)


def test_one_block_of_many_megabytes_is_not_looked_through_byte_by_byte(tmp_path, monkeypatch):
    fed = []
    monkeypatch.setattr(GzipText, "inflate", _counting(GzipText.inflate, fed))
    text = prose(100_000) * 200
    path = tmp_path / "a.gz"
    path.write_bytes(member(text, strategy=zlib.Z_FIXED, every=len(text)))

    found, points = survey_of(path, 1 << 20)

    assert found == text
    assert points.places.size == 1
    small = sum(1 for feed in fed if feed < 100)
    assert 0 < small * 16 < len(path.read_bytes()) // 3


def _counting(inflate, fed):
    def counted(self, feed, limit=0):
        fed.append(feed)
        return inflate(self, feed, limit)

    return counted


def test_headers_with_names_comments_and_extra_fields(tmp_path):
    plain = gzip.compress(b"text", mtime=0)
    fields = b"\x04\x00abcd" + b"name\0" + b"a comment\0"
    header = plain[:3] + bytes([4 | 8 | 16 | 2]) + plain[4:10] + fields
    packed = header + (zlib.crc32(header) & 0xFFFF).to_bytes(2, "little") + plain[10:]
    path = tmp_path / "a.gz"
    path.write_bytes(packed * 2)

    assert gzip.decompress(packed * 2) == b"texttext"
    assert survey_of(path, 4096)[0] == b"texttext"


@pytest.mark.parametrize(
    "packed",
    [gzip.compress(prose(2000), mtime=0), gzip.compress(b"a\n", mtime=0) + gzip.compress(b"b\n", 0, mtime=0)],
    ids=["one", "two"],
)
def test_a_file_cut_at_any_byte_is_an_error_that_names_the_byte(tmp_path, packed):
    path = tmp_path / "a.gz"
    whole = {0, len(gzip.compress(b"a\n"))} if len(packed) < 100 else {0}
    for cut in range(len(packed)):
        path.write_bytes(packed[:cut])
        if cut and cut in whole:
            assert survey_of(path, 4096)[0] == b"a\n"  # the end of a member; nothing can tell
            continue
        with pytest.raises(CorpusError, match=r"is cut short|is no gzip file|comes something else") as caught:
            survey_of(path, 4096)
        if "is cut short" in str(caught.value):
            assert f"ends at byte {cut}," in str(caught.value)


@pytest.mark.parametrize(
    ("tail", "told"),
    [
        (b"x", "from byte 24 on"),
        (b"\x1f", "from byte 24 on"),
        (b"\0\0garbage", "from byte 26 on"),
        (b"\x1f\x8b\x08", "ends at byte 27, inside the member that begins at byte 24"),
        (b"BZh9", "from byte 24 on"),
    ],
)
def test_something_behind_the_last_member_is_an_error(tmp_path, tail, told):
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"text") + tail)

    with pytest.raises(CorpusError, match=told):
        survey_of(path, 4096)


@pytest.mark.parametrize("content", [b"", b'{"x": 1}\n', b"\0" * 100, b"\x1f", b"PK\x03\x04"])
def test_what_is_no_gzip_file_is_told(tmp_path, content):
    path = tmp_path / "a.gz"
    path.write_bytes(content)

    with pytest.raises(CorpusError, match="is no gzip file"):
        survey_of(path, 4096)


def test_a_changed_byte_is_an_error_or_changes_nothing(tmp_path):
    text = prose(3000)
    packed = gzip.compress(text, mtime=0)
    path = tmp_path / "a.gz"
    for at in range(len(packed)):
        for bit in (0, 5):
            changed = bytearray(packed)
            changed[at] ^= 1 << bit
            path.write_bytes(changed)
            try:
                found, _ = survey_of(path, 4096)
            except CorpusError as error:
                assert error.file == str(path)  # noqa: PT017
            else:
                assert found == text
