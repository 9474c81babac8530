"""A loader's state: what was consumed, plain JSON, taken over by any topology, refused where the data would differ."""

import copy
import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detdata import (
    Concat,
    DetdataError,
    Plan,
    Progress,
    Sequential,
    Shuffle,
    StateMismatch,
    Topology,
    TorchShuffle,
    UnknownFormat,
)
from tests.torch_side import batches, in_new_process, joined, make_loader, rest_from_state, start_method


def consume(loader, count, last=10**6):
    """The next batches of a loader, and its state as plain JSON."""
    taken = [batch for _, batch in zip(range(count), loader.until(last), strict=False)]
    return taken, json.loads(json.dumps(loader.state_dict()))


# --- consumed, not prefetched -----------------------------------------------------------------------------------------

WORKERS = [
    {},
    *(
        {"num_workers": workers, "prefetch_factor": factor, "persistent_workers": persistent}
        for workers, factor, persistent in itertools.product((1, 2, 4), (2, 8), (False, True))
    ),
]


@pytest.mark.parametrize("arguments", WORKERS, ids=str)
def test_a_state_counts_what_was_consumed_however_far_the_workers_have_run_ahead(arguments):
    loader = make_loader(80, 2, **arguments)
    plan = loader.plan
    found, state = consume(loader, 5)
    assert Progress(5, 0, 10).to_dict() == state["progress"]
    found += consume(loader, 38)[0]  # over the epoch's end, in the process that goes on
    assert batches(plan, 0, 43) == found
    other = make_loader(80, 2, **arguments)
    other.load_state_dict(state)
    second, state = consume(other, 3)
    third = make_loader(80, 2)
    third.load_state_dict(state)
    assert batches(plan, 5, 8) == second
    assert batches(plan, 8, 12) == consume(third, 4)[0]


@pytest.mark.parametrize("method", ["fork", "forkserver"])
@pytest.mark.parametrize("persistent", [False, True])
def test_a_state_counts_what_was_consumed_under_any_start_method(method, persistent):
    loader = make_loader(
        24,
        2,
        num_workers=1,
        prefetch_factor=4,
        persistent_workers=persistent,
        multiprocessing_context=start_method(method),
    )
    _, state = consume(loader, 5)
    assert state["progress"]["consumed_samples"] == 10
    assert batches(loader.plan, 5, 14) == in_new_process(rest_from_state, state, 14, {})


def test_a_state_is_the_same_plain_json_for_every_rank_and_worker_count():
    states = []
    for rank, workers in itertools.product(range(2), (0, 1)):
        loader = make_loader(40, 4, topology=Topology(rank, 2), num_workers=workers)
        states.append(consume(loader, 3)[1])
        assert states[-1] == loader.state_dict()
    assert [states[0]] * 4 == states
    assert {"format", "plan", "seed", "randomness", "micro_steps", "progress"} == set(states[0])


def test_taking_a_state_changes_nothing():
    loader = make_loader(40, 4, num_workers=1)
    found = []
    for batch in loader:
        found.append(batch)
        loader.state_dict()["progress"]["global_step"] = 99
        loader.state_dict()["plan"]["order"]["seed"] = 99
        assert len(found) % 10 == loader.progress.global_step % 10
    assert batches(loader.plan, 0, 10) == found


# --- resumes of resumes -----------------------------------------------------------------------------------------------


@given(
    n=st.integers(1, 40),
    tail=st.sampled_from(["drop", "pad", "keep", "carry"]),
    batch_size=st.sampled_from([1, 2, 4, 6, 12]),
    stops=st.lists(
        st.tuples(st.integers(0, 9), st.sampled_from([1, 2, 3, 4]), st.sampled_from([1, 2, 3]), st.booleans()),
        max_size=6,
    ),
)
def test_any_chain_of_stops_and_resumes_is_the_straight_run(n, tail, batch_size, stops):
    if tail == "drop" and n < batch_size:
        return
    plan = Plan(Shuffle(n, 6), batch_size, tail)
    state, at, rows = None, 0, {}
    for steps, world_size, micro_steps, by_count in stops:
        if batch_size % (world_size * micro_steps):
            continue
        ranks = [
            make_loader(n, 0, plan=plan, topology=Topology(rank, world_size), micro_steps=micro_steps)
            for rank in range(world_size)
        ]
        for rank, loader in enumerate(ranks):
            if by_count:
                loader.resume(plan.consumed(at))
            elif state is not None:
                loader.load_state_dict(state)
            assert Progress(at, plan.epoch(at), plan.consumed(at)) == loader.progress
            before = loader.progress
            for part in loader.until(at + steps):
                rows.setdefault(before.global_step, {}).setdefault(before.micro_step, {})[rank] = part
                before = loader.progress
        at += steps
        states = [json.loads(json.dumps(loader.state_dict())) for loader in ranks]
        assert [states[0]] * world_size == states
        state = states[0]
        for step in range(at - steps, at):
            micros = rows.pop(step)
            parts = [joined([micros[m].get(r, []) for r in range(world_size)]) for m in sorted(micros)]
            assert plan.batch(step).ids.tolist() == [id for part in parts for id in part]
    assert rows == {}


@pytest.mark.parametrize("tail", ["drop", "pad", "keep", "carry"])
def test_a_resume_at_every_step_and_none_in_between(tail):
    plan = Plan(Shuffle(10, 1), 4, tail)
    state = make_loader(10, 4, plan=plan).state_dict()
    for step in range(9):
        for _ in range(2):  # a resume that takes no step changes nothing
            loader = make_loader(10, 4, plan=plan)
            loader.load_state_dict(state)
            assert state == loader.state_dict()
        assert batches(plan, step, step + 1) == consume(loader, 1)[0]
        state = loader.state_dict()


def test_a_state_taken_at_an_epochs_end_begins_the_next_epoch():
    loader = make_loader(20, 4)
    list(loader)
    other = make_loader(20, 4)
    other.load_state_dict(loader.state_dict())
    assert (other.progress.epoch, len(other), other.remaining) == (1, 5, 5)
    assert batches(loader.plan, 5, 10) == list(other)


# --- in the middle of a step ------------------------------------------------------------------------------------------


def middle_of_a_step(micro_steps=3, batch_size=12, n=48, **arguments):
    loader = make_loader(n, batch_size, micro_steps=micro_steps, **arguments)
    return consume(loader, 2 * micro_steps - 2)[1]  # after the first of the second step's micro-batches


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_a_state_in_the_middle_of_a_step_goes_on_at_the_next_micro_batch_on_any_world_size(world_size):
    state = middle_of_a_step()
    assert Progress(1, 0, 12, 1).to_dict() == state["progress"]
    parts = []
    for rank in range(world_size):
        loader = make_loader(48, 12, micro_steps=3, topology=Topology(rank, world_size))
        loader.load_state_dict(state)
        assert loader.remaining == 3 * 4 - 4
        parts.append(list(loader))
    found = [joined(micro) for micro in zip(*parts, strict=True)]
    ids = [id for batch in batches(loader.plan, 0, 4) for id in batch]
    assert [ids[k : k + 4] for k in range(16, 48, 4)] == found


def test_other_micro_steps_are_taken_at_a_steps_edge_and_refused_within():
    state = middle_of_a_step()
    with pytest.raises(StateMismatch, match=r"micro_steps: saved 3 \(saved after 1 of them\), here 2"):
        make_loader(48, 12, micro_steps=2).load_state_dict(state)
    loader = make_loader(48, 12, micro_steps=3)
    edge = consume(loader, 6)[1]
    other = make_loader(48, 12, micro_steps=2)
    other.load_state_dict(edge)
    assert [loader.plan.shard(2, 0, 1, 0, 2).ids.tolist()] == consume(other, 1)[0]


@pytest.mark.parametrize(
    "change",
    [
        lambda plan: Plan(plan.order, 24),
        lambda plan: plan.resized(1, 24),
        lambda plan: plan.skipping(1, 2),
    ],
    ids=["batch size", "resized", "skipping"],
)
def test_a_step_under_way_is_not_cut_out_of_other_samples(change):
    state = middle_of_a_step()
    loader = make_loader(48, 0, plan=change(Plan(Shuffle(48, 1), 12)), micro_steps=3)
    with pytest.raises(StateMismatch, match=r"batches.*1 of 3 micro-batches of step 1"):
        loader.load_state_dict(state)
    assert Progress() == loader.progress


def test_a_step_under_way_lets_later_steps_change():
    plan = Plan(Shuffle(48, 1), 12)
    later = plan.resized(2, 24)
    loader = make_loader(48, 0, plan=later, micro_steps=3)
    loader.load_state_dict(middle_of_a_step())
    rest = [later.shard(1, 0, 1, 1, 3), later.shard(1, 0, 1, 2, 3), later.shard(2, 0, 1, 0, 3)]
    assert [part.ids.tolist() for part in rest] == consume(loader, 3)[0]


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "arguments"),
    [
        (r"seed: saved 1, here 2", {"order_seed": 2}),
        (r"size: saved 20, here 21", {"n": 21}),
        (r"order", {"plan": Plan(TorchShuffle(20, 1), 4)}),
        (r"order", {"plan": Plan(Sequential(20), 4)}),
        (r"order", {"plan": Plan(Shuffle(Concat({"a": Sequential(12), "b": Sequential(8)}), 1), 4)}),
        (r"tail: saved drop, here keep", {"tail": "keep"}),
        (r"randomness: saved sample, here batch", {"randomness": "batch"}),
        (r"seed: saved 1, here 7", {"seed": 7}),
    ],
    ids=["seed", "size", "torch order", "order", "composition", "tail", "randomness", "sample seed"],
)
def test_a_state_of_other_data_is_refused_by_field_before_anything_changes(field, arguments):
    _, state = consume(make_loader(20, 4), 3)
    loader = make_loader(**{"n": 20, "batch_size": 4, **arguments})
    loader.resume(8)
    before = loader.state_dict()
    with pytest.raises(StateMismatch, match=field) as raised:
        loader.load_state_dict(state)
    assert isinstance(raised.value, DetdataError)
    assert isinstance(raised.value, ValueError)
    assert "from_spec" in str(raised.value)
    assert before == loader.state_dict()


def test_every_field_that_differs_is_named():
    _, state = consume(make_loader(20, 4), 3)
    loader = make_loader(21, 4, order_seed=2, tail="pad", randomness="off")
    fields = [field for field, _, _ in loader.check_state(state)]
    assert {"size", "seed", "tail", "randomness"} == set(fields)
    assert len(fields) == len(set(fields))
    with pytest.raises(StateMismatch) as raised:
        loader.load_state_dict(state)
    assert [field for field in fields if f"{field}: saved" not in str(raised.value)] == []


def set_in(state, path, value):
    for key in path[:-1]:
        state = state[key]
    state[path[-1]] = value


BROKEN = {
    **{f"no {key}": ((key,), None) for key in ("plan", "seed", "randomness", "micro_steps", "progress")},
    "other format": (("format",), "detdata.loader/2"),
    "more keys": (("more",), 1),
    "contradicting count": (("progress", "consumed_samples"), 13),
    "contradicting step": (("progress", "global_step"), 4),
    "contradicting epoch": (("progress", "epoch"), 1),
    "micro step beyond": (("progress", "micro_step"), 2),
    "negative step": (("progress", "global_step"), -1),
    "step that is no integer": (("progress", "global_step"), 3.0),
    "endless step": (("progress", "global_step"), 2**80),
    "more progress": (("progress", "more"), 1),
    "progress that is none": (("progress",), [3, 0, 12, 0]),
    "plan that is an order": (("plan",), Shuffle(20, 1).spec()),
    "plan of another format": (("plan", "format"), "detdata.plan/99"),
    "plan that is none": (("plan",), "x"),
    "order that is none": (("plan", "order"), 3),
    "seed that is none": (("seed",), "1"),
    "seed out of range": (("seed",), -1),
    "micro steps that are none": (("micro_steps",), 0),
    "unknown randomness": (("randomness",), "never"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_state_is_refused_before_anything_changes(name):
    path, value = BROKEN[name]
    _, state = consume(make_loader(20, 4), 3)
    state = copy.deepcopy(state)
    if name.startswith("no "):
        del state[path[0]]
    else:
        set_in(state, path, value)
    loader = make_loader(20, 4)
    loader.resume(8)
    before = loader.state_dict()
    with pytest.raises((ValueError, TypeError)) as raised:
        loader.load_state_dict(state)
    assert isinstance(raised.value, DetdataError)
    assert before == loader.state_dict()


@pytest.mark.parametrize("state", [None, [], "x", 3])
def test_a_state_that_is_no_mapping_is_refused(state):
    with pytest.raises(TypeError, match="state"):
        make_loader(20, 4).load_state_dict(state)
    with pytest.raises(UnknownFormat):
        make_loader(20, 4).load_state_dict({})


def test_a_world_size_that_does_not_divide_is_refused_before_anything_changes():
    plan = Plan(Shuffle(40, 1), 8).resized(2, 6)
    _, state = consume(make_loader(40, 0, plan=plan), 3)
    loader = make_loader(40, 0, plan=plan, topology=Topology(0, 4))
    with pytest.raises(ValueError, match=r"6.*4"):
        loader.load_state_dict(state)
    assert (Progress(), plan) == (loader.progress, loader.plan)


def test_a_plain_plan_says_the_batch_size_from_here_on_whatever_was_changed_before():
    _, state = consume(make_loader(40, 0, plan=Plan(Shuffle(40, 1), 8).resized(2, 6)), 3)
    loader = make_loader(40, 8)
    assert loader.batch_size_change(state) == (6, 8)
    loader.load_state_dict(state)
    assert Plan(Shuffle(40, 1), 8).resized(2, 6).resized(3, 8) == loader.plan
