"""The loader: the plan's batches, a position that counts what was consumed, torch's arguments passed on."""

import gc

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import IterableDataset

from detdata import DetdataError, Loader, Plan, Progress, Sequential, Shuffle, Subset, Topology
from detdata.loader import StaleIteration
from tests.torch_side import (
    Counting,
    Ids,
    Worker,
    as_list,
    batches,
    joined,
    make_loader,
    start_method,
    tag,
)

# --- batches and progress ---------------------------------------------------------------------------------------------


def test_a_for_gives_the_rest_of_the_epoch_and_the_next_for_the_next_epoch():
    loader = make_loader(20, 4)
    plan = loader.plan
    for epoch in range(3):
        assert Progress(5 * epoch, epoch, 20 * epoch) == loader.progress
        assert batches(plan, 5 * epoch, 5 * epoch + 5) == list(loader)
    loader.resume(8)
    assert batches(plan, 2, 5) == list(loader)
    assert batches(plan, 5, 10) == list(loader)


def test_progress_counts_a_batch_from_the_moment_the_loop_has_it():
    loader = make_loader(10, 4, tail="keep", micro_steps=2)
    seen = [Progress()]
    for _ in loader:
        seen.append(loader.progress)
    assert [
        Progress(0, 0, 0, 0),
        Progress(0, 0, 0, 1),
        Progress(1, 0, 4, 0),
        Progress(1, 0, 4, 1),
        Progress(2, 0, 8, 0),
        Progress(3, 1, 10, 0),  # two samples make only one micro-batch of the last step, and it ends the epoch
    ] == seen
    assert seen[-1] == loader.progress


@pytest.mark.parametrize("tail", ["drop", "pad", "keep", "carry"])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_after_an_epochs_last_batch_progress_reads_the_next_epoch(tail, num_workers):
    loader = make_loader(10, 4, tail=tail, num_workers=num_workers)
    plan = loader.plan
    for epoch in range(2):
        count = 0
        for batch in loader:
            count += 1
            last = batch, loader.progress
        step = plan.first_step(epoch + 1)
        assert plan.steps(epoch) == count
        assert last == (plan.batch(step - 1).ids.tolist(), Progress(step, plan.epoch(step), plan.consumed(step)))


def test_the_length_is_the_whole_epochs_and_remaining_counts_down():
    loader = make_loader(22, 4, tail="keep", micro_steps=2)
    assert len(loader) == 11
    left = [loader.remaining]
    for _ in loader:
        left.append(loader.remaining)
        assert len(loader) == 11
    assert left == [11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 11]
    loader.resume(20)
    assert (len(loader), loader.remaining) == (11, 1)


def test_a_tail_that_carries_gives_epochs_of_different_lengths():
    loader = make_loader(10, 4, tail="carry")
    for epoch in range(4):
        steps = loader.plan.steps(epoch)
        assert (steps, steps) == (len(loader), loader.remaining)
        assert steps == len(list(loader))


@given(
    n=st.integers(1, 40),
    tail=st.sampled_from(["drop", "pad", "keep", "carry"]),
    world_size=st.integers(1, 4),
    micro_steps=st.integers(1, 3),
    share=st.integers(1, 3),
)
def test_all_ranks_together_give_the_plans_batches_under_any_tail(n, tail, world_size, micro_steps, share):
    batch_size = world_size * micro_steps * share
    if tail == "drop" and n < batch_size:
        return
    plan = Plan(Shuffle(n, 2), batch_size, tail)
    stop = plan.first_step(3)
    grid = batch_size // micro_steps
    parts = {}
    for rank in range(world_size):
        loader = make_loader(n, batch_size, plan=plan, topology=Topology(rank, world_size), micro_steps=micro_steps)
        lengths = counted = 0
        while loader.progress.global_step < stop:
            lengths, before = lengths + len(loader), counted
            assert len(loader) == loader.remaining
            at = loader.progress
            for part in loader:
                parts.setdefault((at.global_step, at.micro_step), {})[rank] = part
                counted += 1
                at = loader.progress
            assert lengths == counted, before
        assert Progress(stop, plan.epoch(stop), plan.consumed(stop)) == loader.progress
    for step in range(stop):
        ids = plan.batch(step).ids.tolist()
        for micro in range(micro_steps):
            ranks = parts.get((step, micro), {})
            assert ids[micro * grid : (micro + 1) * grid] == joined([ranks.get(rank, []) for rank in range(world_size)])


def test_a_rank_without_a_part_of_a_short_last_batch_goes_on_with_the_others():
    ranks = [make_loader(5, 4, tail="keep", topology=Topology(rank, 2)) for rank in range(2)]
    assert [len(loader) for loader in ranks] == [2, 1]
    assert [[len(part) for part in ranks[0]], [len(part) for part in ranks[1]]] == [[2, 1], [2]]
    assert ranks[0].progress == ranks[1].progress == Progress(2, 1, 5)


# --- until, breaks, two loops at once ---------------------------------------------------------------------------------


@pytest.mark.parametrize("num_workers", [0, 2])
def test_until_runs_over_epoch_ends_up_to_a_step(num_workers):
    loader = make_loader(10, 4, tail="keep", num_workers=num_workers)
    plan = loader.plan
    assert batches(plan, 0, 8) == list(loader.until(8))
    assert Progress(8, 2, plan.consumed(8)) == loader.progress
    assert list(loader.until(8)) == []
    assert list(loader.until(3)) == []
    assert Progress(8, 2, plan.consumed(8)) == loader.progress
    assert batches(plan, 8, 9) == list(loader)


@pytest.mark.parametrize(("step", "error"), [(-1, ValueError), (1.0, TypeError), (None, TypeError), (True, TypeError)])
def test_until_refuses_what_is_no_step_at_once(step, error):
    with pytest.raises(error, match="step"):
        make_loader(10, 4).until(step)


@pytest.mark.parametrize(
    "arguments", [{}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": True, "prefetch_factor": 4}], ids=str
)
def test_a_loop_may_be_left_and_gone_on_with_at_any_batch(arguments):
    loader = make_loader(24, 4, **arguments)
    plan = loader.plan
    found = []
    for lengths in (1, 2, 3, 1, 5, 1, 4):
        for _, batch in zip(range(lengths), loader.until(17), strict=False):
            found.append(batch)
        assert len(found) == loader.progress.global_step
    assert batches(plan, 0, 17) == found


def test_an_exception_in_the_loop_loses_nothing():
    loader = make_loader(24, 4, num_workers=1)
    found = []
    for _ in range(3):
        try:
            for batch in loader:
                found.append(batch)
                raise RuntimeError
        except RuntimeError:
            pass
    assert batches(loader.plan, 0, 3) == found


@pytest.mark.parametrize("arguments", [{}, {"num_workers": 1}, {"num_workers": 1, "persistent_workers": True}], ids=str)
def test_of_two_loops_at_once_the_older_one_ends_with_an_error(arguments):
    loader = make_loader(24, 4, **arguments)
    plan = loader.plan
    older, newer = iter(loader), iter(loader)
    assert batches(plan, 0, 1) == [next(older)]
    assert batches(plan, 1, 2) == [next(newer)]
    with pytest.raises(StaleIteration, match="new `for batch in loader`") as raised:
        next(older)
    assert isinstance(raised.value, DetdataError)
    assert batches(plan, 2, 6) == list(newer)
    assert batches(plan, 6, 12) == list(loader)


@pytest.mark.parametrize(
    "move", [lambda loader: loader.resume(0), lambda loader: loader.load_state_dict(loader.state_dict())]
)
def test_a_position_that_is_moved_in_a_loop_ends_it_with_an_error(move):
    loader = make_loader(24, 4)
    loop = iter(loader)
    next(loop)
    move(loader)
    with pytest.raises(StaleIteration):
        next(loop)
    del loop
    gc.collect()
    assert loader.progress.global_step <= 1


# --- resume -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tail", ["drop", "pad", "keep", "carry"])
def test_a_resume_at_any_step_reads_no_skipped_sample(tail):
    plan = Plan(Shuffle(18, 1), 4, tail)
    for step in range(13):
        dataset = Counting(18)
        loader = make_loader(18, 4, plan=plan, dataset=dataset)
        loader.resume(plan.consumed(step))
        assert dataset.reads.value == 0
        assert batches(plan, step, 13) == list(loader.until(13))
        assert sum(len(plan.batch(s)) for s in range(step, 13)) == dataset.reads.value


def test_a_count_that_is_no_batch_edge_is_refused_naming_the_nearest_two():
    loader = make_loader(20, 8, tail="keep")
    loader.resume(8)
    with pytest.raises(ValueError, match=r"12.*8.*16"):
        loader.resume(12)
    assert loader.progress.global_step == 1


def test_a_resume_far_beyond_any_epoch_costs_the_same():
    loader = Loader(range(10**12), Plan(Shuffle(10**12, 1), 4), Topology(), collate_fn=as_list)
    step = 2**53 + 1
    loader.resume(4 * step)
    assert loader.plan.batch(step).ids.tolist() == next(iter(loader))
    assert 4 * (step + 1) == loader.progress.consumed_samples


class Streamed(IterableDataset):
    def __iter__(self):
        return iter(range(16))


# --- arguments --------------------------------------------------------------------------------------------------------


def test_torchs_default_collation_makes_tensors():
    batch = next(iter(Loader(range(8), Plan(Sequential(8), 4), Topology())))
    assert torch.equal(torch.tensor([0, 1, 2, 3]), batch)


def test_other_arguments_are_handed_to_torch():
    started = []
    loader = make_loader(
        8,
        2,
        dataset=Worker(8),
        plan=Plan(Sequential(8), 2),
        num_workers=2,
        collate_fn=tag,
        timeout=60,
        prefetch_factor=3,
        multiprocessing_context="fork",
        worker_init_fn=started.append,
        generator=torch.Generator().manual_seed(3),
        pin_memory=False,
        pin_memory_device="",
    )
    assert [("collated", [(2 * k, k % 2), (2 * k + 1, k % 2)]) for k in range(4)] == list(loader)
    assert started == []  # it ran in the workers


def test_pinned_memory_without_an_accelerator_is_warned_of_by_torch():
    if torch.accelerator.is_available():
        pytest.skip("an accelerator is here")
    with pytest.warns(UserWarning, match="pin_memory"):
        assert batches(Plan(Shuffle(8, 1), 4), 0, 2) == list(make_loader(8, 4, pin_memory=True))


@pytest.mark.parametrize("name", ["batch_size", "shuffle", "sampler", "batch_sampler", "drop_last"])
def test_what_the_plan_decides_is_refused(name):
    with pytest.raises(TypeError, match=rf"{name}.*plan decides"):
        Loader(range(8), Plan(Shuffle(8), 4), Topology(), **{name: None})


@pytest.mark.parametrize(
    ("arguments", "error", "name"),
    [
        ({"in_order": False}, ValueError, "in_order"),
        ({"num_worker": 2}, TypeError, "num_worker"),
        ({"num_workers": -1}, ValueError, "num_workers"),
        ({"num_workers": 1.0}, TypeError, "num_workers"),
        ({"micro_steps": 0}, ValueError, "micro_steps"),
        ({"micro_steps": "2"}, TypeError, "micro_steps"),
        ({"micro_steps": 3}, ValueError, r"8.*micro_steps 3"),
        ({"topology": Topology(0, 5)}, ValueError, r"8.*world_size 5"),
        ({"topology": (0, 1)}, TypeError, "topology"),
        ({"plan": Shuffle(16)}, TypeError, "plan"),
        ({"randomness": "epoch"}, ValueError, "randomness"),
        ({"seed": -1}, ValueError, "seed"),
        ({"seed": 1.0}, TypeError, "seed"),
        ({"dataset": iter(range(16))}, TypeError, "dataset"),
        ({"dataset": Streamed()}, TypeError, "map-style"),
        ({"dataset": range(15)}, ValueError, r"15.*16"),
        ({"dataset": range(17)}, ValueError, r"17.*16"),
        ({"dataset": []}, ValueError, r"empty.*list"),
    ],
)
def test_a_wrong_argument_is_refused_by_name(arguments, error, name):
    with pytest.raises(error, match=name) as raised:
        Loader(**{"dataset": range(16), "plan": Plan(Shuffle(16), 8), "topology": Topology(), **arguments})
    assert isinstance(raised.value, DetdataError)


def test_a_dataset_without_a_length_and_a_subset_of_one_are_read():
    class Endless:
        def __getitem__(self, id):
            return id

    assert batches(Plan(Shuffle(8, 1), 4), 0, 2) == list(make_loader(8, 4, dataset=Endless()))
    plan = Plan(Subset(Shuffle(100, 1), [3, 50, 99, 7]), 2)
    assert {3, 7, 50, 99} == {id for batch in make_loader(0, 0, plan=plan, dataset=Ids(100)) for id in batch}


def test_numpy_integers_are_integers():
    loader = make_loader(8, np.int32(4), micro_steps=np.int8(2), num_workers=np.int64(0), seed=np.uint8(3))
    loader.resume(np.int32(4))
    assert batches(loader.plan, 1, 2) == [[id for part in loader.until(np.int16(2)) for id in part]]


def test_the_topology_is_detected_where_none_is_given(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    loader = Loader(range(8), Plan(Sequential(8), 4), collate_fn=as_list)
    assert list(loader) == [[1, 3], [5, 7]]


def test_one_of_a_plans_batch_sizes_must_fit_the_topology():
    plan = Plan(Shuffle(240, 1), 24).resized(3, 20)
    loader = make_loader(240, 0, plan=plan, topology=Topology(0, 5))
    loader.resume(72)
    assert plan.shard(3, 0, 5).ids.tolist() == next(iter(loader))
    with pytest.raises(ValueError, match=r"24.*5"):
        loader.resume(48)
    with pytest.raises(ValueError, match=r"24.*7"):
        make_loader(240, 0, plan=plan, topology=Topology(0, 7))


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_any_start_method_gives_the_plans_batches(method):
    loader = make_loader(12, 3, num_workers=1, persistent_workers=True, multiprocessing_context=start_method(method))
    for epoch in range(2):
        assert batches(loader.plan, 4 * epoch, 4 * epoch + 4) == list(loader)
