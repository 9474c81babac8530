"""Corpora through loaders of two workers: every row once, in the order of the files or shuffled by blocks."""

from __future__ import annotations

import bisect
import itertools
import time
from pathlib import Path

from corpus_cases import BATCH, GROUP, LOADED, SIDES, cpu_of_all, files_in, hf_stream, lacking, prepare


def corpus_pass(sides, folder, rows, shuffled, workers, repeat):
    """µs a row of a whole pass of each side, round by round in turn: wall, and CPU with the workers'."""
    import torch

    torch.set_num_threads(1)
    found = {side: [] for side in sides}
    for _ in range(repeat):
        for side in sides:
            if lacking(side):
                found[side] = [lacking(side)]
                continue
            prepare(side)
            wall, cpu = time.perf_counter(), cpu_of_all()
            count = sum(len(batch) for batch in LOADERS[side.partition("-")[0]](side, folder, rows, shuffled, workers))
            cpu, wall = cpu_of_all() - cpu, time.perf_counter() - wall
            if abs(count - rows) > LOADED * max(1, workers) * 8:
                raise SystemExit(f"{side}: {count} rows came, {rows} are there")
            found[side].append({"cpu_us": cpu / count * 1e6, "wall_us": wall / count * 1e6})
    return found


def ours(side, folder, rows, shuffled, workers):
    from detdata import BlockShuffle, Loader, Plan, Sequential, Topology, open_corpus

    corpus = open_corpus(files_in(folder, SIDES[side][1]))
    window = max(1, 40_000 // int(corpus.block_sizes[0]))
    order = BlockShuffle(corpus.block_sizes, seed=1, window=window) if shuffled else Sequential(len(corpus))
    # No peer seeds the global random streams for each sample, so neither do we here.
    return Loader(corpus, Plan(order, LOADED), Topology(), num_workers=workers, collate_fn=list, randomness="off")


def pyarrow_alone(side, folder, rows, shuffled, workers):
    """Reads the same blocks by pyarrow in an IterableDataset, blocks dealt out to the workers; no shuffle of rows."""
    import torch

    return torch.utils.data.DataLoader(
        Blocks(files_in(folder, SIDES[side][1]), SIDES[side][1], shuffled),
        batch_size=LOADED,
        num_workers=workers,
        collate_fn=list,
    )


class Blocks:
    """An IterableDataset, made one when it is used: torch is not imported before that."""

    def __new__(cls, paths, form, shuffled):
        import random

        import torch

        class Found(torch.utils.data.IterableDataset):
            def __iter__(self):
                import pyarrow as pa
                import pyarrow.parquet as pq

                info = torch.utils.data.get_worker_info()
                mine, of = (info.id, info.num_workers) if info else (0, 1)
                if form == "parquet":
                    open_ = [pq.ParquetFile(path) for path in paths]
                    blocks = [(file, number) for file in open_ for number in range(file.num_row_groups)]
                else:
                    open_ = [pa.ipc.open_file(pa.memory_map(path)) for path in paths]
                    blocks = [(file, number) for file in open_ for number in range(file.num_record_batches)]
                if shuffled:
                    random.Random(1).shuffle(blocks)
                for file, number in blocks[mine::of]:
                    block = file.read_row_group(number) if form == "parquet" else file.get_batch(number)
                    yield from block.to_pylist()

        return Found()


def pyarrow_same(side, folder, rows, shuffled, workers):
    """The very rows of our batches, in their order, by pyarrow: `take` in each record batch that is touched."""
    import torch

    from detdata import BatchSampler, BlockShuffle, Plan, Topology

    dataset = SameRows(files_in(folder, SIDES[side][1]))
    order = BlockShuffle([block.num_rows for block in dataset.blocks], seed=1, window=max(1, 40_000 // BATCH))
    return torch.utils.data.DataLoader(
        dataset,
        batch_sampler=BatchSampler(Plan(order, LOADED), Topology()),
        num_workers=workers,
        collate_fn=list,
    )


class SameRows:
    def __init__(self, paths):
        import pyarrow as pa

        files = [pa.ipc.open_file(pa.memory_map(path)) for path in paths]
        self.blocks = [file.get_batch(number) for file in files for number in range(file.num_record_batches)]
        self.edges = [0, *itertools.accumulate(block.num_rows for block in self.blocks)]

    def __len__(self):
        return self.edges[-1]

    def __getitems__(self, ids):
        found, by_block = {}, {}
        for row in ids:
            by_block.setdefault(bisect.bisect_right(self.edges, row) - 1, []).append(row)
        for block, asked in by_block.items():
            taken = self.blocks[block].take([row - self.edges[block] for row in asked])
            found.update(zip(asked, taken.to_pylist(), strict=True))
        return [found[row] for row in ids]


def datasets(side, folder, rows, shuffled, workers):
    import torch

    stream = hf_stream(side, folder)
    if shuffled:
        stream = stream.shuffle(seed=1, buffer_size=1000)
    return torch.utils.data.DataLoader(stream, batch_size=LOADED, num_workers=workers, collate_fn=list)


def mosaic(side, folder, rows, shuffled, workers):
    import streaming

    streaming.base.util.clean_stale_shared_memory()
    dataset = streaming.StreamingDataset(
        local=str(Path(folder, "mds")), shuffle=shuffled, batch_size=LOADED, num_canonical_nodes=1
    )
    return streaming.StreamingDataLoader(dataset, batch_size=LOADED, num_workers=workers, collate_fn=list)


def litdata(side, folder, rows, shuffled, workers):
    import litdata as package

    dataset = package.StreamingDataset(str(Path(folder, "lit")), shuffle=shuffled, seed=1)
    return package.StreamingDataLoader(dataset, batch_size=LOADED, num_workers=workers, collate_fn=list)


def webdataset(side, folder, rows, shuffled, workers):
    import webdataset as package

    dataset = package.WebDataset(files_in(folder, "tar"), shardshuffle=100 if shuffled else False)
    if shuffled:
        dataset = dataset.shuffle(1000)
    return package.WebLoader(dataset, batch_size=LOADED, num_workers=workers, collate_fn=list)


LOADERS = {
    "ours": ours,
    "pyarrow": pyarrow_alone,
    "pyarrow_same": pyarrow_same,
    "datasets": datasets,
    "mosaic": mosaic,
    "litdata": litdata,
    "webdataset": webdataset,
}
__all__ = ["BATCH", "GROUP", "LOADERS", "corpus_pass"]
