"""What the tests of the torch side share: datasets that every start method can pickle, and new processes.

They are here and not in the test modules because a spawned or forkserver worker imports them by name.
"""

import multiprocessing
import os
import random
import traceback
from functools import cache

import numpy as np
import torch
from torch.utils.data import DataLoader, get_worker_info

from detdata import BatchSampler, DistributedSampler, Loader, Plan, Shuffle, Topology, current_sample, from_spec

HELD = ("generator", "random_state", "python_random", "torch_generator")
SOURCES = ("python", "numpy", "gauss", "torch", *HELD)
# A worker that is started anew dies while it unpickles a torch.Generator: torch sends the state by shared memory.
SPAWNABLE = tuple(source for source in SOURCES if source != "torch_generator")


class Ids:
    """Sample i is i."""

    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, id):
        assert type(id) is int
        return id


class Counting(Ids):
    """Counts what is read, over all processes that are forked from this one."""

    def __init__(self, n):
        super().__init__(n)
        self.reads = multiprocessing.Value("q", 0)

    def __getitem__(self, id):
        with self.reads.get_lock():
            self.reads.value += 1
        return id


class WholeBatches:
    """Has only `__getitems__`, and notes how it was called."""

    def __init__(self, n):
        self.n = n
        self.calls = []

    def __len__(self):
        return self.n

    def __getitems__(self, ids):
        self.calls.append(list(ids))
        return [self.sample(id) for id in ids]

    def sample(self, id):
        return id


class Both(WholeBatches):
    def __getitem__(self, id):
        raise AssertionError("__getitems__ is there to be used")


def draw(source, dataset):
    """A number of some 31 bits or more from one source."""
    if source == "python":
        return random.getrandbits(31)
    if source == "numpy":
        return int(np.random.randint(0, 2**31))
    if source == "gauss":
        return float(np.random.randn())  # an odd number of these leaves one in NumPy's cache
    if source == "torch":
        return int(torch.randint(0, 2**31, ()))
    held = getattr(dataset, source)
    if source == "generator":
        return int(held.integers(0, 2**31))
    if source == "random_state":
        return float(held.randn())
    if source == "python_random":
        return held.getrandbits(31)
    return int(torch.randint(0, 2**31, (), generator=held))


class Noisy:
    """Sample i is (i, a number from each source)."""

    def __init__(self, n, sources=SOURCES):
        self.n = n
        self.sources = sources
        self.nested = {"transforms": [self]}  # and round in a circle
        if "generator" in sources:
            self.generator = np.random.default_rng(0)
        if "random_state" in sources:
            self.random_state = np.random.RandomState(0)
        if "python_random" in sources:
            self.python_random = random.Random(0)
        if "torch_generator" in sources:
            self.torch_generator = torch.Generator()

    def __len__(self):
        return self.n

    def __getitem__(self, id):
        return (id, *(draw(source, self) for source in self.sources))


class NoisyBatches(Noisy):
    """The same from whole batches; draws only for ids from `quiet` on, and counts the calls."""

    def __init__(self, n, sources=SOURCES, quiet=0):
        super().__init__(n, sources)
        self.quiet = quiet
        self.calls = 0

    def __getitem__(self, id):
        raise AssertionError("__getitems__ is there to be used")

    def __getitems__(self, ids):
        self.calls += 1
        return [(id,) if id < self.quiet else super(NoisyBatches, self).__getitem__(id) for id in ids]


class Believing:
    """Sample i is (i, the epoch of `current_sample`, the epoch that `set_epoch` told)."""

    def __init__(self, n):
        self.n = n
        self.epoch = -1

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return self.n

    def __getitem__(self, id):
        sample = current_sample()
        assert sample.id == id
        return id, sample.epoch, self.epoch


class Worker(Ids):
    """Sample i is (i, the worker that read it)."""

    def __getitem__(self, id):
        info = get_worker_info()
        return id, -1 if info is None else info.id


# How workers start where a test doesn't say: the fast way, which is no longer Python's own choice from 3.14 on.
FORK = {"multiprocessing_context": "fork"}


def as_list(samples):
    """A collate function that leaves the samples as they are."""
    return list(samples)


def tag(samples):
    return ("collated", list(samples))


def make_loader(n, batch_size, *, order_seed=1, tail="drop", dataset=None, topology=None, plan=None, **arguments):
    """A loader over `Ids` (or `dataset`) that gives lists of samples."""
    plan = Plan(Shuffle(n, order_seed), batch_size, tail) if plan is None else plan
    dataset = Ids(n) if dataset is None else dataset
    topology = Topology() if topology is None else topology
    start = FORK if arguments.get("num_workers") else {}
    return Loader(dataset, plan, topology, **{"collate_fn": as_list, **start, **arguments})


def batches(plan, first, last):
    """The global batches of some steps, as lists."""
    return [plan.batch(step).ids.tolist() for step in range(first, last)]


def joined(per_rank):
    """One micro-batch put together from the ranks' parts: row k is of rank k mod W."""
    width = max(len(part) for part in per_rank)
    return [part[row] for row in range(width) for part in per_rank if row < len(part)]


def global_streams():
    """The state of the three global streams, comparable with ==."""
    state = np.random.get_state(legacy=False)
    return (
        random.getstate(),
        repr({**state, "state": {k: np.asarray(v).tolist() for k, v in state["state"].items()}}),
        torch.get_rng_state().tolist(),
    )


# --- new processes ----------------------------------------------------------------------------------------------------


@cache
def _forkserver():
    """A context whose processes carry nothing over from this one; only the imports are done once for all of them."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["torch", "torch.utils.data", "detdata.loader", "detdata.samplers", "tests.torch_side"]
    )
    return context


def start_method(name):
    """A DataLoader's multiprocessing_context; its forkserver has done the slow imports."""
    return _forkserver() if name == "forkserver" else name


def _child(pipe, function, arguments):
    torch.set_num_threads(1)
    try:
        pipe.send((True, function(*arguments)))
    except BaseException:
        pipe.send((False, traceback.format_exc()))


def in_new_process(function, *arguments):
    """Call a function of this module (or another importable one) in a new process that shares no memory with this."""
    context = _forkserver()
    here, there = context.Pipe()
    process = context.Process(target=_child, args=(there, function, arguments))
    process.start()
    there.close()
    try:
        fine, value = here.recv()
    finally:
        process.join(60)
    assert fine, value
    assert process.pid != os.getpid()
    return value


def rest_from_consumed(n, batch_size, seed, consumed, last_step, arguments):
    """What a new process's loader gives from `consumed` samples on."""
    loader = make_loader(n, batch_size, order_seed=seed, **arguments)
    loader.resume(consumed)
    return list(loader.until(last_step))


def rest_from_state(state, last_step, arguments, rank=0, world_size=1):
    """What a new process's loader gives from a state on."""
    plan = from_spec(state["plan"])
    dataset = Ids(plan.order.id_bound)
    loader = make_loader(0, 0, plan=plan, dataset=dataset, topology=Topology(rank, world_size), **arguments)
    loader.load_state_dict(state)
    return list(loader.until(last_step))


def rest_of_sampler(state, n, world_size, rank):
    """What a new process's sampler gives from a state to the end of the epoch."""
    sampler = DistributedSampler(range(n), world_size, rank)
    sampler.load_state_dict(state)
    return list(sampler)


def rest_from_sampler(n, batch_size, seed, consumed, last_step, arguments):
    """What a new process's DataLoader gives by a batch sampler resumed at `consumed` samples."""
    plan = Plan(Shuffle(n, seed), batch_size)
    sampler = BatchSampler(plan, Topology())
    sampler.resume(consumed)
    loader = DataLoader(Ids(n), batch_sampler=sampler, collate_fn=as_list, **arguments)
    found = []
    while len(found) < last_step - plan.step(consumed):
        found += list(loader)
    return found
