"""What the tests of streams share: files to stream, functions that every start method can pickle, new processes."""

import json
import random

import numpy as np
import torch

from detdata import Stream, Topology, current_sample, open_corpus
from tests.torch_side import FORK


def write_jsonl(folder, sizes, *, start=0, name="part"):
    """Files of rows {"id": …, "text": …}, ids counted on from `start`; returns their paths."""
    paths, id = [], start
    for number, size in enumerate(sizes):
        path = folder / f"{name}-{number:03d}.jsonl"
        rows = ({"id": id + k, "text": "ä" * (1 + (id + k) % 7)} for k in range(size))
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
        paths.append(path)
        id += size
    return paths


def corpus_of(folder, sizes, **options):
    write_jsonl(folder, sizes)
    return open_corpus(folder, index="no", **options)


def id_of(row):
    return row["id"]


def keeps(id):
    """Whether the test filter keeps a number: about three of five, in runs."""
    return (id * id // 7) % 5 < 3


def kept_row(row):
    return keeps(row["id"])


def tokens_of(row):
    """Between 0 and 6 tokens that tell the row and their place in it."""
    id = row["id"] if isinstance(row, dict) else row
    return [10 * id + k for k in range((id * 5) % 7)]


def noisy(row):
    """The row's number, and a number from each stream that an augmentation may use."""
    id = row["id"] if isinstance(row, dict) else row
    held = current_sample()
    return (
        id,
        held.epoch,
        random.getrandbits(31),
        int(np.random.randint(0, 2**31)),
        int(torch.randint(0, 2**31, ())),
        int(held.rng().integers(0, 2**31)),
    )


def as_list(samples):
    return list(samples)


def as_it_is(item):
    return item


def as_lists(samples):
    return [sample.tolist() for sample in samples]


def number_of(row):
    """The epoch in which a row is read, as a map sees it, with the row."""
    return row, current_sample().epoch


def make(dataset, batch_size=None, *, rank=0, world_size=1, num_workers=0, **options):
    """A stream that gives lists."""
    start = FORK if num_workers else {}
    if batch_size is not None or "seq_len" not in options:
        options.setdefault("collate_fn", as_lists if "seq_len" in options else as_list)
    topology = Topology(rank, world_size)
    return Stream(dataset, None, batch_size, topology=topology, num_workers=num_workers, **{**start, **options})


def rest_of(paths, batch_size, state, options, stop=None):
    """What a stream over these files gives from a state on: to step `stop`, or to the end of the epoch."""
    corpus = open_corpus([str(path) for path in paths], index="no")
    stream = make(corpus, batch_size, **options)
    stream.load_state_dict(state)
    return list(stream if stop is None else stream.until(stop))


def rest_of_list(n, batch_size, state, options, stop=None):
    """The same over the numbers below n."""
    stream = make(list(range(n)), batch_size, **options)
    stream.load_state_dict(state)
    return list(stream if stop is None else stream.until(stop))


def rest_from(paths, batch_size, consumed, options):
    """The same from `consumed` samples on."""
    corpus = open_corpus([str(path) for path in paths], index="no")
    stream = make(corpus, batch_size, **options)
    stream.resume(consumed)
    return list(stream)
