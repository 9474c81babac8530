"""A DeepSpeed engine in a checkpoint: a stand-in with its documented interface, and DeepSpeed itself where it is."""

import importlib.util
import os
import random
from pathlib import Path

import numpy as np
import pytest
import torch

from detdata import Loader, Plan, Shuffle
from detdata.checkpoint import (
    Checkpointer,
    CheckpointNotSaved,
    DeepSpeedModel,
    SavePolicy,
    lay_out_deepspeed,
    list_checkpoints,
)
from detdata.checkpoint.manifest import read_manifest
from detdata.errors import CheckpointBroken, CheckpointMismatch
from tests.checkpoint.engines import StandIn, deepspeed_engine, small_model
from tests.checkpoint.fakes import bits
from tests.checkpoint.ranks import in_ranks

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="forks"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]
NEVER = SavePolicy(latest_every_seconds=None, latest_every_steps=None, on_signal=False, on_exit=False)
DATA = torch.randn(48, 4, generator=torch.Generator().manual_seed(3))
MODEL = "engine--state--mp_rank_00_model_states.pt.bin"


def stand_in(stage):
    return StandIn(small_model(), zero_stage=stage)


def build(root, make=stand_in, stage=1, *, rank=0, seed=0, trust_pickle=True, **options):
    torch.manual_seed(seed)
    engine = make(stage)
    for stream in (random.seed, np.random.seed, torch.manual_seed):
        stream(100 * seed + rank)
    loader = Loader(DATA, Plan(Shuffle(48, seed=5), 8), randomness="off")
    model = DeepSpeedModel(engine, trust_pickle=trust_pickle)
    options = {"timeout_seconds": 30, "policy": NEVER, **options}
    return engine, loader, Checkpointer(root, model=model, loader=loader, **options)


def train(engine, loader, checkpointer, stop):
    losses = []
    dtype = next(engine.module.parameters()).dtype
    for batch in loader.until(stop):
        loss = engine((batch + random.random()).to(dtype)).float().square().mean()
        engine.backward(loss)
        engine.step()
        checkpointer.step()
        losses.append(loss.item())
    return losses


def tensors(tree):
    if isinstance(tree, torch.Tensor):
        return [bits(tree)]
    if isinstance(tree, (list, tuple, dict)):
        return [found for one in (tree.values() if isinstance(tree, dict) else tree) for found in tensors(one)]
    return []


def state(engine):
    """Parameters, moments and whatever else the optimizer of this rank has, and the random states."""
    own = tensors(engine.module.state_dict()), tensors(engine.optimizer.state_dict())
    return *own, random.getstate(), bits(torch.get_rng_state())


def straight(rank, size, root, make, stage):
    """Train to step 8, saving at step 4 on the way."""
    engine, loader, checkpointer = build(root, make, stage, rank=rank)
    assert checkpointer.resume() is None
    train(engine, loader, checkpointer, 4)
    checkpointer.save()
    saved = state(engine)
    assert saved[1]
    return saved, train(engine, loader, checkpointer, 8), state(engine)


def resumed(rank, size, root, make, stage):
    engine, loader, checkpointer = build(root, make, stage, rank=rank, seed=9)
    assert checkpointer.resume().global_step == 4
    return state(engine), train(engine, loader, checkpointer, 8), state(engine)


def check_round_trip(tmp_path, make, stage):
    expected = in_ranks(2, straight, tmp_path / "a", tmp_path / "root", make, stage)
    [entry] = list_checkpoints(tmp_path / "root")
    assert entry.ok
    names = {path.name for path in entry.path.iterdir()}
    own = {name for name in names if name.startswith("engine--state--")}
    assert all(path.is_file() for path in entry.path.iterdir())
    assert MODEL in own or stage == 3
    assert len([name for name in own if name.endswith("_optim_states.pt.bin")]) == 2
    assert set(read_manifest(entry.path).files) == names - {"manifest.json"}

    found = in_ranks(2, resumed, tmp_path / "b", tmp_path / "root", make, stage)

    assert found == expected
    assert expected[0][2][2:] != expected[1][2][2:]  # each rank has random states of its own
    return entry.path


def test_an_engine_on_two_ranks_goes_on_bit_for_bit(tmp_path):
    path = check_round_trip(tmp_path, stand_in, 1)

    assert lay_out_deepspeed(path, tmp_path / "out") == tmp_path / "out" / "state"
    names = sorted(one.relative_to(tmp_path / "out").as_posix() for one in (tmp_path / "out").rglob("*.p*"))
    optimizer = [f"state/zero_pp_rank_{rank}_mp_rank_00_optim_states.pt" for rank in range(2)]
    assert names == ["state/mp_rank_00_model_states.pt", *optimizer, "zero_to_fp32.py"]


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="deepspeed is not installed")
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_deepspeed_itself_on_two_ranks_goes_on_bit_for_bit(tmp_path, stage):
    check_round_trip(tmp_path, deepspeed_engine, stage)


def test_the_engine_is_called_as_documented_and_leaves_no_folder_of_its_own(tmp_path):
    engine, loader, checkpointer = build(tmp_path / "root")
    train(engine, loader, checkpointer, 2)
    path = checkpointer.save()
    checkpointer.close()
    again, _, checkpointer = build(tmp_path / "root", seed=9)
    checkpointer.resume()

    assert engine.calls == [("save", "state", {}, False)]
    assert again.calls == [("load", "state")]
    assert state(again) == state(engine)
    assert not [one for one in path.iterdir() if one.is_dir()]


class Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_no_code_of_the_files_runs_unless_they_are_trusted(tmp_path):
    engine, _, checkpointer = build(tmp_path / "root")
    engine.more = [("planted.more", Bomb(tmp_path / "ran"))]
    checkpointer.save()
    checkpointer.close()
    careful, _, checkpointer = build(tmp_path / "root", seed=9, trust_pickle=False)
    before = state(careful)

    with pytest.raises(CheckpointMismatch, match="trust_pickle") as caught:
        checkpointer.resume()

    assert "DeepSpeedModel(engine, trust_pickle=True)" in str(caught.value)
    assert state(careful) == before
    assert careful.calls == []
    assert not (tmp_path / "ran").exists()
    build(tmp_path / "root", seed=9)[2].resume()
    assert (tmp_path / "ran").exists()


def test_a_flipped_bit_in_a_file_of_the_engine_is_named_before_the_engine_reads_it(tmp_path):
    _, _, checkpointer = build(tmp_path / "root")
    path = checkpointer.save() / MODEL
    checkpointer.close()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    engine, _, checkpointer = build(tmp_path / "root", seed=9)

    with pytest.raises(CheckpointBroken, match=r"model_states.*is altered"):
        checkpointer.resume()

    assert engine.calls == []


@pytest.mark.parametrize("failure", [RuntimeError("unexpected pos 64 vs 0"), OSError(28, "No space left"), False])
def test_an_engine_that_cannot_save_leaves_what_was_saved(tmp_path, failure):
    engine, loader, checkpointer = build(tmp_path / "root")
    checkpointer.save()
    train(engine, loader, checkpointer, 1)

    def save_checkpoint(save_dir, **_):
        (Path(save_dir) / "state").mkdir(parents=True)
        if failure:
            raise failure
        return False

    engine.save_checkpoint = save_checkpoint
    with pytest.raises(CheckpointNotSaved, match=str(failure).rpartition("] ")[2]):
        checkpointer.save()

    [entry] = list_checkpoints(tmp_path / "root")
    assert (entry.step, entry.ok) == (0, True)
    assert not [one for one in (tmp_path / "root").iterdir() if one.name.startswith(".tmp-")]


@pytest.mark.parametrize("name", ["a--b", "-a", "a-", "ä", "x" * 120])
def test_a_name_that_could_be_mistaken_is_refused(tmp_path, name):
    engine, _, checkpointer = build(tmp_path / "root")
    engine.more = [(name, 1)]

    with pytest.raises(CheckpointNotSaved, match="cannot be a member's name"):
        checkpointer.save()


def test_a_link_that_the_engine_leaves_is_no_file(tmp_path):
    engine, _, checkpointer = build(tmp_path / "root")
    save = engine.save_checkpoint

    def save_checkpoint(save_dir, **options):
        save(save_dir, **options)
        (Path(save_dir) / "link").symlink_to("/dev/zero")

    engine.save_checkpoint = save_checkpoint
    with pytest.raises(CheckpointNotSaved, match="symbolic link"):
        checkpointer.save()


def test_what_no_rank_has_seen_is_hashed_when_all_is_put_together(tmp_path):
    model = DeepSpeedModel(stand_in(1))
    first = model.save(tmp_path, 0, 2)  # and rank 1 looks at a folder that is not up to date

    rest = model.settle(tmp_path, first)

    names = {path.name for path in tmp_path.iterdir()}
    assert {*first, *rest} == names
    assert not set(first) & set(rest)
    assert rest


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda engine: setattr(engine, "zero_stage", 2), r"(?s)zero_stage.*saved.*1.*found.*2"),
        (lambda engine: setattr(engine, "module", torch.nn.Linear(3, 1)), r"(?s)model.*0\.weight \[8, 4\].*weight \[1"),
    ],
)
def test_another_stage_or_model_is_refused_before_the_engine_is_called(tmp_path, change, text):
    _, _, checkpointer = build(tmp_path / "root")
    checkpointer.save()
    checkpointer.close()
    engine, _, checkpointer = build(tmp_path / "root")
    change(engine)

    with pytest.raises(CheckpointMismatch, match=text):
        checkpointer.resume()

    assert engine.calls == []


def saved_by_two(rank, size, root, stage):
    build(root, stage=stage, rank=rank)[2].save()


@pytest.mark.parametrize("stage", [0, 1])
def test_another_number_of_ranks_only_without_zero(tmp_path, stage):
    in_ranks(2, saved_by_two, tmp_path / "a", tmp_path / "root", stage)
    _, _, checkpointer = build(tmp_path / "root", stage=stage)

    if stage:
        with pytest.raises(CheckpointMismatch, match=r"(?s)ZeRO partitions.*of 2 ranks"):
            checkpointer.resume(accept=("world_size",))
    else:
        assert checkpointer.resume(accept=("world_size",)).global_step == 0


def test_a_checkpoint_with_an_engine_is_for_an_engine_and_another_is_not(tmp_path):
    build(tmp_path / "engine")[2].save()
    loader = Loader(DATA, Plan(Shuffle(48, seed=5), 8), randomness="off")
    Checkpointer(tmp_path / "plain", model=small_model(), loader=loader, policy=NEVER).save()

    with pytest.raises(CheckpointMismatch, match="a DeepSpeed engine"):
        Checkpointer(tmp_path / "engine", model=small_model(), loader=loader).resume()
    with pytest.raises(CheckpointMismatch, match="not of a DeepSpeed engine"):
        build(tmp_path / "plain")[2].resume()


def test_what_cannot_go_with_an_engine_is_refused_at_once(tmp_path):
    engine = stand_in(1)
    for options in ({"background": True}, {"gradients": True}, {"optimizer": engine.optimizer}):
        with pytest.raises(ValueError, match=f"{next(iter(options))} cannot go with a DeepSpeed engine"):
            Checkpointer(tmp_path, model=DeepSpeedModel(engine), **options)
    with pytest.raises(TypeError, match=r"DeepSpeedModel\(engine\)"):
        Checkpointer(tmp_path, model=engine)
    with pytest.raises(TypeError, match="trust_pickle must be True or False"):
        DeepSpeedModel(engine, trust_pickle="yes")
    engine.use_node_local_storage = lambda: True
    with pytest.raises(ValueError, match="use_node_local_storage"):
        DeepSpeedModel(engine)


def test_an_engine_that_writes_behind_the_training_is_refused():
    engine = stand_in(1)
    engine.checkpoint_engine = type("Behind", (), {"is_decoupled": lambda self: True})()

    with pytest.raises(ValueError, match="writes behind the training"):
        DeepSpeedModel(engine)
