"""Two trees beside each other: exactly what differs, nothing else; over random edits, dtypes and layouts."""

from __future__ import annotations

import copy
import math
from collections import OrderedDict
from contextlib import nullcontext

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from detdata import UnknownFormat
from detdata.checkpoint.tensor_difference import unequal, values
from detdata.checkpoint.tree_difference import MAX_DEPTH, diff_trees, path_text, tensors_of
from tests.checkpoint.fakes import bits

DTYPES = [
    torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.complex64,
    torch.complex128, torch.int64, torch.int32, torch.uint8, torch.int8, torch.uint16, torch.uint64,
]  # fmt: skip
KEYS = ["a", "b", "weight", "exp_avg", 0, 1, True, 1.5, "1", "x/y", "é"]


def random_tensor(draw):
    dtype = draw(st.sampled_from(DTYPES))
    shape = draw(st.lists(st.integers(0, 4), max_size=3))
    raw = draw(st.binary(min_size=(size := math.prod(shape) * dtype.itemsize), max_size=size))
    return torch.frombuffer(bytearray(raw), dtype=dtype).reshape(shape) if raw else torch.empty(shape, dtype=dtype)


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=5), st.just(torch.float32)
)


@st.composite
def trees(draw, depth=0):
    tree = draw(st.sampled_from([dict, OrderedDict]))()
    for key in draw(st.lists(st.sampled_from(KEYS), max_size=4, unique_by=repr)):
        if key in tree:
            continue  # 1 and True are one key in Python
        kind = draw(st.sampled_from(["tensor", "tensor", "scalar", "tree"] if depth < 2 else ["tensor", "scalar"]))
        if kind == "tree":
            tree[key] = draw(trees(depth + 1))
        else:
            tree[key] = random_tensor(draw) if kind == "tensor" else draw(SCALARS)
    return tree


def edit(draw, a, b, path, expected):
    """Change `b`, which is a copy of `a`, in random places; note (name, kind, unequal elements, first) of each."""
    for key, value in a.items():
        name = path_text((*path, key))
        if isinstance(value, dict):
            if draw(st.sampled_from([False, False, False, True])):
                del b[key]
                expected.add((name, "only_a", None, None))
            else:
                edit(draw, value, b[key], (*path, key), expected)
            continue
        ways = ["keep", "keep", "remove", "type"]
        if isinstance(value, torch.Tensor):
            ways += ["shape"] + (["bits", "bits"] if value.numel() else [])
        elif type(value) in (int, str):
            ways.append("value")
        way = draw(st.sampled_from(ways))
        if way == "remove":
            del b[key]
            expected.add((name, "only_a", None, None))
        elif way == "type":
            b[key] = [value]
            expected.add((name, "type", None, None))
        elif way == "shape":
            b[key] = torch.zeros([*value.shape, 2], dtype=value.dtype)
            expected.add((name, "shape", None, None))
        elif way == "value":
            b[key] = value + value[:1] + "+" if type(value) is str else value + 1
            expected.add((name, "value", None, None))
        elif way == "bits":
            places = draw(st.lists(st.integers(0, value.numel() - 1), min_size=1, unique=True))
            raw = b[key].reshape(-1).view(torch.uint8).view(value.numel(), -1)
            for place in places:
                raw[place, draw(st.integers(0, value.dtype.itemsize - 1))] ^= 1 << draw(st.integers(0, 7))
            first = tuple(int(i) for i in torch.unravel_index(torch.tensor(min(places)), value.shape))
            expected.add((name, "elements", len(places), first if value.dim() else ()))
    if draw(st.sampled_from([False, False, True])):
        b["new"] = draw(SCALARS)
        expected.add((path_text((*path, "new")), "only_b", None, None))


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_the_diff_of_two_trees_is_exactly_the_edits(data):
    a = data.draw(trees())
    b = copy.deepcopy(a)
    expected = set()
    edit(data.draw, a, b, (), expected)

    found = diff_trees(a, b, "x.pt").differences

    assert len(found) == len(expected)
    assert expected == {
        (one.name, one.kind, one.elements and one.elements.count, one.elements and one.elements.first) for one in found
    }
    if not expected:
        assert bits(a) == bits(b)
    mirrored = {"only_a": "only_b", "only_b": "only_a"}
    assert {(one.name, mirrored.get(one.kind, one.kind)) for one in diff_trees(b, a).differences} == {
        (one.name, one.kind) for one in found
    }
    assert all(str(one) for one in found)


@given(st.lists(st.tuples(st.floats(width=32), st.floats(width=32)), min_size=1, max_size=20))
def test_distances_are_those_of_plain_arithmetic(pairs):
    found = unequal(*(torch.tensor(side, dtype=torch.float32) for side in zip(*pairs, strict=True)))

    apart, relative, nan, count = [], [], 0, 0
    for x, y in pairs:
        if x == y or (math.isnan(x) and math.isnan(y)):
            if x == 0 and math.copysign(1, x) != math.copysign(1, y):
                count, apart, relative = count + 1, [*apart, 0.0], [*relative, 0.0]
            continue
        count += 1
        if math.isnan(x) or math.isnan(y):
            nan += 1
            continue
        apart.append(abs(x - y))
        relative.append(math.inf if math.isinf(x - y) else abs(x - y) / max(abs(x), abs(y)))
    assert (0 if found is None else found.count) == count
    if found is not None:
        assert found.nan == nan
        assert found.max_abs == (max(apart) if apart else None)
        assert found.max_rel == (pytest.approx(max(relative)) if relative else None)


def test_nans_of_the_same_bits_are_equal_and_of_other_bits_are_not():
    nan = torch.tensor([1.0, math.nan])
    other = torch.tensor([0x3F800000, 0x7FC00001], dtype=torch.int32).view(torch.float32)

    assert unequal(nan, nan.clone()) is None
    found = unequal(nan, other)
    assert (found.count, found.nan, found.max_abs, found.first) == (1, 1, None, (1,))
    assert (found.a, found.b) == ("nan (0x7fc00000)", "nan (0x7fc00001)")


def test_signed_zeros_differ_by_nothing_and_are_told_apart():
    found = unequal(torch.tensor([0.0]), torch.tensor([-0.0]))

    assert (found.count, found.max_abs, found.max_rel, found.a, found.b) == (1, 0.0, 0.0, "0", "-0")


@pytest.mark.parametrize(
    ("dtype", "a", "b", "apart"),
    [
        (torch.int64, -(2**63), 2**63 - 1, 2**64 - 1),
        (torch.int64, 2**62, 2**62 + 1, 1),
        (torch.uint64, 0, 2**64 - 1, 2**64 - 1),
        (torch.uint8, 0, 255, 255),
        (torch.int8, -128, 127, 255),
    ],
)
def test_differences_of_integers_are_exact(dtype, a, b, apart):
    found = unequal(torch.tensor([a], dtype=dtype), torch.tensor([b], dtype=dtype))

    assert found.max_abs == apart
    assert type(found.max_abs) is int


def test_a_tensor_larger_than_a_piece_is_counted_whole(monkeypatch):
    monkeypatch.setattr("detdata.checkpoint.tensor_difference.PIECE", 7)
    a = torch.arange(100.0).reshape(10, 10)
    b = a.clone()
    b[3, 4] += 1
    b[9, 9] -= 2

    found = unequal(a, b.t().contiguous().t())  # another order in memory

    assert (found.count, found.max_abs, found.first) == (2, 2.0, (3, 4))
    seen = values(b.t())
    assert (seen.minimum, seen.maximum, seen.non_finite) == (0.0, 98.0, 0)
    assert seen.mean == pytest.approx(b.mean().item())


def test_values_leave_out_what_is_not_finite():
    seen = values(torch.tensor([1.0, math.nan, math.inf, -3.0]))

    assert (seen.minimum, seen.maximum, seen.mean, seen.non_finite) == (-3.0, 1.0, -1.0, 2)
    assert values(torch.tensor([math.nan])).mean is None
    assert values(torch.empty(0)).minimum is None


def test_another_dtype_is_told_with_how_far_the_values_are_apart():
    [found] = diff_trees(
        {"w": torch.tensor([1.0, 1.001])}, {"w": torch.tensor([1.0, 1.001]).to(torch.bfloat16)}
    ).differences

    assert found.kind == "dtype"
    assert (found.elements.count, found.elements.first) == (1, (1,))
    assert "float32 [2] in a, bfloat16 [2] in b" in str(found)


def test_sparse_and_quantized_tensors_are_compared_by_what_they_consist_of():
    dense = torch.tensor([[0.0, 2.0], [0.0, 0.0]])
    other = torch.tensor([[0.0, 3.0], [0.0, 0.0]])
    for layout in ("to_sparse", "to_sparse_csr"):
        with pytest.warns() if layout == "to_sparse_csr" else nullcontext():
            a, b = (getattr(side, layout)() for side in (dense, other))
        assert diff_trees({"s": a}, {"s": a.clone()}).differences == ()
        [found] = diff_trees({"s": a}, {"s": b}).differences
        assert (found.name, found.elements.count) == ("s/values", 1)
    [found] = diff_trees({"s": dense}, {"s": dense.to_sparse()}).differences
    assert found.kind == "type"


def test_kinds_of_containers_and_keys_that_python_takes_for_equal_are_told_apart():
    [found] = diff_trees({"x": [1]}, {"x": (1,)}).differences
    assert (found.kind, found.a, found.b) == ("type", "list", "tuple")
    assert [one.kind for one in diff_trees({1: 0}, {True: 0}).differences] == ["only_a", "only_b"]
    assert [one.kind for one in diff_trees({"x": 1}, {"x": True}).differences] == ["type"]
    assert diff_trees({"a": 1, "b": 2}, {"b": 2, "a": 1}).differences == ()


def test_trees_made_to_hurt_take_no_time_and_no_stack():
    bomb = ["x"]
    for _ in range(60):
        bomb = [bomb, bomb]
    twin = copy.deepcopy(bomb)
    assert diff_trees({"x": bomb}, {"x": twin}).differences == ()
    assert list(tensors_of({"x": bomb})) == []
    deep, ring = [], []
    for _ in range(MAX_DEPTH + 5):
        deep = [deep]
    ring.append(ring)
    with pytest.raises(UnknownFormat, match="deep"):
        diff_trees(deep, copy.deepcopy(deep))
    assert diff_trees(ring, ring).differences == ()
