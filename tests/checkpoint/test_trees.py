"""Trees: what is written can be read back without running code, and the same state gives the same bytes."""

import enum
import io
import tempfile
from collections import Counter, OrderedDict, defaultdict
from typing import NamedTuple

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings

from detdata.checkpoint import Checkpointer
from detdata.checkpoint.manifest import read_manifest
from detdata.checkpoint.rng import capture_rng, restore_rng
from detdata.checkpoint.tensors import tree_writer
from detdata.checkpoint.trees import plain
from tests.checkpoint.fakes import Box, bits, make_model, train

KEYS = st.one_of(
    st.text(max_size=5), st.integers(-(2**40), 2**40), st.booleans(), st.none(), st.binary(min_size=1, max_size=3)
)
ATOMS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**1900), 2**1900),
    st.floats(),
    st.complex_numbers(),
    st.text(max_size=8),
    st.binary(min_size=1, max_size=8),
    st.sampled_from([torch.float16, torch.device("cpu"), torch.Size([2, 3])]),
    st.builds(
        lambda n, t: torch.arange(n).to(t),
        st.integers(0, 5),
        st.sampled_from([torch.int64, torch.bfloat16, torch.bool]),
    ),
)
TREES = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(KEYS, inner, max_size=4),
        st.dictionaries(KEYS, inner, max_size=4).map(OrderedDict),
        st.dictionaries(KEYS, st.integers(0, 9), max_size=4).map(Counter),
    ),
    max_leaves=8,
)


def written(tree):
    file = io.BytesIO()
    tree_writer(plain(tree, "part"))(file)
    return file.getvalue()


@given(TREES)
def test_a_tree_that_is_allowed_is_read_back_bit_for_bit_and_written_again_as_the_same_bytes(tree):
    data = written(tree)

    loaded = torch.load(io.BytesIO(data), weights_only=True)

    assert repr(bits(loaded)) == repr(bits(tree))  # repr: nan is nan
    assert written(loaded) == data


class Named(NamedTuple):
    x: int


class Colour(enum.IntEnum):
    RED = 1


@pytest.mark.parametrize(
    "value",
    [
        {1},
        object(),
        defaultdict(int),
        Named(1),
        Colour.RED,
        lambda: 0,
        np.arange(3),
        np.longdouble(1) / 3,
        np.datetime64(1, "D"),
        2**5000,
        "\ud800",
        b"",
        torch.empty(2, device="meta"),
        {torch.device("cpu"): 1},
        type("Sub", (torch.Tensor,), {})(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_not_allowed_is_refused_with_part_and_path(value):
    with pytest.raises(TypeError, match=r"^optimizer\['state'\]\[0\].* is an? "):
        plain({"state": [value]}, "optimizer")


def test_numpy_scalars_become_the_python_numbers_of_the_same_value():
    tree = plain({np.int64(3): [np.float32(0.1), np.bool_(True), np.uint64(2**64 - 1), np.str_("a")]}, "part")

    assert tree == {3: [float(np.float32(0.1)), True, 2**64 - 1, "a"]}
    assert [type(item) for item in tree[3]] == [float, bool, int, str]


def test_a_tree_without_end_is_refused():
    tree = []
    tree.append(tree)

    with pytest.raises(ValueError, match="nested more than 100 deep"):
        plain(tree, "part")


def test_tensors_are_not_copied():
    tensor = torch.nn.Parameter(torch.ones(3))

    copy = plain([tensor], "part")[0]

    assert (type(copy), copy.data_ptr(), copy.requires_grad) == (torch.Tensor, tensor.data_ptr(), False)


@pytest.mark.parametrize("kind", ["MT19937", "PCG64", "Philox", "SFC64"])
def test_numpys_global_stream_is_kept_whatever_generator_it_has(kind):
    before = np.random.get_bit_generator()
    try:
        np.random.set_bit_generator(getattr(np.random, kind)(3))
        np.random.standard_normal()
        data = written(capture_rng())
        expected = np.random.standard_normal(4).tolist(), np.random.randint(0, 99, 3).tolist()
        restore_rng(torch.load(io.BytesIO(data), weights_only=True))
        assert (np.random.standard_normal(4).tolist(), np.random.randint(0, 99, 3).tolist()) == expected
    finally:
        np.random.set_bit_generator(before)


@settings(max_examples=10)
@given(
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float64]),
    optimizer=st.sampled_from([torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad, torch.optim.RMSprop]),
    steps=st.integers(0, 3),
    extra=st.dictionaries(st.text(min_size=1, max_size=4), TREES, max_size=2),
    seed=st.integers(0, 2**31),
)
def test_saved_loaded_and_saved_again_every_part_has_the_same_bits(dtype, optimizer, steps, extra, seed):
    def build(seed):
        model = make_model(seed).to(dtype)
        built = optimizer(model.parameters(), lr=0.1)
        return model, built, torch.optim.lr_scheduler.CosineAnnealingLR(built, 10)

    def digests(path):
        return {name: file.digest for name, file in read_manifest(path).files.items() if name != "meta.json"}

    torch.manual_seed(seed)
    model, built, scheduler = build(0)
    torch.set_default_dtype(dtype)
    try:
        train(model, built, scheduler, steps)
    finally:
        torch.set_default_dtype(torch.float32)
    with tempfile.TemporaryDirectory() as root:
        boxes = {name: Box(value) for name, value in extra.items()}
        checkpointer = Checkpointer(root, model=model, optimizer=built, scheduler=scheduler, extra=boxes)
        first = digests(checkpointer.save())
        model, built, scheduler = build(1)
        boxes = {name: Box() for name in extra}
        checkpointer = Checkpointer(root, model=model, optimizer=built, scheduler=scheduler, extra=boxes)
        checkpointer.resume()
        assert digests(checkpointer.save("periodic")) == first
