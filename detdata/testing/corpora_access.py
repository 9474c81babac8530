"""Laws of corpora: a row is the same however it is asked for."""

from __future__ import annotations

import copy
import pickle
import threading
from itertools import accumulate
from typing import Any

import numpy as np

from detdata.corpora import Place
from detdata.testing.corpora_cases import COUNT, CorpusCases, alike, plain, some_ids, with_edges


class AccessLaws(CorpusCases):
    """Rows by number, in any way."""

    def test_rows_are_those_that_were_written(self) -> None:
        """len, and every row in its place: one file, one of a single row, several with empty ones among them."""
        law = "rows"
        cases = [(COUNT,), (1,), (2, 1, COUNT)]
        cases += [(0, 3, 0, 0, 5, 0)] if self.holds_empty else []
        for counts in cases:
            with self.files(*counts) as (paths, rows):
                corpus = self.opened(paths)
                if len(corpus) != len(rows):
                    self.broken(law, f"files of {counts} rows have the length {len(corpus)}")
                self.expect(law, f"files of {counts} rows, all at once", rows, corpus.take(range(len(rows))))
                self.expect(law, f"files of {counts} rows, one by one", rows, [corpus[row] for row in range(len(rows))])
                self.expect(law, f"files of {counts} rows, in order", rows, list(corpus))

    def test_the_examples_have_blocks(self) -> None:
        """A file of one block proves little: `write` or `options` must make more."""
        with self.files(COUNT) as (paths, _):
            blocks = self.opened(paths).block_sizes.size
            if blocks < 3:
                self.broken(
                    "examples", f"{COUNT} rows make {blocks} block(s); write smaller ones, or set rows_per_block"
                )

    def test_take_gives_what_single_rows_are(self) -> None:
        """Any order, repeats, other integers than int; no row for none."""
        law = "take"
        with self.files(COUNT, 1, COUNT) as (paths, rows):
            corpus = self.opened(paths)
            for seed in range(20):
                ids = some_ids(len(rows), 1 + 7 * seed, seed)
                self.expect(law, f"ids {ids[:20]} …", [rows[row] for row in ids], corpus.take(ids))
            everything = np.arange(len(rows))[::-1]
            self.expect(law, "all, backwards", rows[::-1], corpus.take(everything))
            self.expect(law, "ids as uint8", rows[:5], corpus.take(np.arange(5, dtype=np.uint8)))
            self.expect(law, "no ids", [], corpus.take([]))
            self.expect(law, "a slice", rows[3 : len(rows) : 7], corpus[3::7])
            self.expect(law, "negative numbers", rows[-5:], [corpus[row] for row in range(-5, 0)])

    def test_rows_are_fresh(self) -> None:
        """Whoever changes a row, or what is in it, changes it for nobody else."""
        with self.files(COUNT) as (paths, rows):
            corpus = self.opened(paths)
            first, again = corpus.take([3, 3])
            _spoil(first)
            self.expect("fresh", "a repeat in one call, after the first was changed", rows[3:4], [again])
            self.expect("fresh", "a later call, after a row was changed", rows[3:4], corpus.take([3]))
            for row in corpus.read(0):
                _spoil(row)
            self.expect("fresh", "read again, after all rows were changed", rows, list(corpus))

    def test_read_gives_what_take_does(self) -> None:
        """read(start, stop) is take(range(start, stop)) at every edge of a block and beside it."""
        with self.files(COUNT, 1, 7) as (paths, rows):
            corpus = self.opened(paths)
            edges = with_edges([0, *accumulate(corpus.block_sizes.tolist())], len(rows))
            for start in edges:
                for stop in {start, *edges[-3:], *(edge for edge in edges if start < edge <= start + 20)}:
                    self.expect("read", f"read({start}, {stop})", rows[start:stop], list(corpus.read(start, stop)))
                self.expect("read", f"read({start})", rows[start:], list(corpus.read(start)))

    def test_places_are_those_of_blocks(self) -> None:
        """block_sizes add up to the length, and locate and blocks_of follow them, file by file."""
        law = "places"
        with self.files(COUNT, *((0,) if self.holds_empty else ()), 5) as (paths, rows):
            corpus = self.opened(paths)
            if int(corpus.block_sizes.sum()) != len(rows):
                self.broken(law, f"block_sizes sum to {corpus.block_sizes.sum()}, and there are {len(rows)} rows")
            expected, blocks, block = [], [], -1
            for entry in corpus.entries:
                for number, size in enumerate(entry.outline.block_sizes.tolist()):
                    block += 1
                    expected += [Place(entry.file.name, number, row) for row in range(size)]
                    blocks += [block] * size
            if [corpus.locate(row) for row in range(len(rows))] != expected:
                self.broken(law, "locate does not count files, blocks and rows as block_sizes does")
            if corpus.blocks_of(range(len(rows))).tolist() != blocks:
                self.broken(law, "blocks_of does not follow block_sizes")

    def test_columns_are_those_asked_for(self) -> None:
        """columns= gives just these, in that order; take_columns gives the same values as Arrow and as NumPy."""
        law = "columns"
        with self.files(COUNT, 2) as (paths, rows):
            if self.columns:
                for columns in (list(self.columns), list(self.columns)[::-1], [self.columns[0]]):
                    expected = [{name: row[name] for name in columns} for row in rows]
                    corpus = self.opened(paths, columns=columns)
                    self.expect(law, f"columns={columns}", expected, corpus.take(range(len(rows))))
                    found = corpus.take_columns([0], "arrow").column_names
                    if found != columns:
                        self.broken(law, f"take_columns of columns={columns} has the columns {found}")
            corpus = self.opened(paths)
            for ids in ([*range(len(rows))], some_ids(len(rows), 30, 1), [4]):
                taken = [rows[row] for row in ids]
                table = corpus.take_columns(ids, "arrow")
                arrays = corpus.take_columns(ids, "numpy")
                if table.num_rows != len(ids) or any(len(array) != len(ids) for array in arrays.values()):
                    self.broken(law, f"take_columns of {len(ids)} rows has another number of them")
                if not all(isinstance(row, dict) for row in taken):
                    continue
                for name in taken[0]:
                    expected = [plain(row[name]) for row in taken]
                    if not alike(expected, plain(table.column(name).to_pylist())):
                        self.broken(law, f"column {name!r} of Arrow holds other values than the rows")
                    if not alike(expected, plain(arrays[name])):
                        self.broken(law, f"column {name!r} of NumPy holds other values than the rows")
            if corpus.take_columns([], "arrow").num_rows:
                self.broken(law, "take_columns of no ids has rows")

    def test_numbers_outside_are_refused(self) -> None:
        """IndexError for what lies outside, TypeError for what is no integer."""
        with self.files(5) as (paths, _):
            corpus = self.opened(paths)
            for bad in (5, -6, 2**70):
                self._refused(IndexError, bad, corpus.__getitem__, corpus.take, corpus.locate)
            self._refused(IndexError, -1, corpus.take, corpus.locate)
            for value in (True, 0.0, "0", None):
                self._refused(TypeError, value, corpus.__getitem__, corpus.take, corpus.locate, corpus.read)
            self._refused(IndexError, 6, corpus.read)

    def _refused(self, error: type[Exception], value: Any, *calls: Any) -> None:
        for call in calls:
            try:
                result = call(value)
            except error:
                continue
            except Exception as other:  # noqa: BLE001  whatever it is, it is the wrong one, and reported
                self.broken("numbers", f"{call.__name__}({value!r}) raised {other!r}, not {error.__name__}")
            self.broken("numbers", f"{call.__name__}({value!r}) gave {result!r}, not {error.__name__}")

    def test_what_is_held_is_bounded(self) -> None:
        """Each block is loaded once if all may be held, and reading forward holds one at a time."""
        with self.files(COUNT) as (paths, rows):
            corpus = self.opened(paths, cache_bytes=1 << 40)
            for _ in range(3):
                corpus.take(range(len(rows)))
            if corpus.blocks_loaded > corpus.block_sizes.size:
                self.broken(
                    "held", f"{corpus.blocks_loaded} loads of {corpus.block_sizes.size} blocks with room for all"
                )
            corpus = self.opened(paths, cache_bytes=0)
            list(corpus)
            if corpus.blocks_loaded > corpus.block_sizes.size:
                self.broken("held", f"reading forward loads {corpus.blocks_loaded} of {corpus.block_sizes.size} blocks")
            ids = some_ids(len(rows), 50, 3)
            self.expect("held", "rows with room for no block", [rows[row] for row in ids], [corpus[row] for row in ids])

    def test_pickles_are_the_same_corpus(self) -> None:
        """A pickled corpus gives the same rows, also after it was read; what is open does not travel."""
        with self.files(COUNT, 2) as (paths, rows):
            corpus = self.opened(paths)
            early = len(pickle.dumps(corpus))
            corpus.take(range(len(rows)))
            late = len(pickle.dumps(corpus))
            if late > early + 100:
                self.broken("pickle", f"a pickle grows from {early} to {late} bytes by reading")
            again = copy.deepcopy(corpus)  # by way of pickle's protocol; what is sent to workers is really pickled
            self.expect("pickle", "a copy by way of pickle's protocol", rows, again.take(range(len(rows))))

    def test_threads_may_share_a_corpus(self) -> None:
        """Rows asked for by several threads at once are the right ones."""
        with self.files(COUNT, 9) as (paths, rows):
            for cache_bytes in (0, 1 << 30):
                corpus = self.opened(paths, cache_bytes=cache_bytes)
                wrong: list[str] = []

                def read(seed: int, corpus: Any = corpus, wrong: list[str] = wrong) -> None:
                    try:
                        for ids in np.array_split(some_ids(len(rows), 200, seed), 20):
                            self.expect("threads", f"in a thread, ids {ids}", [rows[i] for i in ids], corpus.take(ids))
                    except BaseException as error:  # noqa: BLE001  told by the thread that waits
                        wrong.append(str(error) if isinstance(error, AssertionError) else repr(error))

                threads = [threading.Thread(target=read, args=(seed,), daemon=True) for seed in range(4)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join(120)
                if any(thread.is_alive() for thread in threads):
                    self.broken("threads", "threads that read together do not end")
                if wrong:
                    self.broken("threads", wrong[0])


def _spoil(value: Any) -> None:
    """Change whatever can be changed in a row."""
    if isinstance(value, dict):
        for item in value.values():
            _spoil(item)
        value.clear()
    elif isinstance(value, list):
        for item in value:
            _spoil(item)
        value.clear()
    elif isinstance(value, np.ndarray) and value.flags.writeable:
        value.fill(0)
