"""Iterables without random access: their own states, replays, and what each resume says of itself."""

import json
import pickle

import pytest
from torch.utils.data import DataLoader

from detdata import Resumable, Resumption, StateMismatch, Topology, UnknownFormat


def squares():
    return (n * n for n in range(20))


class Stateful:
    """An iterable with a state of its own; counts what it reads."""

    def __init__(self, n=20):
        self.n, self.place, self.read, self.epochs = n, 0, 0, []
        self._start = 0

    def set_epoch(self, epoch):
        self.epochs.append(epoch)

    def __iter__(self):
        self.place, self._start = self._start, 0
        while self.place < self.n:
            self.place += 1
            self.read += 1
            yield (self.place - 1) ** 2

    def state_dict(self):
        return {"place": self.place}

    def load_state_dict(self, state):
        self._start = state["place"]


class StatefulIterator:
    """Only its iterator has a state."""

    def __init__(self):
        self.made = 0

    def __iter__(self):
        self.made += 1
        return _Walk()


class _Walk:
    def __init__(self):
        self.place = 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.place == 20:
            raise StopIteration
        self.place += 1
        return (self.place - 1) ** 2

    def state_dict(self):
        return {"place": self.place}

    def load_state_dict(self, state):
        self.place = state["place"]


SOURCES = {
    "function": (lambda: squares, "replay"),
    "iterable": (lambda: [n * n for n in range(20)], "replay"),
    "state": (Stateful, "own state"),
    "state of the iterator": (StatefulIterator, "own state"),
}


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("stop", [0, 1, 7, 20])
@pytest.mark.parametrize("copied", [False, True])
def test_a_resume_goes_on_with_the_next_sample_and_says_how(kind, stop, copied):
    if copied and kind == "function":
        pytest.skip("what it makes is no value")
    make, way = SOURCES[kind]
    samples = Resumable(make(), Topology())
    begun = [sample for _, sample in zip(range(stop), samples, strict=False)]
    if copied:
        again = pickle.loads(pickle.dumps(samples))
    else:
        again = Resumable(make(), Topology())
        again.load_state_dict(json.loads(json.dumps(samples.state_dict())))
    assert [n * n for n in range(20)] == begun + list(again)
    if stop == 0:
        assert again.resumption == Resumption("start", 0, 0)
    else:
        assert again.resumption == Resumption(way, stop if way == "replay" else 0, 0)
    assert (again.epoch, again.consumed) == (1, 0)
    assert [n * n for n in range(20)] == list(again)


class Sticky(Stateful):
    """Each of its iterators begins at the state that was loaded last, as long as no other epoch is set."""

    def __iter__(self):
        begin = self._start
        samples = super().__iter__()
        for sample in samples:
            self._start = begin
            yield sample

    def set_epoch(self, epoch):
        if self.epochs and self.epochs[-1] != epoch:
            self._start = 0
        super().set_epoch(epoch)


@pytest.mark.parametrize("make", [Stateful, Sticky, StatefulIterator])
def test_a_pass_that_is_broken_off_goes_on_by_the_own_state_too(make):
    samples = Resumable(make(), Topology())
    seen = [sample for _, sample in zip(range(4), samples, strict=False)]
    again = Resumable(make(), Topology())
    again.load_state_dict(samples.state_dict())
    for stop in (5, 3, 20):
        seen += [sample for _, sample in zip(range(stop), again, strict=False)]
        assert again.resumption == Resumption("own state", 0, 0)
    assert seen == [n * n for n in range(20)]
    assert list(again) == seen


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("resumed", [False, True])
def test_a_source_that_fails_while_it_is_read_loses_no_sample(ranks, resumed):
    class Failing(Sticky):
        fails = 9

        def __iter__(self):
            for sample in super().__iter__():
                if self.place == self.fails:
                    raise OSError("gone")
                yield sample

    source = Failing()
    samples = Resumable(source, Topology(0, ranks))
    begun = []
    if resumed:
        begun = [sample for _, sample in zip(range(2), samples, strict=False)]
        state = samples.state_dict()
        samples = Resumable(source := Failing(), Topology(0, ranks))
        samples.load_state_dict(state)
    with pytest.raises(OSError, match="gone"):
        for sample in samples:
            begun.append(sample)
    state, source.fails = samples.state_dict(), None
    elsewhere = Resumable(Sticky(), Topology(0, ranks))
    elsewhere.load_state_dict(state)
    assert begun + list(elsewhere) == begun + list(samples) == [n * n for n in range(0, 20, ranks)]


def test_an_iteration_that_never_began_takes_no_state_from_the_one_after_it():
    samples = Resumable(Stateful(), Topology())
    for _ in zip(range(4), samples, strict=False):
        pass
    stale, present = iter(samples), iter(samples)
    with pytest.raises(StateMismatch, match="begin a new"):
        next(stale)
    assert (next(present), samples.resumption.way) == (16, "own state")


def test_its_own_state_is_used_without_reading_what_was_consumed():
    samples = Resumable(Stateful(), Topology())
    for _ in zip(range(15), samples, strict=False):
        pass
    source = Stateful()
    again = Resumable(source, Topology())
    again.load_state_dict(samples.state_dict())
    assert len(list(again)) == 5
    assert (source.read, source.epochs) == (5, [0])
    list(again)
    assert source.epochs == [0, 1]


def test_a_source_that_is_never_the_same_twice_repeats_and_counts():
    samples = Resumable(squares, Topology(), replay=False)
    for _ in zip(range(6), samples, strict=False):
        pass
    again = Resumable(squares, Topology(), replay=False)
    again.load_state_dict(samples.state_dict())
    assert len(list(again)) == 20
    assert again.resumption == Resumption("restart", 0, 6)


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize(("world", "other"), [(2, 3), (3, 1), (1, 4)])
def test_ranks_share_the_samples_and_go_on_under_another_world_size(kind, world, other):
    make, _ = SOURCES[kind]
    ranks = [Resumable(make(), Topology(rank, world)) for rank in range(world)]
    begun = [[sample for _, sample in zip(range(3), samples, strict=False)] for samples in ranks]
    states = [samples.state_dict() for samples in ranks]
    assert [states[0]] * world == states
    rests = []
    for rank in range(other):
        again = Resumable(make(), Topology(rank, other))
        again.load_state_dict(states[0])
        rests.append(list(again))
    assert len({len(rest) for rest in rests}) == 1
    seen = sorted(sample for part in [*begun, *rests] for sample in part)
    whole = 3 * world + (20 - 3 * world) // other * other  # the last ones are not enough for every rank
    assert [n * n for n in range(whole)] == seen


def test_a_source_that_has_become_shorter_is_noticed():
    samples = Resumable([1, 2, 3, 4], Topology())
    for _ in zip(range(3), samples, strict=False):
        pass
    again = Resumable([1, 2], Topology())
    again.load_state_dict(samples.state_dict())
    with pytest.raises(StateMismatch, match="3 samples of this source were consumed, and it ends after 2"):
        next(iter(again))


def test_a_state_of_a_source_with_states_needs_one():
    samples = Resumable(Stateful(), Topology())
    next(iter(samples))
    again = Resumable(squares, Topology())
    again.load_state_dict(samples.state_dict())
    with pytest.raises(StateMismatch, match="takes none"):
        next(iter(again))


def test_what_cannot_begin_anew_is_refused():
    with pytest.raises(TypeError, match="give the function that makes it"):
        Resumable(squares())
    with pytest.raises(TypeError, match="an iterable or a function"):
        Resumable(3)
    with pytest.raises(TypeError, match="source must give an iterable"):
        next(iter(Resumable(lambda: 3, Topology())))
    with pytest.raises(TypeError, match="replay must be"):
        Resumable([1], replay=1)
    with pytest.raises(TypeError, match="topology must be"):
        Resumable([1], 3)


def test_a_dataloaders_workers_are_refused_and_none_are_fine():
    samples = Resumable(Stateful(), Topology())
    assert [n * n for n in range(20)] == list(DataLoader(samples, batch_size=None))
    with pytest.raises(RuntimeError, match=r"each would read the whole source"):
        next(iter(DataLoader(samples, batch_size=None, num_workers=2, multiprocessing_context="fork")))


def test_a_second_loop_ends_the_first_and_bad_states_change_nothing():
    samples = Resumable(squares, Topology())
    first = iter(samples)
    next(first)
    next(iter(samples))
    with pytest.raises(StateMismatch, match="begin a new"):
        next(first)
    good = samples.state_dict()
    for state in ({**good, "format": "x"}, {**good, "more": 1}, {**good, "consumed": -1}, {**good, "at": 99}):
        with pytest.raises((UnknownFormat, ValueError)):
            samples.load_state_dict(state)
    with pytest.raises(TypeError):
        samples.load_state_dict(None)
    assert good == samples.state_dict()


def test_hugging_face_streams_are_resumed_by_their_own_state():
    datasets = pytest.importorskip("datasets")

    def rows(start):
        for n in range(start, start + 10):
            yield {"n": n}

    def make():
        return datasets.IterableDataset.from_generator(rows, gen_kwargs={"start": 5})

    samples = Resumable(make(), Topology())
    begun = [sample["n"] for _, sample in zip(range(4), samples, strict=False)]
    again = Resumable(make(), Topology())
    again.load_state_dict(json.loads(json.dumps(samples.state_dict())))
    assert list(range(5, 15)) == begun + [sample["n"] for sample in again]
    assert again.resumption.way == "own state"
    assert [sample["n"] for sample in again] == list(range(5, 15))
