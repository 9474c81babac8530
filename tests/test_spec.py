"""docs/spec.md says what the library does: its vectors hold, and implementations written from the page agree."""

import json
import shutil
import subprocess
from itertools import islice, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detdata import Plan, Shuffle, derive_seed, from_spec
from detdata.keys import fold, mix64, sample_seeds
from detdata.permutation import permute, unpermute
from tests import second
from tests.orders.strategies import orders
from tests.plans.test_plan_oracle import build, histories
from tests.sources import ROOT
from tests.test_docs import blocks_of

SPEC = ROOT / "docs" / "spec.md"
RECORDS = [json.loads(block.code) for block in blocks_of(SPEC) if block.info == "json"]
VECTORS = {record["vectors"]: record["rows"] for record in RECORDS if "vectors" in record}
SIZES = [1, 2, 7, 1000, 65535, 65536, 65537, 10**6 + 3, 2**32 + 5, 10**12, 2**53 + 1, 2**62]
SEEDS = st.integers(0, 2**63 - 1)


def test_the_page_has_vectors_for_every_section():
    names = ["fold", "derive_seed", "mix64", "sample_seed", "permutation", "order", "mixture", "plan"]
    names += ["streams", "file", "dataset", "listing", "rows", "index", "range", "skips", "corpus_order"]
    names += ["deal", "weighted", "class_balanced", "permute_each", "group_shuffle", "split", "split_order"]
    names += ["bucket_plan", "document_shuffle", "pack", "linear_ramp", "schedules"]

    assert list(VECTORS) == names
    assert sorted({row["n"] for row in VECTORS["permutation"]}) == SIZES


@pytest.mark.parametrize("made", [fold, second.fold])
def test_the_keys_on_the_page_are_those_made(made):
    for row in VECTORS["fold"] + VECTORS["streams"]:
        assert row["key"] == made(*row["path"]), row


@pytest.mark.parametrize("made", [derive_seed, second.derive_seed])
def test_the_derived_seeds_on_the_page_are_those_made(made):
    for row in VECTORS["derive_seed"]:
        assert row["key"] == made(row["seed"], *row["path"]), row


def test_the_mixed_numbers_on_the_page_are_those_made():
    z = [row["z"] for row in VECTORS["mix64"]]
    mixed = [row["mixed"] for row in VECTORS["mix64"]]

    assert mixed == mix64(np.array(z, dtype=np.uint64)).tolist() == [second.mix64(one) for one in z]


def test_the_sample_seeds_on_the_page_are_those_made():
    for row in VECTORS["sample_seed"]:
        address = row["seed"], row["epoch"]
        assert row["seeds"] == sample_seeds(*address, row["ids"]).tolist()
        assert row["seeds"] == [second.sample_seed(*address, id) for id in row["ids"]]


@pytest.mark.parametrize("row", VECTORS["permutation"], ids=lambda row: f"n={row['n']},epoch={row['epoch']}")
def test_the_permutations_on_the_page_are_those_made(row):
    n, key = row["n"], row["key"]

    assert key == fold("detdata.shuffle/1", row["seed"], row["epoch"])
    assert row["ids"] == Shuffle(n, row["seed"]).take(row["positions"], row["epoch"]).tolist()
    assert row["ids"] == [second.permute(p, n, key) for p in row["positions"]]
    assert row["positions"] == [second.unpermute(id, n, key) for id in row["ids"]]


@pytest.mark.parametrize("row", VECTORS["order"], ids=lambda row: row["spec"]["format"])
def test_the_orders_on_the_page_are_those_made(row):
    order = from_spec(row["spec"])

    assert row["spec"] == order.spec()
    assert row["ids"] == order.take(row["positions"], row["epoch"]).tolist()
    if order.size < 100:
        assert row["ids"] == [second.take(row["spec"], p, row["epoch"]) for p in row["positions"]]


@pytest.mark.parametrize("row", VECTORS["plan"], ids=lambda row: row["spec"]["tail"])
def test_the_plans_on_the_page_are_those_made(row):
    plan = from_spec(row["spec"])

    assert row["spec"] == plan.spec()
    for batch in row["batches"]:
        found = plan.batch(batch["step"])
        assert batch["ids"] == found.ids.tolist()
        assert batch["real"] == found.real.astype(int).tolist()
        assert batch["epochs"] == found.epochs.tolist()
        assert (batch["epoch"], batch["start"]) == (found.epoch, found.start)
        assert batch["consumed"] == plan.consumed(batch["step"])
    digest = row["digest"]
    assert digest["value"] == plan.digest(digest["first"], digest["last"])
    if plan.order.size < 100:
        batches = list(islice(second.steps(row["spec"]), digest["first"], digest["last"]))
        assert digest["value"] == second.digest(row["spec"], batches)


def test_the_records_on_the_page_are_those_of_the_torch_side():
    from detdata import DistributedSampler, Loader

    records = {record["format"]: record for record in RECORDS if "format" in record}
    loader_state, sampler_state = records["detdata.loader/1"], records["detdata.distributed_sampler/1"]
    plan = from_spec(loader_state["plan"])
    loader = Loader(list(range(1000)), plan, micro_steps=2)
    loader.load_state_dict(loader_state)
    sampler = DistributedSampler(range(1000), 8, 3, seed=7)
    sampler.load_state_dict(sampler_state)

    assert loader_state == json.loads(json.dumps(loader.state_dict()))
    assert sampler_state == json.loads(json.dumps(sampler.state_dict()))


def test_the_records_on_the_page_are_those_of_streams():
    from detdata import Resumable, Stream, Topology

    records = {record["format"]: record for record in RECORDS if "format" in record}
    rows = [[id] * (id * 5 % 7) for id in range(30)]
    stream = Stream(rows, batch_size=4, seq_len=3, eos=9, tail="carry", lanes=2, topology=Topology())
    list(stream.until(2))
    samples = Resumable([1, 2, 3], Topology())
    next(iter(samples))

    assert records["detdata.stream/1"] == json.loads(json.dumps(stream.state_dict()))
    assert records["detdata.resumable/1"] == json.loads(json.dumps(samples.state_dict()))
    stream.load_state_dict(records["detdata.stream/1"])


@given(st.lists(st.one_of(st.integers(0, 2**64 - 1), st.text(max_size=40)), max_size=6))
def test_keys_are_what_the_second_implementation_makes(path):
    assert second.fold(*path) == fold(*path)


@given(st.integers(65537, 2**62), st.integers(0, 2**64 - 1), st.data())
def test_large_permutations_are_what_the_second_implementation_makes(n, key, data):
    p = data.draw(st.integers(0, n - 1))
    id = second.permute(p, n, key)

    assert id == int(permute(np.array([p]), n, key)[0])
    assert p == second.unpermute(id, n, key) == int(unpermute(np.array([id]), n, key)[0])


@given(st.integers(1, 300), st.integers(0, 2**64 - 1))
def test_small_permutations_are_what_the_second_implementation_makes(n, key):
    assert second.by_sorting(n, key) == permute(np.arange(n), n, key).tolist()


@given(orders(largest=20), st.integers(0, 2**63 - 1))
def test_nested_orders_are_what_the_second_implementation_makes(order, epoch):
    spec = json.loads(json.dumps(order.spec()))

    assert (order.size, order.id_bound) == (second.size_of(spec), second.bound_of(spec))
    positions = range(0, order.size, max(1, order.size // 8))
    assert [second.take(spec, p, epoch) for p in positions] == order.take(positions, epoch).tolist()


@given(histories())
def test_plans_are_what_the_walk_on_the_page_gives(history):
    plan, _ = build(history)
    consumed = 0
    for step, rows in enumerate(islice(second.steps(plan.spec()), 25)):
        batch = plan.batch(step)
        found = zip(batch.epochs.tolist(), batch.real.tolist(), batch.ids.tolist(), strict=True)
        assert [(e, real, int(plan.order.take(p, e))) for e, p, real in rows] == list(found)
        assert consumed == plan.consumed(step)
        consumed += sum(real for _, _, real in rows)


@given(histories(), st.integers(0, 40), st.integers(1, 4), st.integers(1, 3))
def test_shards_are_the_rows_that_the_page_names(history, step, world_size, micro_steps):
    plan, _ = build(history)
    unit = world_size * micro_steps
    if plan.tail == "drop" and plan.order.size < unit:
        return
    plan = plan.resized(step, max(unit, plan.batch_size_at(step) // unit * unit))
    batch = plan.batch(step)
    for rank in range(world_size):
        expected = second.part(batch.ids.tolist(), plan.batch_size_at(step), rank, world_size, micro_steps)
        assert expected == plan.shard(step, rank, world_size, None, micro_steps).ids.tolist()


def test_a_plan_has_the_one_form_that_the_page_calls_canonical():
    plan = Plan(Shuffle(100, 1), 5)

    assert plan.resized(3, 5) == plan
    assert plan.resized(0, 7) == Plan(Shuffle(100, 1), 7)
    assert plan.resized(4, 7).resized(4, 5) == plan
    assert plan.skipping(2, 4).skipping(2, 3) == plan.skipping(2, 5)  # they touch
    for changed in (plan.resized(9, 3).skipping(2, 6), plan.skipping(1, 2).resized(30, 4).skipping(3, 40)):
        steps = [step for step, _ in changed.resizes]
        assert steps == sorted(set(steps))
        assert all(a != b for a, b in pairwise([changed.batch_size, *(size for _, size in changed.resizes)]))


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler on this machine")
    target = tmp_path_factory.mktemp("second") / "second"
    source = ROOT / "tests" / "second.c"
    built = subprocess.run(
        [compiler, "-O1", "-std=gnu99", "-o", target, source], capture_output=True, text=True, check=False
    )
    if "__int128" in built.stderr:
        pytest.skip("the C compiler has no 128-bit integers, which the program takes for its hash")
    assert built.returncode == 0, built.stderr
    return target


def test_a_c_program_written_from_the_page_makes_the_same_shuffles(program):
    cases = [
        (n, seed, epoch, p)
        for n in [*SIZES, 3, 2**31, 2**31 + 1, 2**62 - 1, 2**16 + 2**8]
        for seed, epoch in ((0, 0), (12345, 678), (2**63 - 1, 2**63 - 1))
        for p in sorted({0, 1 % n, n // 3, n // 2, n - 1})
    ]
    lines = "\n".join(" ".join(map(str, case)) for case in cases)

    out = subprocess.run([program], input=lines, capture_output=True, text=True, timeout=60, check=True).stdout

    expected = [f"{Shuffle(n, seed).take(p, epoch)} {p}" for n, seed, epoch, p in cases]
    assert expected == out.splitlines()
