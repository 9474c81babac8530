"""A save to an object store stopped at any request leaves the right checkpoint whole; nothing else is lost or left."""

import time
import warnings

import pytest
import torch

from detdata.checkpoint import Checkpointer, CheckpointNotSaved, SavePolicy, list_checkpoints, remote
from detdata.checkpoint.remote_path import StoreError
from tests.checkpoint.fakes import FakeLoader, newest_is_the_one_saved_last, resumed_step, save_steps, stamped
from tests.checkpoint.stores import (
    ROOT,
    Interrupt,
    PowerCut,
    Recorded,
    Stop,
    content,
    fresh_store,
    places,
    put_back,
    restart,
)

READS = {"list", "head", "get"}


@pytest.fixture(autouse=True)
def store(monkeypatch):
    return fresh_store(monkeypatch)


def later(monkeypatch, seconds=remote.OLD_S + 1):
    now = time.time() + seconds
    monkeypatch.setattr(remote.time, "time", lambda: now)


def stopped_everywhere(prepare, save, error=PowerCut, least=15):
    """Stop `save` at request 0, 1, 2, … until it gets through; yield whether its manifest was put, and the end."""
    prepare()
    before, left, put = content(), 0, []
    Recorded.after = lambda name, _: put.append(name) if name == "put" else None
    while True:
        put_back(before)
        restart()
        put.clear()
        Recorded.plan = Stop(left, error)
        try:
            save()
        except (PowerCut, CheckpointNotSaved):
            finished = False
        else:
            finished = True
        Recorded.plan = None
        yield bool(put), finished
        if finished:
            assert left > least
            return
        left += 1


CASES = {
    "first": ([], "latest", 1),
    "overwriting latest": ([(1, "latest")], "latest", 2),
    "a second periodic one": ([(1, "periodic"), (1, "latest")], "periodic", 2),
    "a periodic one by itself": ([(5, "periodic")], "periodic", 5),
}


@pytest.mark.parametrize("case", CASES)
def test_stopped_at_any_request_the_right_checkpoint_is_found_and_what_is_left_goes_after_an_hour(case, monkeypatch):
    published, kind, step = CASES[case]
    before = max((one for one, _ in published), default=None)

    def prepare():
        for one, its_kind in published:
            save_steps(ROOT, [one], its_kind)

    for put, _ in stopped_everywhere(prepare, lambda: save_steps(ROOT, [step], kind)):
        assert resumed_step(ROOT) == (step if put else before)
        entries = list_checkpoints(ROOT)
        assert all(entry.ok for entry in entries)
        restart()
        with monkeypatch.context() as patch:
            later(patch)
            save_steps(ROOT, [9], "latest")
        assert resumed_step(ROOT) == 9
        assert len(places()) == len(list_checkpoints(ROOT))


def test_stopped_at_any_request_of_retention_all_that_is_found_is_whole(monkeypatch):
    policy = SavePolicy(keep_periodic=2)

    for put, finished in stopped_everywhere(
        lambda: save_steps(ROOT, [1, 2, 3]), lambda: save_steps(ROOT, [4], policy=policy)
    ):
        assert resumed_step(ROOT) == (4 if put else 3)
        steps = [entry.step for entry in list_checkpoints(ROOT)]
        assert put or steps[-2:] == [2, 1]
        assert not finished or steps == [4, 3]
        assert all(entry.ok for entry in list_checkpoints(ROOT))
        restart()
        with monkeypatch.context() as patch:
            later(patch)
            save_steps(ROOT, [5], policy=policy)
        assert [entry.step for entry in list_checkpoints(ROOT)] == [5, 4 if put else 3]
        assert len(places()) == 2


@pytest.mark.filterwarnings("ignore:could not remove")
@pytest.mark.parametrize("error", [OSError("503 slow down"), PermissionError("403"), RuntimeError("no credentials")])
def test_a_store_that_refuses_from_any_request_on_fails_the_save_with_its_cause(error):
    refused = []

    def save():
        try:
            save_steps(ROOT, [2], "latest")
        except CheckpointNotSaved as caught:
            refused.append(caught)
            raise

    for put, _ in stopped_everywhere(lambda: save_steps(ROOT, [1], "latest"), save, error):
        assert resumed_step(ROOT) == (2 if put else 1)
    assert len(refused) > 15
    assert all(str(error) in str(one) and "untouched" in str(one) for one in refused)
    assert all(one.__cause__.__cause__ is error for one in refused)


@pytest.mark.parametrize("failures", [1, 2])
def test_a_request_that_fails_once_or_twice_is_tried_again(failures):
    save_steps(ROOT, [1], "latest")
    save_steps(ROOT, [2], "latest")
    number = 0
    while True:
        seen = [0]

        def plan(name, path, seen=seen, number=number):
            seen[0] += 1
            if number < seen[0] <= number + failures:
                raise TimeoutError("no answer")

        Recorded.plan = plan
        save_steps(ROOT, [2], "latest")
        assert resumed_step(ROOT) == 2
        Recorded.plan = None
        if seen[0] <= number + failures:
            break
        number += 1
    assert number > 40
    assert [entry.ok for entry in list_checkpoints(ROOT)] == [True]


@pytest.mark.parametrize("answers", [0, 1])
def test_a_manifest_that_arrived_though_the_answer_was_lost_keeps_its_files(answers):
    save_steps(ROOT, [1], "latest")
    lost = []

    def after(name, path):
        if name == "put" and len(lost) < 3 - answers:
            lost.append(path)
            raise TimeoutError("no answer")

    Recorded.after = after
    if answers:
        save_steps(ROOT, [2], "latest")
    else:
        with pytest.raises(CheckpointNotSaved, match="no answer"):
            save_steps(ROOT, [2], "latest")
    Recorded.after = None

    assert resumed_step(ROOT) == 2
    save_steps(ROOT, [3], "latest")
    assert resumed_step(ROOT) == 3


def test_what_another_save_is_at_work_on_is_left_alone_for_an_hour(monkeypatch):
    Recorded.plan = Stop(8)
    with pytest.raises(PowerCut):
        save_steps(ROOT, [1], "latest")
    Recorded.plan = None
    [left] = places()
    restart()

    save_steps(ROOT, [2], "latest")
    assert left in places()
    later(monkeypatch)
    save_steps(ROOT, [3], "latest")
    assert left not in places()
    assert len(places()) == 1


def test_what_this_process_has_given_up_goes_with_its_next_save():
    Recorded.plan = lambda name, path: (_ for _ in ()).throw(OSError("down")) if name in {"put", "delete"} else None
    with pytest.raises(CheckpointNotSaved):
        save_steps(ROOT, [1], "latest")
    put_by_then = places()
    Recorded.plan = lambda name, path: (
        (_ for _ in ()).throw(OSError("down")) if name == "delete" or path.endswith("meta.json") else None
    )
    with pytest.raises(CheckpointNotSaved):
        save_steps(ROOT, [2], "latest")
    Recorded.plan = None
    assert len(places()) == 2

    save_steps(ROOT, [3], "latest")

    assert len(places()) == 2  # a manifest that was sent and not answered may still come: that place stays its hour
    assert set(put_by_then) < set(places())


def test_a_broken_manifest_keeps_every_place_that_it_may_name(monkeypatch):
    save_steps(ROOT, [1], "periodic")
    [place] = places()
    system = next(iter(Recorded._cache.values()))
    system.keep("bucket/run/ckpt_step_1/manifest.json", b"{")
    restart()
    later(monkeypatch)

    save_steps(ROOT, [2], "latest")

    assert place in places()


@pytest.mark.filterwarnings("ignore:another run has saved")
@pytest.mark.parametrize("kinds", [("latest", "latest"), ("periodic", "latest"), ("periodic", "periodic")])
def test_a_second_run_that_saves_at_any_moment_of_the_first_ones_save_tears_nothing(kinds):
    first, second = kinds
    number = 0
    while True:
        put_back({})
        restart()
        save_steps(ROOT, [1], "latest")
        interrupt = Interrupt(number, lambda: save_steps(ROOT, [2], second), READS | {"put", "complete", "delete"})
        Recorded.plan = interrupt
        save_steps(ROOT, [2], first)
        Recorded.plan = None
        assert resumed_step(ROOT) == 2
        assert all(entry.ok for entry in list_checkpoints(ROOT))
        if not interrupt.done:
            break
        number += 1
    assert number > 12


def test_a_second_run_in_the_root_is_warned_of():
    first = Checkpointer(ROOT, model=stamped(1))
    first.save()
    remote._sent, mine = {}, remote._sent
    save_steps(ROOT, [2], "latest")
    remote._sent = mine

    with pytest.warns(UserWarning, match="another run has saved to recorded://bucket/run/ckpt_latest"):
        first.save()


@pytest.mark.parametrize("kind", ["latest", "periodic"])
def test_a_reader_finds_a_whole_checkpoint_whenever_another_process_saves(kind):
    policy = SavePolicy(keep_periodic=1)
    number = 0
    while True:
        put_back({})
        restart()
        save_steps(ROOT, [1], kind, policy=policy)
        interrupt = Interrupt(number, lambda: save_steps(ROOT, [2], kind, policy=policy), READS)
        Recorded.plan = interrupt
        found = resumed_step(ROOT)
        Recorded.plan = None
        assert found in (1, 2)
        if not interrupt.done:
            break
        number += 1
    assert number > 10


@pytest.mark.parametrize("name", sorted(READS))
def test_a_store_that_does_not_answer_is_no_broken_checkpoint(name):
    save_steps(ROOT, [1, 2])
    number, told = 0, []
    while True:
        Recorded.plan = Stop(number, ConnectionError("no route"), {name})
        try:
            found = resumed_step(ROOT)
        except StoreError as error:
            told.append(str(error))
        else:
            assert found == 2
            break
        number += 1
    assert len(told) == number > 0
    assert all("no route" in text for text in told)
    Recorded.plan = Stop(0, ConnectionError("no route"), {name})
    with pytest.raises(StoreError, match="no route"):
        list_checkpoints(ROOT)


def test_files_that_vanish_before_the_commit_fail_the_save():
    save_steps(ROOT, [1], "latest")

    def plan(name, path):
        if path.endswith("meta.json") and name == "complete":
            for key in [key for key in Recorded.store if "latest-2" in key and key.endswith("model.pt")]:
                del Recorded.store[key]

    Recorded.plan = plan
    with pytest.raises(CheckpointNotSaved, match=r"model\.pt was written and is not there any more"):
        save_steps(ROOT, [2], "latest")
    Recorded.plan = None
    assert resumed_step(ROOT) == 1


def test_a_save_behind_the_training_is_the_state_at_the_call():
    model = stamped(1)
    with Checkpointer(ROOT, model=model, loader=FakeLoader(batch_size=1), background=True) as checkpointer:
        checkpointer._run.loader.micro = 1
        path = checkpointer.save()
        with_later = stamped(7)
        model.load_state_dict(with_later.state_dict())
        checkpointer.wait()
        assert str(path) == str(checkpointer.last_save.path) == f"{ROOT}/ckpt_latest"
    assert resumed_step(ROOT) == 1


def test_a_store_that_fails_after_the_commit_fails_no_save():
    published = []

    def plan(name, path):
        if published and name == "list":
            raise OSError("503 Slow Down")

    def after(name, path):
        if name == "put" and "manifest" in path:
            published.append(path)

    Recorded.plan, Recorded.after = plan, after
    policy = SavePolicy(latest_every_seconds=None, periodic_every_steps=1, keep_periodic=1, on_exit=False)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        checkpointer = Checkpointer(ROOT, model=torch.nn.Linear(2, 1), policy=policy)
        assert checkpointer.step()
    Recorded.plan = Recorded.after = None

    assert [entry.step for entry in list_checkpoints(ROOT)] == [1]
    assert any("old checkpoints" in str(one.message) for one in seen)


def test_a_clock_that_was_set_back_does_not_make_the_older_of_one_step_the_newest(monkeypatch):
    newest_is_the_one_saved_last(ROOT, monkeypatch)
