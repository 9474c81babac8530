"""Compressed files read at any byte: what is read, how much is unpacked for it, what damage and false indexes do."""

import gzip
import random
import threading
import zlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from detdata.corpora import CorpusError, CorpusUnreadable
from detdata.corpora.files import LocalFile
from detdata.corpora.gzip_points import gzip_text, open_gzip
from detdata.corpora.inflating import InflatedFile
from detdata.corpora.points import Points
from detdata.corpora.protocol import Outline
from detdata.corpora.survey import Survey
from detdata.corpora.zst_frames import open_zst, zst_text
from detdata.testing.corpora_cases import FileOf

SPACING = 100_000
CODECS = {"gzip": (gzip_text, open_gzip), "zst": (zst_text, open_zst)}


def text_of(size, seed=0):
    rng = random.Random(seed)
    return "".join(
        f'{{"id": {number}, "text": "{rng.randbytes(30).hex()}"}}\n' for number in range(size // 85)
    ).encode()


TEXT = text_of(900_000)
PACKED = {
    "gzip": gzip.compress(TEXT, mtime=0),
    "zst": b"".join(bytes(pa.Codec("zstd").compress(TEXT[at : at + 150_000])) for at in range(0, len(TEXT), 150_000)),
}


class Counted(FileOf):
    """Counts the bytes that are read."""

    def __init__(self, file):
        super().__init__(file)
        self.bytes = self.reads = 0

    def read(self, start, length):
        self.reads += 1
        self.bytes += length
        return super().read(start, length)


def outline_of(path, codec):
    survey = Survey(SPACING)
    assert b"".join(CODECS[codec][0](LocalFile(str(path)), survey, SPACING)) == TEXT
    return Outline(block_sizes=np.zeros(0, np.int64), arrays=survey.points().arrays())


def inflated(path, codec, outline=None):
    file = Counted(LocalFile(str(path)))
    outline = outline_of(path, codec) if outline is None else outline
    return InflatedFile(file, Points.of(outline, "a"), CODECS[codec][1]), file


@pytest.fixture(params=["gzip", "zst"])
def codec(request):
    return request.param


@pytest.fixture
def path(tmp_path, codec):
    path = tmp_path / "a"
    path.write_bytes(PACKED[codec])
    return path


def test_every_point_and_page_reads_as_the_text_does(path, codec):
    text, _ = inflated(path, codec)
    points = text._points
    assert points.places.size >= 4
    for edge in points.page_starts.tolist():
        for begin in (edge - 1, edge, edge + 1):
            for length in (0, 1, 2, 70_000, 250_000):
                if begin >= 0 and begin + length <= len(TEXT):
                    assert text.read(begin, length) == TEXT[begin : begin + length]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, len(TEXT)), st.integers(0, 300_000)), max_size=12))
def test_reads_in_any_order_are_slices(path, codec, reads):
    text, _ = inflated(path, codec)
    for begin, wanted in reads:
        length = min(wanted, len(TEXT) - begin)
        assert text.read(begin, length) == TEXT[begin : begin + length]


def test_reading_forward_reads_the_file_once(path, codec):
    text, file = inflated(path, codec)
    parts = [text.read(begin, min(7001, len(TEXT) - begin)) for begin in range(0, len(TEXT), 7001)]

    assert b"".join(parts) == TEXT
    assert file.bytes == len(PACKED[codec])


def test_a_read_far_inside_does_not_begin_at_the_start(path, codec, monkeypatch):
    opened = []
    outline = outline_of(path, codec)
    open_at = CODECS[codec][1]
    monkeypatch.setitem(CODECS, codec, (None, lambda *how: opened.append(how[1]) or open_at(*how)))
    text, _ = inflated(path, codec, outline)
    assert text.read(800_000, 10) == TEXT[800_000:800_010]
    points = text._points

    (place,) = opened
    point = points.places.tolist().index(place)
    assert 800_000 - int(points.page_starts[points.pages[point]]) <= points.longest < len(TEXT) // 3


def test_threads_may_read_at_once(path, codec):
    text, _ = inflated(path, codec)
    wrong = []

    def read(seed):
        rng = random.Random(seed)
        for _ in range(15):
            begin = rng.randrange(len(TEXT))
            length = min(rng.randrange(200_000), len(TEXT) - begin)
            if text.read(begin, length) != TEXT[begin : begin + length]:
                wrong.append((begin, length))

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []


def test_what_lies_outside_is_unreadable(path, codec):
    text, _ = inflated(path, codec)
    for begin, length in ((-1, 1), (0, len(TEXT) + 1), (len(TEXT), 1), (0, -1), (2**62, 2**62)):
        with pytest.raises(CorpusUnreadable, match="ends at byte"):
            text.read(begin, length)
    with pytest.raises(CorpusUnreadable, match="cannot be mapped"):
        text.map()
    assert text.identity().size == len(TEXT)
    assert text.fresh().read(5, 5) == TEXT[5:10]


def test_damage_behind_a_point_gives_no_wrong_byte(path, codec):
    outline = outline_of(path, codec)
    rng = random.Random(5)
    refused = 0
    for _ in range(60):
        changed = bytearray(PACKED[codec])
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        path.write_bytes(changed)
        text, _ = inflated(path, codec, outline)
        for begin in range(0, len(TEXT), 90_000):
            length = min(90_000, len(TEXT) - begin)
            try:
                found = text.read(begin, length)
            except CorpusError as error:
                refused += 1
                assert "damaged" in str(error)  # noqa: PT017
            else:
                assert found == TEXT[begin : begin + length]
    assert refused > 60


def test_a_file_cut_short_behind_the_index_is_an_error(path, codec):
    outline = outline_of(path, codec)
    for cut in (0, 1, 100, len(PACKED[codec]) // 2, len(PACKED[codec]) - 200):
        path.write_bytes(PACKED[codec][:cut])
        text, _ = inflated(path, codec, outline)
        with pytest.raises(CorpusError):
            text.read(0, len(TEXT))


def test_false_indexes_are_errors_and_take_no_memory(path, codec):
    outline = outline_of(path, codec)
    rng = random.Random(1)
    kinds = [0, 1, -1, 2**62, -(2**63), 2**31]
    errors = 0
    for _ in range(300):
        arrays = {name: array.copy() for name, array in outline.arrays.items()}
        name = rng.choice(sorted(arrays))
        how = rng.randrange(4)
        if how == 0:
            del arrays[name]
        elif how == 1:
            arrays[name] = arrays[name][: rng.randrange(arrays[name].size + 1)]
        elif how == 2:
            arrays[name] = np.concatenate([arrays[name], arrays[name][-1:]])
        elif arrays[name].size:
            value = rng.choice(kinds)
            place = rng.randrange(arrays[name].size)
            arrays[name][place] = value % 256 if arrays[name].dtype == np.uint8 else value
        try:
            text, _ = inflated(path, codec, Outline(block_sizes=outline.block_sizes, arrays=arrays))
            found = text.read(0, text.identity().size)
            found_inside = text.read(min(500_000, len(found)), min(1000, max(0, len(found) - 500_000)))
        except CorpusError:
            errors += 1
        else:
            assert TEXT.startswith(found)
            assert TEXT[500_000:].startswith(found_inside)
    assert errors > 100


def test_a_window_that_unpacks_to_much_is_refused(path):
    bomb = np.frombuffer(zlib.compress(b"\0" * 50_000_000), np.uint8)
    one = np.zeros(1, np.int64)
    arrays = {
        "point_places": one,
        "point_pages": one,
        "page_starts": np.array([0, 10]),
        "page_digests": one,
        "window_ends": np.array([bomb.size]),
        "windows": bomb,
    }
    points = Points.of(Outline(block_sizes=one, arrays=arrays), "a")
    with pytest.raises(CorpusError, match="too long"):
        points.window(0, "a")


def test_a_block_is_read_with_few_bytes_beyond_it_in_few_reads(path, codec):
    outline = outline_of(path, codec)
    points = Points.of(outline, "a")
    starts = points.page_starts[points.pages].tolist()
    for number in range(1, len(starts) - 2):
        text, file = inflated(path, codec, outline)
        assert text.read(starts[number], starts[number + 1] - starts[number] + 100)
        packed = int(points.places[number + 1] - points.places[number]) // 8
        assert file.bytes < packed + 70_000  # two pages behind it
        assert file.reads <= 2
