"""Loader and BatchSampler over plans of unequal batches: every rank, worker count and resume gives the same parts."""

import json

import numpy as np
import pytest
from torch.utils.data import DataLoader

from detdata import (
    BatchSampler,
    EveryEpoch,
    Loader,
    Mixture,
    PackedDataset,
    PackPlan,
    Phases,
    Plan,
    PlanMixture,
    Shuffle,
    Subset,
    Topology,
    per_source,
)
from detdata.errors import StateMismatch
from detdata.plans.bucket_plan import BucketPlan

LENGTHS = np.random.default_rng(7).integers(1, 60, 150)


class Rows:
    def __len__(self):
        return LENGTHS.size

    def __getitem__(self, id):
        return id


def plan(size=4, **how):
    return BucketPlan(LENGTHS, size, seed=3, **how)


def parts(plan, first, last, rank=0, ranks=1, micro_steps=1):
    found = []
    for step in range(first, last):
        for micro in range(micro_steps):
            part = plan.shard(step, rank, ranks, micro, micro_steps)
            if part.ids.size:
                found.append(part.ids.tolist())
    return found


def tokens(**how):
    return BucketPlan(LENGTHS, max_tokens=400, divisor=4, seed=3, **how)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("made", [plan, lambda: plan(tail="keep"), lambda: plan(tail="pad"), tokens])
def test_a_loader_gives_the_parts_of_each_rank(made, workers):
    bucketed = made()
    for rank in range(2):
        loader = Loader(Rows(), bucketed, Topology(rank, 2), num_workers=workers, collate_fn=list)
        for epoch in range(2):
            first, last = bucketed.first_step(epoch), bucketed.first_step(epoch + 1)
            wanted = parts(bucketed, first, last, rank, 2)
            assert len(loader) == loader.remaining == len(wanted)
            assert [list(map(int, batch)) for batch in loader] == wanted


@pytest.mark.parametrize("made", [plan, tokens])
def test_a_state_goes_on_with_other_ranks_micro_steps_and_workers(made):
    bucketed = made(tail="keep")
    loader = Loader(Rows(), bucketed, Topology(1, 2), collate_fn=list)
    given = iter(loader)
    for _ in range(9):
        next(given)
    assert loader.batch.width == bucketed.batch(8).width
    state = json.loads(json.dumps(loader.state_dict()))
    last = bucketed.first_step(1)
    for ranks, micro_steps, workers in ((1, 1, 0), (1, 2, 1), (4, 1, 0), (2, 2, 0)):
        again = Loader(
            Rows(), made(tail="keep"), Topology(0, ranks), micro_steps=micro_steps, num_workers=workers, collate_fn=list
        )
        again.load_state_dict(state)
        assert [list(map(int, batch)) for batch in again] == parts(bucketed, 9, last, 0, ranks, micro_steps)


def test_another_batch_size_goes_on_with_the_unseen_rest():
    bucketed = plan(tail="keep")
    loader = Loader(Rows(), bucketed, Topology(), collate_fn=list)
    seen = [id for batch, _ in zip(loader, range(9), strict=False) for id in map(int, batch)][: 9 * 4]
    loader.resume(36)
    again = Loader(Rows(), plan(10, tail="keep"), Topology(), collate_fn=list)
    again.load_state_dict(loader.state_dict())
    rest = [id for batch in again for id in map(int, batch)]
    assert sorted(seen + rest) == list(range(LENGTHS.size))
    third = Loader(Rows(), bucketed.resized(9, 10), Topology(), collate_fn=list)
    third.load_state_dict(loader.state_dict())
    assert [id for batch in third for id in map(int, batch)] == rest


def test_a_state_of_another_plan_is_refused_by_field():
    state = Loader(Rows(), plan(), Topology()).state_dict()
    for other, field in (
        (BucketPlan(LENGTHS, 4, seed=4), "seed"),
        (plan(tail="keep"), "tail"),
        (plan(num_buckets=3), "bounds"),
        (BucketPlan(LENGTHS + 1, 4, seed=3), "lengths"),
    ):
        loader = Loader(Rows(), other, Topology())
        assert field in [name for name, _, _ in loader.check_state(state)]
        with pytest.raises(StateMismatch, match=field):
            loader.load_state_dict(state)


def test_a_batch_sampler_serves_a_plain_dataloader_with_workers():
    bucketed = tokens(tail="keep")
    sampler = BatchSampler(bucketed, Topology(1, 2), start_step=3)
    for epoch, first in ((0, 3), (1, bucketed.first_step(1))):
        found = [batch.tolist() for batch in DataLoader(Rows(), batch_sampler=sampler, num_workers=2)]
        assert found == parts(bucketed, first, bucketed.first_step(epoch + 1), 1, 2)


def test_a_world_size_that_does_not_divide_is_refused_at_once():
    with pytest.raises(ValueError, match="batch_size 4 is not divisible by world_size 3"):
        Loader(Rows(), plan(), Topology(0, 3))


def mixture(**how):
    sources = {"a": Shuffle(40, 1), "b": Shuffle(90, 2)}
    return Mixture(sources, {"a": 1, "b": 1}, seed=5, size=1000, **how)


@pytest.mark.parametrize("size", [8, 20])
def test_other_weights_from_the_saved_step_on_are_taken_and_the_past_stays(size):
    first = mixture()
    loader = Loader(range(130), Plan(first, 8), Topology(), collate_fn=list)
    for _ in zip(loader, range(5), strict=False):
        pass
    loader.resume(40)
    state = json.loads(json.dumps(loader.state_dict()))
    assert state["progress"]["per_source"] == first.counts(40)
    changed = first.reweighted(40, {"a": 3, "b": 1})
    again = Loader(range(130), Plan(changed, size), Topology(), collate_fn=list)
    again.load_state_dict(state)
    assert again.plan.batch(5).ids.tolist() == changed.take(range(40, 40 + size)).tolist()
    assert again.plan.digest(0, 5) == loader.plan.digest(0, 5)
    assert again.progress.per_source == first.counts(40)


def test_other_weights_in_the_past_are_refused():
    loader = Loader(range(130), Plan(mixture(), 8), Topology())
    loader.resume(40)
    for other in (mixture().reweighted(39, {"a": 3}), mixture().reweighted(0, {"a": 3})):
        with pytest.raises(StateMismatch, match="order"):
            Loader(range(130), Plan(other, 8), Topology()).load_state_dict(loader.state_dict())


def views():
    short = BucketPlan(LENGTHS, 8, seed=3, tail="keep")
    return {
        "view": EveryEpoch(short, 25),
        "plain view": EveryEpoch(Plan(Shuffle(150, 2), 8, "keep"), 7),
        "phases": Phases([(Plan(Shuffle(150, 1), 4, "keep"), 50), (short, None)]),
        "mixture": PlanMixture(
            {"a": Plan(Shuffle(13), 8, "keep"), "b": Plan(Shuffle(137), 8)}, {"a": 1, "b": 1}, size=30
        ),
    }


@pytest.mark.parametrize("name", sorted(views()))
def test_plans_of_plans_are_loaded_resumed_and_counted(name):
    made = views()[name]
    for ranks, micro_steps in ((1, 1), (2, 1), (4, 1), (2, 2)):
        for rank in range(ranks):
            loader = Loader(range(150), made, Topology(rank, ranks), micro_steps=micro_steps, collate_fn=list)
            for epoch in range(3):
                wanted = parts(made, made.first_step(epoch), made.first_step(epoch + 1), rank, ranks, micro_steps)
                assert len(loader) == len(wanted)
                assert [list(map(int, batch)) for batch in loader] == wanted
    loader = Loader(range(150), made, Topology(), collate_fn=list)
    loader.resume(made.consumed(11))
    again = Loader(range(150), views()[name], Topology(0, 2), collate_fn=list)
    again.load_state_dict(json.loads(json.dumps(loader.state_dict())))
    assert again.plan.digest(0, 40) == made.digest(0, 40)
    assert again.progress == loader.progress


def test_a_view_goes_on_with_another_batch_size_and_a_mixture_of_plans_with_other_weights():
    view = views()["view"]
    loader = Loader(range(150), view, Topology(), collate_fn=list)
    loader.resume(view.consumed(5))
    again = Loader(
        range(150), EveryEpoch(BucketPlan(LENGTHS, 12, seed=3, tail="keep"), 25), Topology(), collate_fn=list
    )
    again.load_state_dict(loader.state_dict())
    assert again.plan == view.resized(5, 12)
    mixed = views()["mixture"]
    loader = Loader(range(150), mixed, Topology(), collate_fn=list)
    loader.resume(mixed.consumed(9))
    other = mixed.reweighted(9, {"a": 5})
    again = Loader(range(150), other, Topology(), collate_fn=list)
    again.load_state_dict(loader.state_dict())
    assert again.plan == other
    back = Loader(range(150), mixed, Topology(), collate_fn=list)
    again.resume(other.consumed(20))
    back.load_state_dict(again.state_dict())
    assert back.plan == other


def test_a_packed_plan_with_another_past_is_refused():
    base = PackPlan(LENGTHS, 16, 4, seed=1, tail="keep")
    pairs = [
        (base.skipping(10, 20), base.skipping(30, 40)),
        (base.resized(5, 8).resized(10, 4), base.resized(15, 8).resized(20, 4)),
        (base, base.skipping(3, 4)),
    ]
    for was, now in pairs:
        state = Loader(PackedDataset(list(LENGTHS), was), was, Topology())
        state.resume(was.consumed(200))
        with pytest.raises(StateMismatch, match="batches"):
            Loader(PackedDataset(list(LENGTHS), now), now, Topology()).load_state_dict(state.state_dict())
        later = was.skipping(200, 210)
        again = Loader(PackedDataset(list(LENGTHS), later), later, Topology())
        again.load_state_dict(state.state_dict())
        assert again.plan == later


def test_a_bucketed_plan_with_another_past_is_refused():
    base = plan(tail="keep")
    for was, now in (
        (base.skipping(1, 2), base.skipping(3, 4)),
        (base.resized(100, 8).skipping(50, 60), base.resized(98, 8).skipping(50, 60)),
    ):
        loader = Loader(Rows(), was, Topology())
        loader.resume(was.consumed(95))
        with pytest.raises(StateMismatch, match="batches"):
            Loader(Rows(), now, Topology()).load_state_dict(loader.state_dict())


def test_each_source_is_counted_through_views_phases_and_mixtures_of_plans():
    inner = Plan(mixture(), 8)
    for made in (EveryEpoch(inner, 5), Phases([(inner, 7), (inner, 7, None)], continues=True)):
        assert per_source(made, 20) == per_source(inner, 20)
        loader = Loader(range(130), made, Topology())
        loader.resume(made.consumed(20))
        assert loader.progress.per_source == per_source(inner, 20)
    mixed = views()["mixture"]
    assert per_source(mixed, 9) == mixed.consumed_per_source(9) == per_source(EveryEpoch(mixed, 4), 9)
    with pytest.raises(TypeError, match="no sources"):
        per_source(plan(), 3)


def test_oversized_samples_are_alone_with_a_batch_size_too():
    made = BucketPlan(LENGTHS, 8, max_length=40, oversized="alone", divisor=2, tail="keep", seed=1)
    for step in range(made.steps()):
        long = [id for id in made.batch(step).ids.tolist() if LENGTHS[id] > 40]
        assert not long or len(made.batch(step)) <= 2 or step == made.steps() - 1


def test_a_change_of_size_is_made_once_however_often_the_run_is_resumed():
    def resumed(state):
        loader = Loader(range(150), plan(8, tail="keep"), Topology(), collate_fn=list)
        loader.load_state_dict(state)
        return loader

    for was in (plan(tail="keep"), plan(tail="keep").skipping(2, 4)):
        first = Loader(range(150), was, Topology(), collate_fn=list)
        list(first.until(7))
        straight = resumed(first.state_dict())
        whole = list(straight.until(25))
        again = resumed(first.state_dict())
        found = list(again.until(10))
        for step in (10, 13, 20):
            again = resumed(again.state_dict())
            found += list(again.until({10: 13, 13: 20, 20: 25}[step]))
        assert found == whole
        assert again.plan == straight.plan
    skipped = plan(tail="keep").skipping(2, 4)
    loader = Loader(range(150), skipped, Topology())
    loader.resume(skipped.consumed(6))
    plain = Loader(range(150), plan(tail="keep"), Topology())
    plain.load_state_dict(loader.state_dict())
    assert plain.plan == skipped


def test_weights_that_were_to_change_later_still_do():
    later = Plan(mixture().reweighted(400, {"a": 9}), 8)
    loader = Loader(range(130), later, Topology())
    loader.resume(40)
    again = Loader(range(130), Plan(mixture(), 8), Topology())
    again.load_state_dict(loader.state_dict())
    assert again.plan == later


def test_what_a_plan_goes_by_and_the_length_of_its_sequences_are_compared():
    state = Loader(range(150), plan(), Topology()).state_dict()
    loader = Loader(range(150), BucketPlan(LENGTHS, max_tokens=400, seed=3), Topology())
    assert "max_tokens" in [name for name, _, _ in loader.check_state(state)]
    made = [PackPlan(LENGTHS, length, 2, seed=1, tail="keep") for length in (64, 128)]
    loaders = [Loader(PackedDataset(list(LENGTHS), packed), packed, Topology()) for packed in made]
    assert [name for name, _, _ in loaders[0].check_state(loaders[1].state_dict())] == ["seq_len"]


@pytest.mark.parametrize("make", [lambda lengths: BucketPlan(lengths, 4), lambda lengths: PackPlan(lengths, 64, 2)])
def test_a_plan_does_not_change_with_the_callers_lengths(make):
    lengths = LENGTHS.copy()
    made = make(lengths)
    before = made.digest(0, 10)
    lengths[:] = np.sort(lengths)
    assert (made.digest(0, 10), made) == (before, make(LENGTHS))


def test_a_part_that_lacks_a_sample_does_not_use_it():
    easy = Plan(Subset(Shuffle(100, seed=1), range(20)), 5)
    chain = Phases([(easy, 6), (Plan(Shuffle(100, seed=2), 10), None)])
    assert chain.when(50, 2) == next(s for s in range(6, 16) if 50 in chain.batch(s).ids)
    assert EveryEpoch(easy, 3).when(50) is None
    assert PlanMixture({"a": easy}, {"a": 1}, size=4).when(50) is None


def test_a_state_that_would_not_be_loaded_changes_no_batch_size():
    state = Loader(range(150), Plan(Shuffle(150, 1), 8), Topology()).state_dict()
    for other in (Plan(Shuffle(150, 2), 16), plan(16), BucketPlan(LENGTHS, max_tokens=400)):
        assert Loader(range(150), other, Topology()).batch_size_change(state) is None
    assert Loader(range(150), Plan(Shuffle(150, 1), 16), Topology()).batch_size_change(state) == (8, 16)
