"""Streams inside the workers of another DataLoader: parts, passes, and what cannot be known there."""

import copy
import pickle

import pytest
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from detdata import Shuffle, Stream, Topology
from detdata.streaming.passes import Passes
from tests.streaming.stream_side import as_it_is, as_list, keeps, make, number_of, tokens_of
from tests.torch_side import FORK, start_method


def loader_of(stream, workers=2, **options):
    return DataLoader(stream, batch_size=None, num_workers=workers, collate_fn=as_it_is, **{**FORK, **options})


def shuffled(n=12, batch_size=3, **options):
    return Stream(list(range(n)), Shuffle(n, 1), batch_size, collate_fn=as_list, topology=Topology(), **options)


def batches_of(epoch, n=12, batch_size=3, start=0):
    ids = Shuffle(n, 1).take(range(n), epoch).tolist()
    return [ids[at : at + batch_size] for at in range(start, n, batch_size)]


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_a_resume_holds_for_one_pass_and_set_epoch_reaches_the_workers(persistent, method):
    stream = shuffled()
    stream.resume(6)
    loader = loader_of(stream, persistent_workers=persistent, multiprocessing_context=start_method(method))
    assert batches_of(0, start=6) == list(loader)
    assert batches_of(1) == list(loader)
    stream.set_epoch(2)  # where it is anyway
    assert batches_of(2) == list(loader)
    stream.set_epoch(7)
    assert batches_of(7) == list(loader)
    stream.resume(12 * 4 + 9)
    assert batches_of(4, start=9) == list(loader)
    assert batches_of(5) == list(loader)


@pytest.mark.parametrize("persistent", [False, True])
def test_a_pass_that_was_broken_off_counts(persistent):
    loader = loader_of(shuffled(), persistent_workers=persistent)
    for epoch in range(4):
        assert batches_of(epoch)[0] == next(iter(loader))
    assert batches_of(4) == list(loader)


def test_two_loaders_over_one_stream_take_turns():
    stream = shuffled()
    first, second = loader_of(stream, persistent_workers=True), loader_of(stream, 3)
    for epoch, loader in enumerate((first, second, first, first, second)):
        assert batches_of(epoch) == list(loader)


def test_what_was_consumed_is_not_claimed_to_be_known():
    stream = shuffled()
    loader = loader_of(stream)
    assert stream.progress.epoch == 0
    next(iter(loader))
    for ask in (stream.state_dict, lambda: stream.progress, lambda: next(iter(stream)), lambda: stream.position):
        with pytest.raises(RuntimeError, match=r"begun 1 pass.*num_workers of its own.*resume\(consumed_samples\)"):
            ask()
    stream.resume(3)
    assert batches_of(0, start=3) == list(stream)
    assert stream.state_dict()["progress"]["consumed_samples"] == 12


@pytest.mark.parametrize(
    "options",
    [{"batch_size": 2, "filter": keeps}, {"batch_size": 2, "seq_len": 3, "tokens": tokens_of}, {"seq_len": 3}],
)
def test_what_no_worker_can_make_alone_is_refused(options):
    rows = list(range(20)) if "batch_size" in options else [[1, 2]] * 20
    stream = Stream(rows, topology=Topology(), **options)
    with pytest.raises(RuntimeError, match=r"put together in order[\s\S]*num_workers=K"):
        next(iter(loader_of(stream)))


def test_its_own_workers_do_inside_a_loader_without_any():
    straight = list(make(list(range(30)), 2, filter=keeps))
    stream = make(list(range(30)), 2, filter=keeps, num_workers=2)
    assert straight == list(DataLoader(stream, batch_size=None, collate_fn=as_it_is))
    assert stream.progress.epoch == 1


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_single_rows_that_a_filter_keeps_come_once_from_all_workers(workers):
    stream = make(list(range(50)), filter=keeps, map=number_of)
    loader = loader_of(stream, workers)
    for epoch in range(2):
        assert [(id, epoch) for id in range(50) if keeps(id)] == sorted(loader)


def test_a_plan_that_was_changed_behind_persistent_workers_is_noticed():
    stream = shuffled()
    loader = loader_of(stream, persistent_workers=True)
    list(loader)
    other = shuffled(batch_size=6)
    other.resume(6)
    stream.load_state_dict(other.state_dict())  # goes on with its own batch size from there
    with pytest.raises(RuntimeError, match="make a new DataLoader"):
        list(loader)
    assert batches_of(0, start=6) == list(loader_of(stream))


def test_a_copy_has_passes_of_its_own():
    stream = shuffled()
    list(loader_of(stream))
    for other in (pickle.loads(pickle.dumps(stream)), copy.deepcopy(stream)):
        assert batches_of(0) == list(loader_of(other))
    assert batches_of(1) == list(loader_of(stream))


# --- states of single workers, as torchdata's StatefulDataLoader asks for them ----------------------------------------


class InWorker(IterableDataset):
    """Does in a worker what a loader with states of its workers does there: loads, iterates, asks after each item."""

    def __init__(self, stream, states):
        self.stream, self.states = stream, states

    def __iter__(self):
        info = get_worker_info()
        if self.states is not None:
            self.stream.load_state_dict(self.states[info.id])
        for item in self.stream:
            yield info.id, item, self.stream.state_dict()


def in_workers(stream, states=None, workers=2):
    return DataLoader(InWorker(stream, states), batch_size=None, num_workers=workers, collate_fn=as_it_is, **FORK)


@pytest.mark.parametrize("batch_size", [None, 3])
@pytest.mark.parametrize("stop", [1, 2, 3, 4])
def test_workers_go_on_from_states_of_their_own(batch_size, stop):
    straight = [item for _, item, _ in in_workers(shuffled(batch_size=batch_size))]
    states = {0: {"format": "detdata.stream_worker/1"}, 1: {"format": "detdata.stream_worker/1"}}
    begun = []
    for _, (worker, item, state) in zip(range(stop), in_workers(shuffled(batch_size=batch_size)), strict=False):
        begun.append(item)
        states[worker] = state
    resumed = shuffled(batch_size=batch_size)
    rest = [item for _, item, _ in in_workers(resumed, states)]
    assert sorted(map(str, straight)) == sorted(map(str, begun + rest))
    if stop % 2 == 0:
        assert straight[stop:] == rest


def test_a_workers_state_is_not_taken_for_a_streams():
    [(_, _, state), *_] = list(in_workers(shuffled(), workers=1))
    with pytest.raises(ValueError, match="a stream's state is"):
        shuffled().load_state_dict(state)
    with pytest.raises(ValueError, match="belong to one number of workers"):
        list(in_workers(shuffled(), {0: state, 1: state}))


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("batch_size", [None, 3])
def test_torchdatas_loader_goes_on_in_any_epoch(workers, batch_size):
    stateful = pytest.importorskip("torchdata.stateful_dataloader")

    def loader_over(stream):
        start = FORK if workers else {}
        return stateful.StatefulDataLoader(stream, None, num_workers=workers, collate_fn=as_it_is, **start)

    straight = loader_over(shuffled(batch_size=batch_size))
    epochs = [list(straight) for _ in range(3)]
    loader = loader_over(shuffled(batch_size=batch_size))
    list(loader)
    begun = [item for _, item in zip(range(3), loader, strict=False)]
    state = loader.state_dict()
    resumed = loader_over(shuffled(batch_size=batch_size))
    resumed.load_state_dict(state)
    assert epochs[1:] == [begun + list(resumed), list(resumed)]


# --- passes -----------------------------------------------------------------------------------------------------------


def test_workers_of_one_pass_agree_in_whatever_order_they_come():
    passes = Passes()
    assert [passes._note(11, 1, 3), passes._note(11, 1, 3), passes._note(12, 1, 3)] == [0, 0, 0]
    assert [passes._note(11, 2, 3), passes._note(11, 2, 3)] == [1, 1]  # persistent workers, again
    assert [passes._note(40, 1, 3), passes._note(11, 2, 3), passes._note(41, 1, 3)] == [2, 1, 2]  # one comes late
    assert passes.since_aim() == 3
    passes.aim(5, 0)
    assert passes.since_aim() == 0


def test_passes_of_other_numbers_of_workers_are_other_passes():
    passes = Passes()
    assert [passes._note(5, 1, 2), passes._note(7, 1, 3), passes._note(5, 1, 2), passes._note(7, 1, 3)] == [0, 1, 0, 1]


def test_workers_that_went_on_from_states_go_on_to_the_epoch_after_them():
    stream = shuffled()
    stream.set_epoch(3)
    states = {}
    for worker, _, state in in_workers(stream):
        states[worker] = state
        if len(states) == 2:
            break
    resumed = shuffled()
    assert batches_of(3)[2:] == [item for _, item, _ in in_workers(resumed, states)]
    assert batches_of(4) == list(loader_of(resumed))


def test_single_rows_that_ranks_could_not_share_equally_are_refused_when_a_state_is_loaded():
    one = Stream(list(range(30)), topology=Topology(0, 1))
    for _ in zip(range(5), one, strict=False):
        pass
    for rank in range(2):
        stream = Stream(list(range(30)), topology=Topology(rank, 2))
        before = stream.state_dict()
        with pytest.raises(ValueError, match="a step less than the others"):
            stream.load_state_dict(one.state_dict())
        assert stream.state_dict() == before


@pytest.mark.parametrize("options", [{}, {"batch_size": 2}, {"filter": bool}])
@pytest.mark.parametrize("count", [1, 3, None])
def test_workers_go_on_where_an_iteration_over_the_stream_itself_stopped(options, count):
    ids = list(range(12))
    stream = Stream(ids, **options, topology=Topology())
    whole = [item.tolist() if "batch_size" in options else item for item in Stream(ids, **options, topology=Topology())]
    held = iter(stream)
    begun = list(held) if count is None else [next(held) for _ in range(count)]
    rest = [item.tolist() if "batch_size" in options else item for item in loader_of(stream, 1)]
    assert rest == (whole if count is None else whole[len(begun) :])
