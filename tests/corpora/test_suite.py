"""The suite for other people's formats: an honest one passes it, and a planted fault breaks the law that names it."""

import json
import re
import zlib
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from detdata import CorpusError
from detdata.corpora.protocol import Outline
from detdata.testing import CorpusSuite


class Honest:
    """Lines of JSON, each behind the CRC-32 of what follows: a format of a third party, and the base of faulty ones."""

    name = "honest"
    endings = (".lines",)
    scans = True
    random = None
    keeps = True
    outline_options = ()

    def outline(self, file, options, progress=None):
        size = file.identity().size
        data = file.read(0, size)
        if data[-1:] not in {b"", b"\n"}:
            raise CorpusError(file.name, "is cut off in its last line")
        ends = [at + 1 for at, byte in enumerate(data) if byte == 10]
        each = options.rows_per_block or 100
        starts = np.append([0, *ends][: len(ends)][::each], size)
        sizes = np.diff([*range(0, len(ends), each), len(ends)])
        return Outline(block_sizes=sizes.astype(np.int64), arrays={"starts": starts.astype(np.int64)})

    def open(self, file, outline, options):
        return self.shard(file, outline, options)

    def schema(self, outline, options):
        return None

    class Shard:
        def __init__(self, file, outline, options):
            self.file, self.outline, self.options = file, outline, options

        def load(self, block):
            start, stop = self.outline.arrays["starts"][block : block + 2].tolist()
            return self.file.read(start, stop - start)

        def view(self, block, buffer):
            lines = bytes(buffer).split(b"\n")[:-1]
            if len(lines) != self.outline.block_sizes[block]:
                raise CorpusError(self.file.name, "has another number of rows", block=block)
            return self.rows(self.file.name, block, lines, self.options.columns)

        class Rows:
            def __init__(self, *known):
                self.file, self.block, self.lines, self.columns = known

            def take(self, rows):
                return [self.row(row) for row in rows]

            def arrow(self, rows):
                return None

            def row(self, row):
                line = self.lines[row]
                try:
                    if int(line[:8], 16) != zlib.crc32(line[8:]):
                        raise ValueError("its checksum differs")
                    value = json.loads(line[8:])
                    return value if self.columns is None else {name: value[name] for name in self.columns}
                except (ValueError, KeyError) as error:
                    raise CorpusError(self.file, f"is broken: {error}", block=self.block, row=row) from error

        rows = Rows

    shard = Shard


class TestHonest(CorpusSuite):
    format = Honest()
    options: ClassVar = {"rows_per_block": 8}

    def write(self, folder, rows):
        path = Path(folder) / "a.lines"
        texts = [json.dumps(row).encode() for row in rows]
        path.write_bytes(b"".join(b"%08x%s\n" % (zlib.crc32(text), text) for text in texts))
        return path


def faulty(base, **methods):
    """Honest, with other methods of its format, its shards or its rows."""
    rows = type("Rows", (Honest.Shard.Rows,), methods if base == "rows" else {})
    shard = type("Shard", (Honest.Shard,), {"rows": rows} | (methods if base == "shard" else {}))
    return type("Faulty", (Honest,), {"shard": shard} | (methods if base == "format" else {}))()


honest_outline, honest_load, honest_view, honest_row = (
    Honest.outline, Honest.Shard.load, Honest.Shard.view, Honest.Shard.Rows.row,
)  # fmt: skip
kept = {}


def one_block_more(self, file, options, progress=None):
    found = honest_outline(self, file, options, progress)
    return Outline(block_sizes=np.append(found.block_sizes, 0).astype(float), arrays=found.arrays)


def list_in_meta(self, file, options, progress=None):
    found = honest_outline(self, file, options, progress)
    return Outline(block_sizes=found.block_sizes, arrays=found.arrays, meta={"names": ("a", "b")})


def one_for_all(self, row):
    return kept.setdefault((self.file, self.block, row, self.columns), honest_row(self, row))


def sorted_rows(self, rows):
    return [self.row(row) for row in sorted(rows)]


def unchecked(self, row):
    value = json.loads(self.lines[row][8:])
    return value if self.columns is None else {name: value.get(name) for name in self.columns}


def half_checked(self, row):
    value = json.loads(self.lines[row][8:])
    return value if self.columns is None else {name: value[name] for name in self.columns}


def no_columns(self, row):
    self.columns = None
    return honest_row(self, row)


def hold_the_file(self, block, buffer):
    rows = honest_view(self, block, buffer)
    rows.held = self.file
    return rows


def by_what_load_left(self, block):
    self.loaded = honest_load(self, block)
    return self.loaded


def view_what_load_left(self, block, buffer):
    return honest_view(self, block, self.loaded)


def broken_for_good(self, block):
    try:
        if self.file in kept:
            raise kept[self.file]
        return honest_load(self, block)
    except CorpusError as error:
        kept[self.file] = error
        raise


FAULTS = [
    ("rows", "row", one_for_all, "test_rows_are_fresh", "fresh"),
    ("rows", "take", sorted_rows, "test_take_gives_what_single_rows_are", "take"),
    ("rows", "row", no_columns, "test_columns_are_those_asked_for", "columns"),
    ("rows", "row", no_columns, "test_a_missing_column_is_named", "missing column"),
    ("rows", "row", unchecked, "test_a_missing_column_is_named", "missing column"),
    ("rows", "row", half_checked, "test_damaged_files_are_errors", "damage"),
    ("shard", "view", hold_the_file, "test_files_are_closed_again", "open files"),
    ("shard", "load", broken_for_good, "test_a_read_that_fails_is_an_error_once", "failing reads"),
    ("format", "outline", list_in_meta, "test_outlines_are_numbers_and_json", "outline"),
    ("format", "outline", one_block_more, "test_outlines_are_numbers_and_json", "outline"),
    ("format", "endings", ("Lines",), "test_the_format_says_what_it_is", "format"),
    ("format", "keeps", None, "test_the_format_says_what_it_is", "format"),
]


@pytest.mark.parametrize(
    ("base", "name", "method", "test", "law"), FAULTS, ids=lambda value: getattr(value, "__name__", None)
)
def test_a_fault_breaks_the_law_that_names_it(base, name, method, test, law):
    kept.clear()
    broken = faulty(base, **{name: method})
    suite = type("TestFaulty", (TestHonest,), {"format": broken})()
    if test == "test_damaged_files_are_errors":
        suite = DamagedSuite()
    with pytest.raises(AssertionError, match=re.escape(f"law '{law}' is broken")):
        getattr(suite, test)()


class HalfChecked(Honest):
    class shard(Honest.Shard):  # noqa: N801
        class rows(Honest.Shard.Rows):  # noqa: N801
            row = half_checked


class DamagedSuite(TestHonest):
    """Importable, as another process reads damaged files."""

    __test__ = False
    format = HalfChecked()


class Leaving(Honest):
    class shard(Honest.Shard):  # noqa: N801
        load = by_what_load_left
        view = view_what_load_left


def test_buffers_that_only_this_process_can_read_break_the_law():
    suite = type("TestFaulty", (TestHonest,), {"format": Leaving()})()
    with pytest.raises(AssertionError, match="another process: AttributeError"):
        suite.test_buffers_are_worth_the_same_elsewhere()


def test_a_suite_without_files_says_so():
    with pytest.raises(AssertionError, match=r"needs a method write\(folder, rows\)"):
        CorpusSuite().test_rows_are_those_that_were_written()


def test_one_block_proves_too_little():
    class Coarse(TestHonest):
        options: ClassVar = {}

    with pytest.raises(AssertionError, match="law 'examples' is broken"):
        Coarse().test_the_examples_have_blocks()
