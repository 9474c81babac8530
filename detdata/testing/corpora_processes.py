"""Laws of corpora: the same rows in every process, however it was started."""

from __future__ import annotations

import multiprocessing
from typing import Any

from detdata.testing.corpora_cases import COUNT, CorpusCases, some_ids
from detdata.testing.corpora_children import Child, read_rows, view_buffers


class ProcessLaws(CorpusCases):
    """Workers, and buffers that go from one process to another."""

    def test_workers_read_the_same_rows(self) -> None:
        """Under fork, spawn and forkserver, from a corpus that was read before, while it is read on."""
        with self.files(COUNT, 3) as (paths, rows):
            corpus = self.opened(paths)
            corpus.take(range(len(rows)))
            ids = some_ids(len(rows), 200, 1)
            expected = [rows[row] for row in ids]
            for method in multiprocessing.get_all_start_methods():
                with Child(method, read_rows, corpus, ids) as one, Child(method, read_rows, corpus, ids[::-1]) as other:
                    self.expect("workers", f"{method}, in the process that started them", expected, corpus.take(ids))
                    self.expect("workers", method, expected, self._received(method, one))
                    self.expect("workers", method, expected[::-1], self._received(method, other))

    def test_buffers_are_worth_the_same_elsewhere(self) -> None:
        """What `load` gave can be copied, stored and mapped: `view` makes the same rows of it, elsewhere too."""
        law = "buffers"
        with self.files(COUNT) as (paths, rows):
            corpus = self.opened(paths)
            (entry,) = corpus.entries
            file = entry.file.fresh()
            shard = corpus._form.open(file, entry.outline, corpus._options)
            names, here = [], []
            for block, size in enumerate(entry.outline.block_sizes.tolist()):
                buffer = memoryview(shard.load(block))
                if not buffer.contiguous:
                    self.broken(law, f"load({block}) gave no flat buffer")
                copy = bytes(buffer)
                here += list(shard.view(block, copy).take(range(size)))
                stored = paths[0].parent.parent / f"block-{block}"
                stored.write_bytes(copy)
                names.append(str(stored))
            self.expect(law, "of copies", rows, here)
            with Child("spawn", view_buffers, corpus, names) as child:
                there = [row for _ in names for row in self._received("mapped in another process", child)]
            self.expect(law, "mapped in another process", rows, there)

    def _received(self, what: str, child: Child) -> list[Any]:
        found = child.receive()
        if not isinstance(found, list):
            self.broken("workers", f"{what}: {found.how if isinstance(found, Child.Ended) else found}")
        return found
