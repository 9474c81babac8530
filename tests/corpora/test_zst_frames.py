"""Zstandard: text and points of frames of every kind, against pyarrow's own stream; damage everywhere."""

import random

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from detdata.corpora import CorpusError
from detdata.corpora.files import LocalFile
from detdata.corpora.survey import Survey
from detdata.corpora.zst_frames import open_zst, zst_text
from tests.corpora.zst_writer import MAGIC, frame, frames, skippable

CODEC = pa.Codec("zstd")


def compressed(text):
    return bytes(CODEC.compress(text))


def unpacked(packed):
    return pa.CompressedInputStream(pa.BufferReader(packed), "zstd").read()


def streamed(parts):
    """One frame without the size of its text."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        for part in parts:
            stream.write(part)
    return sink.getvalue().to_pybytes()


def survey_of(path, spacing=1 << 20):
    survey = Survey(spacing)
    return b"".join(zst_text(LocalFile(str(path)), survey, spacing)), survey.points()


def check_points(path, text, points):
    file = LocalFile(str(path))
    for place, page in zip(points.places.tolist(), points.pages.tolist(), strict=True):
        begin = int(points.page_starts[page])
        stream = open_zst(file, place, b"", 0)
        assert stream.read(len(text) + 1) == text[begin:]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 10**9), st.integers(1, 12), st.sampled_from([4096, 1 << 20]))
def test_frames_of_all_kinds(tmp_path, seed, count, spacing):
    packed, text = frames(seed, count)
    assert unpacked(packed) == text
    path = tmp_path / "a.zst"
    path.write_bytes(packed)

    found, points = survey_of(path, spacing)

    assert found == text
    check_points(path, text, points)


def test_frames_are_points_and_small_ones_share_one(tmp_path):
    path = tmp_path / "a.zst"
    large = [random.Random(seed).randbytes(50_000).hex().encode() for seed in range(6)]
    small = [random.Random(seed).randbytes(250).hex().encode() for seed in range(2000)]
    path.write_bytes(b"".join(map(compressed, large + small)))

    found, points = survey_of(path)

    assert found == b"".join(large + small)
    check_points(path, found, points)
    starts = points.page_starts[points.pages].tolist()
    assert starts[:6] == [100_000 * number for number in range(6)]
    assert 8 <= len(starts) <= 24


def test_streams_without_the_size_of_their_text(tmp_path):
    path = tmp_path / "a.zst"
    text = b"".join(b'{"row": %d}\n' % number for number in range(50_000))
    path.write_bytes(streamed([text[:99], text[99:]]) + streamed([text]) + streamed([]))

    found, points = survey_of(path)

    assert found == text * 2
    assert points.pages.tolist() == [0, points.page_of(len(text)), points.page_digests.size]  # the empty one too
    check_points(path, found, points)


def test_a_size_that_promises_too_much_is_not_believed(tmp_path):
    path = tmp_path / "a.zst"
    head = MAGIC + bytes([3 << 6, 10 << 3]) + (1 << 62).to_bytes(8, "little")
    path.write_bytes(head + (5 << 3 | 1).to_bytes(3, "little") + b"hello")

    with pytest.raises(CorpusError, match="damaged"):
        survey_of(path)


def test_a_window_of_more_than_128_mib_is_refused(tmp_path):
    path = tmp_path / "a.zst"
    path.write_bytes(MAGIC + bytes([0, 20 << 3]) + (5 << 3 | 1).to_bytes(3, "little") + b"hello")

    with pytest.raises(CorpusError, match="memory"):
        survey_of(path)


def test_a_dictionary_that_is_not_there_is_told(tmp_path):
    path = tmp_path / "a.zst"
    path.write_bytes(MAGIC + bytes([1, 10 << 3, 7]) + (5 << 3 | 1).to_bytes(3, "little") + b"hello")

    with pytest.raises(CorpusError, match=r"(?i)dictionary"):
        survey_of(path)


@pytest.mark.parametrize(
    "packed",
    [
        compressed(b"some text\n" * 30) + skippable(b"table") + streamed([b"more"]),
        frame(b"x" * 300 + b"yz", checksum=True, block=100) + frame(b"abc", size_bytes=8, single=True),
    ],
)
def test_a_file_cut_at_any_byte_is_an_error_that_names_the_byte(tmp_path, packed):
    path = tmp_path / "a.zst"
    path.write_bytes(packed)
    text = survey_of(path)[0]
    whole = []
    for cut in range(1, len(packed)):
        path.write_bytes(packed[:cut])
        try:
            found = survey_of(path)[0]
        except CorpusError as error:
            assert f"ends at byte {cut}," in str(error)  # noqa: PT017
        else:
            whole.append(cut)
            assert text.startswith(found)
    assert len(whole) == 1 + (b"table" in packed)  # where a frame ends nothing can tell that one is missing


@pytest.mark.parametrize("content", [b"", b'{"x": 1}\n', b"\0" * 50, b"\x1e\xb5\x2f\xfd0123456789"])
def test_what_is_no_zstandard_file_is_told(tmp_path, content):
    path = tmp_path / "a.zst"
    path.write_bytes(content)

    with pytest.raises(CorpusError, match="is no Zstandard file"):
        survey_of(path)


def test_something_behind_the_last_frame_is_an_error(tmp_path):
    packed = compressed(b"text")
    for tail in (b"garbage", b"\0\0\0\0", b"\x1f\x8b\x08"):
        path = tmp_path / "a.zst"
        path.write_bytes(packed + tail)
        with pytest.raises(CorpusError, match=f"byte {len(packed)}"):
            survey_of(path)


@pytest.mark.parametrize("checksum", [True, False])
def test_a_changed_byte_of_a_frame_is_an_error_or_seen_in_the_text_alone(tmp_path, checksum):
    text = random.Random(3).randbytes(200).hex().encode()
    packed = frame(text, checksum=checksum, block=150)
    path = tmp_path / "a.zst"
    for at in range(len(packed)):
        for bit in (0, 3, 7):
            changed = bytearray(packed)
            changed[at] ^= 1 << bit
            path.write_bytes(changed)
            try:
                found, _ = survey_of(path)
            except CorpusError as error:
                assert error.file == str(path)  # noqa: PT017
            else:
                assert not checksum or found == text or at == 4  # that byte says whether there is a checksum
