"""What is measured: each case runs in a process of its own and prints one JSON object.

`python bench/cases.py NAME '{"side": …}'`. Times are CPU seconds of this process (`time.process_time`) unless a name
says `wall`. A side is "ours" or what a user would run otherwise; one that isn't installed answers {"missing": package}.
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import resource
import sys
import time
import tracemalloc
from itertools import islice
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from checkpoint_cases import CASES as CHECKPOINT_CASES
from corpus_cases import corpus_first, corpus_index, corpus_state, corpus_take, corpus_write
from corpus_loading import corpus_pass
from hash_cases import CASES as HASH_CASES
from plan_cases import CASES as PLAN_CASES

BATCH = 512  # samples of one rank
RANK = 3
PACKAGES = {"torchdata": "torchdata", "grain": "grain"}


class Sized:
    """A dataset that has a length and nothing else."""

    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        return index


# --- sampler: start, resume, a whole epoch ---


def ours(n, world, rank, step):
    from detdata import BatchSampler, Plan, Shuffle, Topology

    return iter(BatchSampler(Plan(Shuffle(n, seed=step), BATCH * world), Topology(rank, world), start_step=step))


def ours_drop_in(n, world, rank, step):
    from torch.utils.data import BatchSampler

    from detdata import DistributedSampler

    sampler = DistributedSampler(Sized(n), world, rank, drop_last=True)
    sampler.resume(step * BATCH * world)
    return iter(BatchSampler(sampler, BATCH, drop_last=True))


def torch_sampler(n, world, rank, step):
    from torch.utils.data import BatchSampler, DistributedSampler

    sampler = DistributedSampler(Sized(n), world, rank, drop_last=True)
    return islice(BatchSampler(sampler, BATCH, drop_last=True), step, None)


def torchdata_sampler(n, world, rank, step):
    from torchdata.stateful_dataloader.sampler import BatchSampler, StatefulDistributedSampler

    batches = iter(BatchSampler(StatefulDistributedSampler(Sized(n), world, rank, drop_last=True), BATCH, True))
    if step:
        batches.load_state_dict({"samples_yielded": step * BATCH, "sampler_state": {"yielded": step * BATCH}})
    return batches


def grain_sampler(n, world, rank, step):
    import grain

    batches = grain.MapDataset.range(n).seed(0).shuffle()[rank::world].batch(BATCH, drop_remainder=True)
    return (batches[index] for index in range(step, len(batches)))


SAMPLERS = {
    "ours": ours,
    "ours_drop_in": ours_drop_in,
    "torch": torch_sampler,
    "torchdata": torchdata_sampler,
    "grain": grain_sampler,
}


def peak_rss():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def start(side, n, world=8, at=0.0, repeat=0):
    """CPU time to the first batch at the fraction `at` of an epoch; then warm ones; memory above the imports'."""
    steps = n // (BATCH * world)
    step = int(steps * at)
    make = SAMPLERS[side]
    load(side)
    base, begin = peak_rss(), time.process_time()
    next(make(n, world, RANK, step))
    result = {"first_s": time.process_time() - begin, "rss_mib": peak_rss() - base}
    warm = []
    for index in range(repeat):
        begin = time.process_time()
        next(make(n, world, RANK, (step - 1 - index) % steps))
        warm.append(time.process_time() - begin)
    if repeat:
        tracemalloc.start()
        next(make(n, world, RANK, (step - 1 - repeat) % steps))
        result |= {"warm_s": median(warm), "traced_mib": tracemalloc.get_traced_memory()[1] / 2**20}
    return result


def epoch(side, n, world):
    """CPU time of a whole epoch of one rank's ids as lists of Python ints, set-up included."""
    load(side)
    begin = time.process_time()
    ids = sum(len(batch) for batch in SAMPLERS[side](n, world, min(RANK, world - 1), 0))
    spent = time.process_time() - begin
    return {"epoch_s": spent, "ns_per_id": spent / ids * 1e9, "ids": ids}


def take(n, block, count):
    """CPU time per id of `Shuffle.take` in NumPy blocks; median of the blocks."""
    import numpy as np

    from detdata import Shuffle

    order, times = Shuffle(n, seed=1), []
    for first in range(0, count - block + 1, block):
        positions = np.arange(first, first + block)
        begin = time.process_time()
        order.take(positions)
        times.append(time.process_time() - begin)
    return {"ns_per_id": median(times) / block * 1e9}


# --- loader ---


class Trivial(Sized):
    """One shared tensor of 1 KiB: nothing to read, so all that is left is the loader."""

    def __init__(self, n):
        import torch

        super().__init__(n)
        self.x = torch.zeros(1024, dtype=torch.uint8)

    def __getitem__(self, index):
        return self.x


class Augmenting(Trivial):
    """Some 20 µs a sample of NumPy and torch, with draws from the three global streams."""

    def __getitem__(self, index):
        import numpy as np
        import torch

        noise = torch.from_numpy(np.random.normal(size=256).astype(np.float32))
        x = self.x[:256].float().add_(noise).mul_(0.5 + random.random())
        return torch.flip(x, (0,)) if float(torch.rand(())) < 0.5 else x


class Arrays(Sized):
    """The trivial dataset for a loader that speaks NumPy."""

    def __init__(self, n):
        import numpy as np

        super().__init__(n)
        self.x = np.zeros(1024, dtype=np.uint8)

    def __getitem__(self, index):
        return self.x


class SeededCollate:
    """Seeds the three global streams once a batch and puts nothing back: the least that randomness by batch costs."""

    def __init__(self):
        self.batch = 0

    def __call__(self, samples):
        import numpy as np
        import torch

        self.batch += 1
        random.seed(self.batch)
        np.random.seed(self.batch)
        torch.default_generator.manual_seed(self.batch)
        return torch.utils.data.default_collate(samples)


def loader_side(side, dataset, batch, workers):
    import torch

    generator = torch.Generator().manual_seed(0)
    if side in ("torch", "torch_seeded"):
        collate = torch.utils.data.default_collate if side == "torch" else SeededCollate()
        return torch.utils.data.DataLoader(
            dataset,
            batch,
            shuffle=True,
            drop_last=True,
            num_workers=workers,
            generator=generator,
            collate_fn=collate,
        )
    if side == "torchdata":
        from torchdata.stateful_dataloader import StatefulDataLoader

        return StatefulDataLoader(
            dataset, batch, shuffle=True, drop_last=True, num_workers=workers, generator=generator
        )
    if side == "grain":
        import grain

        return grain.MapDataset.source(dataset).seed(0).shuffle().batch(batch, drop_remainder=True)
    from detdata import Loader, Plan, Shuffle, Topology

    plan = Plan(Shuffle(len(dataset), seed=0), batch)
    return Loader(dataset, plan, Topology(), num_workers=workers, randomness=side.removeprefix("ours_"))


def cpu_of_all():
    """CPU seconds of this process and of its ended children."""
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    )


def loader(sides, dataset, workers, n, repeat, batch=64):
    """µs a sample of a whole epoch of each side, round by round in turn: CPU with workers' included, and wall."""
    load("torch")
    kinds = {"trivial": Trivial, "augmenting": Augmenting}
    found = {side: [] for side in sides}
    missing = [side for side in sides if not installed(side)]
    for _ in range(repeat):
        for side in sides:
            if side in missing:
                continue
            load(side)
            data = (Arrays if side == "grain" else kinds[dataset])(n)
            wall, cpu = time.perf_counter(), cpu_of_all()
            count = sum(1 for _ in loader_side(side, data, batch, workers))
            samples = count * batch / 1e6
            cpu, wall = cpu_of_all() - cpu, time.perf_counter() - wall
            found[side].append({"cpu_us": cpu / samples, "wall_us": wall / samples})
    return {side: [{"missing": PACKAGES[side]}] if side in missing else runs for side, runs in found.items()}


CORPUS_CASES = {
    case.__name__: case for case in (corpus_write, corpus_state, corpus_first, corpus_take, corpus_index, corpus_pass)
}

# --- the process ---


def installed(side):
    return side not in PACKAGES or importlib.util.find_spec(PACKAGES[side]) is not None


def load(side):
    """Import what a side needs, so that no import is timed."""
    import torch.utils.data

    torch.set_num_threads(1)
    if side.startswith("ours"):
        import detdata

        detdata.Loader, detdata.BatchSampler, detdata.DistributedSampler  # noqa: B018  loads the torch side
    elif side == "torchdata":
        import torchdata.stateful_dataloader  # noqa: F401
    elif side == "grain":
        import grain  # noqa: F401


OWN_CASES = {"start": start, "epoch": epoch, "take": take, "loader": loader}
CASES = {**OWN_CASES, **CORPUS_CASES, **HASH_CASES, **CHECKPOINT_CASES, **PLAN_CASES}

if __name__ == "__main__":
    name, arguments = sys.argv[1], json.loads(sys.argv[2])
    answer = CASES[name](**arguments) if installed(arguments.get("side", "")) else {"missing": arguments["side"]}
    print(json.dumps(answer), flush=True)
    os._exit(0)  # some loaders keep threads that outlive the work
