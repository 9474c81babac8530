"""Tar archives: samples are those that tarfile and grouping by hand find; damaged and hostile archives are errors."""

import io
import os
import pickle
import tarfile
from itertools import groupby
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detdata import CorpusError, open_corpus
from detdata.corpora.files import LocalFile
from detdata.corpora.tar_headers import members
from detdata.testing import CorpusSuite

FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}
PART = st.text("ab._-é ", min_size=1, max_size=6).filter(lambda part: part not in {".", ".."})
NAMES = st.lists(PART, min_size=1, max_size=3).map("/".join)
LONG = st.builds(
    lambda part, times: "/".join([part * 9] * times) + ".txt", st.text("xyz", min_size=1), st.integers(1, 30)
)
CONTENT = st.binary(max_size=20) | st.integers(500, 1600).map(bytes)


def tar_of(entries, form="pax", **fields):
    """The bytes of an archive of (name, content or None for a folder)."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=FORMATS[form], **fields) as archive:
        for name, content in entries:
            info = tarfile.TarInfo(name)
            if content is None:
                info.type = tarfile.DIRTYPE
                archive.addfile(info)
            else:
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    return target.getvalue()


def write_tar(path, entries, form="pax"):
    path.write_bytes(tar_of(entries, form))
    return path


def read_by_tarfile(path):
    with tarfile.open(path, "r:") as archive:
        return [(info.name, archive.extractfile(info).read()) for info in archive if info.isreg()]


def samples_of(files):
    """Samples by hand: the rules, said once more."""
    kept = []
    for name, content in files:
        *folders, base = name.split("/")
        key, dot, extension = base.partition(".")
        first = name.split("/")[0]
        if dot and key and not (first[:2] == first[-2:] == "__" and len(first) > 3):
            kept.append(("/".join([*folders, key]), extension.lower(), content))
    samples = []
    for key, group in groupby(kept, lambda one: one[0]):
        parts = [(extension, content) for _, extension, content in group]
        if len(dict(parts)) < len(parts) or "__key__" in dict(parts):
            return None
        samples.append({"__key__": key, **dict(parts)})
    return samples


@settings(max_examples=120, deadline=None)
@given(
    entries=st.lists(st.tuples(NAMES | LONG, CONTENT | st.none()), max_size=12),
    form=st.sampled_from(sorted(FORMATS)),
    per_block=st.none() | st.integers(1, 3),
    data=st.data(),
)
def test_samples_are_those_of_tarfile_grouped_by_hand(tmp_path_factory, entries, form, per_block, data):
    path = tmp_path_factory.mktemp("tar") / "a.tar"
    try:
        write_tar(path, entries, form)
    except ValueError:  # a name that is too long for ustar
        return
    files = read_by_tarfile(path)
    found = [member for part in members(LocalFile(str(path))) for member in part]
    content = path.read_bytes()
    assert [(name.decode(), content[start : start + size]) for name, start, size in found] == files
    expected = samples_of(files)
    if not expected:
        with pytest.raises(ValueError, match="two members" if expected is None else "empty"):
            open_corpus(path, index="no")
        return

    corpus = open_corpus(path, rows_per_block=per_block)

    ids = data.draw(st.lists(st.integers(0, len(expected) - 1), max_size=6))
    assert list(corpus) == expected
    assert corpus.take(ids) == [expected[i] for i in ids]
    column = data.draw(st.sampled_from(sorted(expected[0])))
    chosen = open_corpus(path, columns=[column], rows_per_block=per_block)
    assert chosen[0] == {column: expected[0][column]}


@pytest.mark.parametrize(
    ("names", "samples"),
    [
        (["a.jpg", "a.cls", "b.jpg", "b.cls"], [("a", ["jpg", "cls"]), ("b", ["jpg", "cls"])]),
        (["x/a.seg.PNG", "x/a.json", "y/a.json"], [("x/a", ["seg.png", "json"]), ("y/a", ["json"])]),
        (["./a.b/c.d"], [("./a.b/c", ["d"])]),
        (["a.", "a.b"], [("a", ["", "b"])]),
        (["a.jpg", "README", ".hidden", "x/._a.jpg", "a.txt"], [("a", ["jpg", "txt"])]),
        (["__meta__", "__meta__/a.json", "__x__.json", "__a.b"], [("__x__", ["json"]), ("__a", ["b"])]),
        (["a.x", "b.x", "a.x"], [("a", ["x"]), ("b", ["x"]), ("a", ["x"])]),
    ],
)
def test_names_become_keys_and_extensions_at_the_first_dot_of_the_last_part(tmp_path, names, samples):
    corpus = open_corpus(write_tar(tmp_path / "a.tar", [(name, b"1") for name in names]))

    assert [(row["__key__"], list(row)[1:]) for row in corpus] == samples


def test_a_name_that_is_no_utf_8_is_told_as_python_tells_file_names(tmp_path):
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT, encoding="latin-1") as archive:
        archive.addfile(tarfile.TarInfo("é.txt"))
    corpus = open_corpus(path)

    assert corpus[0] == {"__key__": "\udce9", "txt": b""}
    with pytest.raises(CorpusError, match="surrogates"):
        corpus.take_columns([0])


def test_columns_are_read_without_the_rest(tmp_path):
    size = 1 << 20
    entries = [(f"{k}.{end}", bytes([k]) * n) for k in range(4) for end, n in (("jpg", size), ("cls", 3))]
    path = write_tar(tmp_path / "a.tar", entries)
    corpus = open_corpus(path, columns=["cls", "__key__"])
    (entry,) = corpus.entries
    reads = []

    class Counting(LocalFile):
        __slots__ = ()

        def read(self, start, length):
            reads.append(length)
            return super().read(start, length)

    shard = corpus._form.open(Counting(str(path)), entry.outline, corpus._options)
    buffer = shard.load(1)

    assert shard.view(1, buffer).take([0]) == [{"cls": b"\1\1\1", "__key__": "1"}]
    assert sum(reads) == 3
    assert corpus.take([3, 0]) == [{"cls": b"\3\3\3", "__key__": "3"}, {"cls": b"\0\0\0", "__key__": "0"}]
    with pytest.raises(CorpusError, match=r"block 0, row 0 of the block: sample '0' has no 'txt', only .*'jpg', 'cls'"):
        open_corpus(path, columns=["txt"])[0]


def test_a_block_is_the_samples_that_begin_in_one_mib(tmp_path):
    path = write_tar(tmp_path / "a.tar", [(f"{k}.bin", bytes(300_000)) for k in range(10)])

    assert open_corpus(path).block_sizes.tolist() == [4, 3, 3]
    assert open_corpus(path, rows_per_block=4).block_sizes.tolist() == [4, 4, 2]


def test_archives_without_their_end_are_read_if_that_is_asked_for(tmp_path):
    content = tar_of([("a.x", b"one"), ("b.x", b"two")])[: 3 * 512 + 3]
    for name, end in (("a", 0), ("b", 509), ("c", 600)):
        path = tmp_path / f"{name}.tar"
        path.write_bytes(content + bytes(end))

        assert [row["x"] for row in open_corpus(path, unfinished=True)] == [b"one", b"two"]
        with pytest.raises(CorpusError, match=f"ends at byte {1539 + end} without the zeros .*unfinished=True"):
            open_corpus(path)
    with pytest.raises(TypeError, match="unfinished"):
        open_corpus(path, unfinished=1)[0]


def test_zeros_of_any_length_end_an_archive(tmp_path):
    content = tar_of([("a.x", b"one")])[:1024]
    for end in (512, 1024, 1100, 20_000):
        (tmp_path / "a.tar").write_bytes(content + bytes(end))
        assert list(open_corpus(tmp_path / "a.tar")) == [{"__key__": "a", "x": b"one"}]


def test_empty_archives_have_no_rows(tmp_path):
    (tmp_path / "a.tar").write_bytes(bytes(10240))
    write_tar(tmp_path / "b.tar", [("a.x", b"")])

    assert list(open_corpus(tmp_path)) == [{"__key__": "a", "x": b""}]
    (tmp_path / "c.tar").write_bytes(b"")
    with pytest.raises(CorpusError, match=r"c\.tar: ends at byte 0"):
        open_corpus(tmp_path)


def test_samples_do_not_cross_archives(tmp_path):
    write_tar(tmp_path / "a.tar", [("a.x", b"1")])
    write_tar(tmp_path / "b.tar", [("a.y", b"2")])

    assert list(open_corpus(tmp_path)) == [{"__key__": "a", "x": b"1"}, {"__key__": "a", "y": b"2"}]


def test_pax_headers_say_name_and_size_of_one_member_or_of_all(tmp_path):
    one = tar_of([("a.x", b"12345")], headers := "pax")
    record = b"13 path=b.yy\n"
    extended = tarfile.TarInfo("h")
    extended.size, extended.type = len(record), tarfile.XHDTYPE
    of_all = tarfile.TarInfo("h")
    of_all.size, of_all.type = 9, tarfile.XGLTYPE
    block = extended.tobuf() + record.ljust(512, b"\0")
    path = tmp_path / "a.tar"
    path.write_bytes(
        of_all.tobuf() + b"9 size=3\n".ljust(512, b"\0") + block + one[:1024] + one[:512] + b"7".ljust(512) + bytes(512)
    )

    assert headers == "pax"
    assert list(open_corpus(path)) == [{"__key__": "b", "yy": b"123"}, {"__key__": "a", "x": b"7  "}]


def test_sizes_in_base_256_are_read(tmp_path):
    info = tarfile.TarInfo("a.x")
    info.size = 3
    head = bytearray(info.tobuf())
    head[124:136] = b"\x80" + (3).to_bytes(11, "big")
    (tmp_path / "a.tar").write_bytes(summed(head) + b"abc".ljust(1024, b"\0"))

    assert open_corpus(tmp_path / "a.tar")[0]["x"] == b"abc"


def summed(head):
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    return bytes(head)


def with_size(field, kind=b"0"):
    head = bytearray(tarfile.TarInfo("s/a.jpg").tobuf())
    head[124:136], head[156:157] = field, kind
    return summed(head)


def extended_by(record, kind=b"x"):
    info = tarfile.TarInfo("h")
    info.size, info.type = len(record), kind
    return info.tobuf() + record.ljust(-(-len(record) // 512) * 512, b"\0")


PLAIN = tarfile.TarInfo("s/a.jpg").tobuf()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (with_size(b"00000000400\0") + bytes(255), r"'s/a.jpg' of sample 's/a'.*256 bytes from byte 512.*cut off"),
        (with_size(b"77777777777\0") + bytes(512), "8589934591 bytes from byte 512 on"),
        (with_size(b"777777777777") + bytes(512), "68719476735 bytes from byte 512 on"),
        (with_size(b"\x80" + b"\xff" * 11) + bytes(512), f"says that it has {2**88 - 1} bytes"),
        (with_size(b"\xff" * 12) + bytes(512), "negative"),
        (with_size(b"-0000000001\0") + bytes(512), "no octal number"),
        (with_size(b"0000_000001\0") + bytes(512), "no octal number"),
        (with_size(b"99\0".ljust(12, b"\0")), "no octal number"),
        (with_size(b"00000000001\0", b"S") + bytes(512), "sparse"),
        (extended_by(b"22 GNU.sparse.major=1\n") + PLAIN, "sparse"),
        (extended_by(b"9 size=x\n") + PLAIN, "no number"),
        (extended_by(b"10 size=-1\n"[:10]) + PLAIN, "broken"),
        (extended_by(b"11 size=-1\n") + PLAIN, "no number"),
        (extended_by(b"40 size=" + b"9" * 31 + b"\n") + PLAIN, "no number"),
        (extended_by(b"99999999999 path=x\n") + PLAIN, "broken"),
        (extended_by(b"0 path=x\n") + PLAIN, "broken"),
        (extended_by(b"8 path=x\n") + PLAIN, "broken"),
        (extended_by(b"7 path\n") + PLAIN, "broken"),
        (extended_by(b"9 path=x\n"), "member of a long header is missing"),
        (extended_by(b"9 path=x\n")[:900], "cut off"),
        (with_size(b"00010000000\0", b"L") + bytes(512), "extended header of 2097152 bytes"),
        (PLAIN[:300], "cut off at byte 300, in the header that begins at 0"),
        (PLAIN + PLAIN[:1], "cut off at byte 513, in the header that begins at 512"),
        (PLAIN + b"x" * 512, "damaged at byte 512"),
        (b"x" * 512, "is no tar archive: it does not begin"),
        (b"\x1f\x8b" + b"x" * 510, "packed by gzip.*gunzip"),
        (b"\x1f\x8bx", "packed by gzip"),
        (b"\x28\xb5\x2f\xfd" + b"x" * 510, "packed by Zstandard"),
        (
            PLAIN + bytes(1024) + PLAIN,
            "archive ends at byte 512, and there are more data from byte 1536 on.*concatenate",
        ),
        (PLAIN + bytes(512) + PLAIN, "archive ends at byte 512"),
        (PLAIN + bytes(600) + b"x", "more data from byte 1112 on"),
        (tar_of([("a.jpg", b"1"), ("a.JPG", b"2")]), "sample 'a' has two members 'jpg'.*'a.JPG'"),
        (tar_of([("a.__key__", b"1")]), "two members '__key__'"),
    ],
)
def test_damaged_and_hostile_archives_are_errors(tmp_path, content, reason):
    (tmp_path / "a.tar").write_bytes(content)

    with pytest.raises(CorpusError, match=reason):
        open_corpus(tmp_path / "a.tar")


def test_a_packed_archive_is_refused_by_its_name_too(tmp_path):
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("a.x"))

    with pytest.raises(CorpusError, match="packed by gzip"):
        open_corpus(tmp_path / "a.tar.gz")


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_a_changed_byte_gives_an_error_or_what_tarfile_reads(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("tar") / "a.tar"
    whole = bytearray(tar_of([("a.x", b"1" * 600), ("ä" * 80 + ".x", b"2"), ("b.x", b"3" * 10)], "gnu"))
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, 9 * 512))] = data.draw(st.integers(0, 255))
    path.write_bytes(whole)
    try:
        rows = list(open_corpus(path, index="no"))
    except ValueError:
        return
    assert rows == samples_of(read_by_tarfile(path))


@settings(max_examples=60, deadline=None)
@given(cut=st.integers(1, 11 * 512))
def test_a_cut_archive_gives_an_error_or_the_samples_before_the_cut(tmp_path_factory, cut):
    path = tmp_path_factory.mktemp("tar") / "a.tar"
    entries = [("a.x", b"1" * 600), ("b.x", b"2"), ("c.x", b"3" * 513)]
    path.write_bytes(tar_of(entries)[:cut])
    try:
        rows = list(open_corpus(path, index="no"))
    except CorpusError:
        assert cut < 9 * 512
        return
    assert rows == samples_of(entries)


def test_headers_on_both_sides_of_what_is_read_at_a_time(tmp_path):
    entries = [("a.x", bytes((4 << 20) - 1024 - 512)), ("b" * 300 + ".x", b"2" * 700), ("c.x", b"3")]
    for form in ("gnu", "pax"):
        path = write_tar(tmp_path / f"{form}.tar", entries, form)
        assert list(open_corpus(path)) == samples_of(entries)


def test_a_member_beyond_four_gib_is_found(tmp_path):
    path = tmp_path / "a.tar"
    info = tarfile.TarInfo("a.x")
    info.size = 5 << 30
    behind = tar_of([("b.y", b"end")])
    with path.open("wb") as file:
        file.write(with_size(b"\x80" + (1 << 20).to_bytes(11, "big")))
        file.truncate(512 + (1 << 20))
        file.seek(512 + (1 << 20))
        file.write(behind)
    assert open_corpus(path)[1] == {"__key__": "b", "y": b"end"}
    assert info.tobuf(tarfile.GNU_FORMAT)[124:136] == b"50000000000\0"


def test_the_index_is_used_and_a_foreign_one_is_refused(tmp_path):
    path = write_tar(tmp_path / "a.tar", [(f"{k}.x", b"%d" % k) for k in range(9)])
    corpus = open_corpus(path, rows_per_block=2)
    again = open_corpus(path, rows_per_block=2)
    (entry,) = again.entries

    assert [row["x"] for row in again] == [b"%d" % k for k in range(9)]
    assert pickle.loads(pickle.dumps(corpus)).take([8, 0]) == corpus.take([8, 0])
    for name, value in (("starts", 2**62), ("sizes", -1), ("sizes", 2**62), ("firsts", 3), ("name_ends", 99)):
        arrays = {key: np.array(array) for key, array in entry.outline.arrays.items()}
        arrays[name][1] = value
        outline = type(entry.outline)(block_sizes=entry.outline.block_sizes, arrays=arrays)
        with pytest.raises(CorpusError, match="delete the index"):
            again._form.open(LocalFile(str(path)), outline, again._options)


def test_a_changed_archive_is_noticed(tmp_path):
    path = write_tar(tmp_path / "a.tar", [("a.x", b"1")])
    corpus = open_corpus(path)
    os.utime(path, ns=(1, 1))

    with pytest.raises(CorpusError, match="has changed"):
        corpus[0]


class TestTar(CorpusSuite):
    format = "tar"
    options: ClassVar = {"rows_per_block": 8}
    columns = ("__key__", "txt")

    def rows(self, count, seed):
        return [{"__key__": f"{seed}/{k:05d}", "txt": b"text %d" % k, "bin": bytes([k]) * 700} for k in range(count)]

    def write(self, folder, rows):
        entries = [(f"{row['__key__']}.{end}", row[end]) for row in rows for end in ("txt", "bin")]
        return write_tar(folder / "a.tar", entries)
