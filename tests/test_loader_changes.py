"""A loader's state under a plan, dataset or number of workers that is not the one it was saved with."""

import logging

import pytest

from detdata import (
    Plan,
    Progress,
    Shuffle,
    StateMismatch,
)
from tests.test_loader_state import consume
from tests.torch_side import Ids, batches, in_new_process, make_loader, rest_from_state


def test_another_batch_size_continues_the_saved_plan_at_the_next_unseen_sample(caplog):
    straight = Plan(Shuffle(120, 1), 8)
    _, state = consume(make_loader(120, 8), 5)
    loader = make_loader(120, 12)
    with caplog.at_level(logging.INFO, logger="detdata"):
        loader.load_state_dict(state)
    assert "batch size is 12 from step 5 on" in caplog.text
    assert straight.resized(5, 12) == loader.plan
    assert straight.order.take(range(40, 52)).tolist() == next(iter(loader))
    again = make_loader(120, 12)
    again.load_state_dict(loader.state_dict())  # and that state is the next one's, with nothing said again
    assert (loader.plan, Progress(6, 0, 52)) == (again.plan, again.progress)


@pytest.mark.parametrize(
    "change",
    [
        lambda plan: plan.resized(5, 12),
        lambda plan: plan.resized(9, 2),
        lambda plan: plan.skipping(5, 8),
        lambda plan: plan.skipping(6, 9).resized(7, 4),
        lambda plan: plan.resized(30, 4).skipping(31, 32),
    ],
)
def test_a_plan_changed_at_or_after_the_saved_step_goes_on_as_it_says(change):
    plan = Plan(Shuffle(120, 1), 8)
    _, state = consume(make_loader(120, 8), 5)
    changed = change(plan)
    loader = make_loader(120, 0, plan=changed)
    loader.load_state_dict(state)
    assert batches(changed, 5, 40) == list(loader.until(40))


@pytest.mark.parametrize("change", [lambda plan: plan.resized(4, 12), lambda plan: plan.skipping(3, 4)])
def test_a_plan_changed_before_the_saved_step_is_refused(change):
    _, state = consume(make_loader(120, 8), 5)
    with pytest.raises(StateMismatch, match="batches"):
        make_loader(120, 0, plan=change(Plan(Shuffle(120, 1), 8))).load_state_dict(state)


def test_changes_made_on_the_way_are_in_the_state_and_survive_a_plain_plan():
    plan = Plan(Shuffle(120, 1), 8).skipping(3, 6)
    _, state = consume(make_loader(120, 0, plan=plan), 5)
    loader = make_loader(120, 8)
    loader.load_state_dict(state)
    assert plan == loader.plan
    assert batches(plan, 5, 20) == list(loader.until(20))


@pytest.mark.parametrize("saved", [0, 2])
@pytest.mark.parametrize("resumed", [0, 3])
def test_a_new_process_with_other_workers_goes_on_from_a_state(saved, resumed):
    loader = make_loader(30, 4, tail="carry", num_workers=saved)
    _, state = consume(loader, 9)
    rest = in_new_process(rest_from_state, state, 20, {"num_workers": resumed})
    assert batches(loader.plan, 9, 20) == rest


def test_a_dataset_of_another_length_is_refused_where_the_loader_is_built():
    _, state = consume(make_loader(20, 4), 1)
    with pytest.raises(ValueError, match=r"21 samples"):
        make_loader(20, 4, dataset=Ids(21)).load_state_dict(state)
