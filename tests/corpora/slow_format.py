"""A format whose blocks take long to load and count their loads: what the tests of locality read.

A file holds the number of its blocks and the rows of each, and whatever is to go wrong. Here and not in a test module
because a spawned worker imports it by name.
"""

import json
import os
import time
from pathlib import Path

import numpy as np

from detdata import BlockShuffle, Loader, Plan
from detdata.corpora.opening import open_corpus
from detdata.corpora.protocol import Outline
from detdata.errors import ArgumentValueError
from tests.torch_side import FORK, as_list

BLOCKS, ROWS = 24, 40  # of most tests


class Slow:
    name = "slow"
    endings = (".slow",)
    scans = False
    random = None
    keeps = True
    outline_options = ()

    def outline(self, file, options, progress=None):
        meta = json.loads(file.read(0, file.identity().size))
        return Outline(block_sizes=np.array(meta["sizes"], dtype=np.int64), meta=meta)

    def open(self, file, outline, options):
        return SlowShard(file, outline)

    def schema(self, outline, options):
        return None


class SlowShard:
    def __init__(self, file, outline):
        self.file = file
        self.meta = outline.meta
        self.starts = np.concatenate([[0], np.cumsum(outline.block_sizes)])
        self.log = os.open(file.path + ".log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def load(self, block):
        os.write(self.log, f"{os.getpid()} {block}\n".encode())
        time.sleep(self.meta["seconds"])
        if block in self.meta["broken"]:
            raise ArgumentValueError(f"block {block} is broken")
        rows = np.arange(self.starts[block], self.starts[block + 1])
        return np.repeat(rows, self.meta["width"] // 8).tobytes()

    def view(self, block, buffer):
        size = self.meta["sizes"][block]
        return SlowRows(np.frombuffer(buffer, dtype=np.int64).reshape(size, -1))


class SlowRows:
    def __init__(self, values):
        self.values = values

    def take(self, rows):
        chosen = self.values[list(rows)]
        assert (chosen == chosen[:, :1]).all()
        return chosen[:, 0].tolist()

    def arrow(self, rows):
        return None


def make(folder, *, blocks=BLOCKS, rows=ROWS, width=8, seconds=0.0, broken=(), name="a.slow", form=None, **options):
    """A corpus of `blocks` blocks with `rows` rows of `width` bytes each; row i is i."""
    path = Path(folder) / name
    meta = {"sizes": [rows] * blocks, "width": width, "seconds": seconds, "broken": list(broken)}
    path.write_text(json.dumps(meta), encoding="utf-8")
    return open_corpus(path, form or Slow(), **options)


def loads(folder, name="a.slow"):
    """[(process, block)] of all loads so far, in order."""
    log = Path(folder) / f"{name}.log"
    if not log.exists():
        return []
    return [tuple(map(int, line.split())) for line in log.read_text(encoding="utf-8").splitlines()]


def plan_of(corpus, window=4, batch=16, seed=1):
    return Plan(BlockShuffle(corpus.block_sizes, seed, window=window), batch)


def loader_of(corpus, plan=None, num_workers=0, **arguments):
    start = FORK if num_workers else {}
    plan = plan_of(corpus) if plan is None else plan
    return Loader(corpus, plan, num_workers=num_workers, **{"collate_fn": as_list, **start, **arguments})


def expected(plan, first=0, last=None):
    return [plan.batch(step).ids.tolist() for step in range(first, plan.steps(0) if last is None else last)]


def names(folder):
    return sorted(file.name for file in Path(folder).iterdir())
