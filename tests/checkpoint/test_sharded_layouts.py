"""Meshes and state that sharded runs have and plain ones do not: each comes back to the bit, in its own layout."""

import os
import warnings

import pytest
import torch

from detdata import Topology
from detdata.checkpoint import Checkpointer, list_checkpoints, verify_checkpoint
from tests.checkpoint.fakes import Box, bits
from tests.checkpoint.ranks import in_ranks
from tests.checkpoint.test_sharded import NEVER, full_state, whole

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="forks"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:FSDP2-wrapped module .* returned a view tensor"),
]
INPUT = torch.randn(8, 5, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def shard(model, mesh_of):
    """Shard by name: how the ranks lie, and what that makes of the parameters."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    size = torch.distributed.get_world_size()
    if mesh_of == "tp, replicated by hand":  # the mesh of the parameters knows nothing of dp
        mesh = init_device_mesh("cpu", (size // 2, 2), mesh_dim_names=("dp", "tp"))
        parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    elif mesh_of == "hsdp":
        mesh = init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("dp_replicate", "dp_shard"))
        fully_shard(model, mesh=mesh)
    else:
        mesh = init_device_mesh("cpu", (size,), mesh_dim_names=("dp",))
        fully_shard(model, mesh=mesh)
    return Topology.from_mesh(mesh)


class Rows(torch.optim.SGD):
    """Keeps a number for each row of a parameter, as optimizers with factored moments do."""

    def step(self, closure=None):
        super().step(closure)
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter]["rows"] = parameter.detach().sum(-1, keepdim=True) + 0.0


def make(seed, mesh_of, kind):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(5, 6), torch.nn.Tanh(), torch.nn.Linear(6, 2)).double()
    topology = Topology() if mesh_of is None else shard(model, mesh_of)
    optimizer = (Rows if kind == "Rows" else getattr(torch.optim, kind))(model.parameters(), lr=0.05)
    return {"model": model, "optimizer": optimizer}, topology


def steps(parts, count):
    for _ in range(count):
        parts["optimizer"].zero_grad()
        parts["model"](INPUT).square().mean().backward()
        parts["optimizer"].step()


def save(rank, size, root, mesh_of, kind="AdamW"):
    parts, topology = make(0, mesh_of, kind)
    steps(parts, 2)
    Checkpointer(root, topology=topology, policy=NEVER, timeout_seconds=30, **parts).save()
    return full_state(parts)


def load(rank, size, root, mesh_of, kind="AdamW"):
    parts, topology = make(7, mesh_of, kind)
    checkpointer = Checkpointer(root, topology=topology, policy=NEVER, timeout_seconds=30, **parts)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        checkpointer.resume(accept=("world_size", "topology"))
    state = full_state(parts)
    steps(parts, 1)
    return state


MESHES = [("tp, replicated by hand", 4), ("hsdp", 4), ("fsdp", 4)]


@pytest.mark.parametrize(("mesh_of", "size"), MESHES)
def test_every_mesh_comes_back_and_is_read_by_one_process_and_by_another_mesh(tmp_path, mesh_of, size):
    root = tmp_path / "root"
    saved = in_ranks(size, save, tmp_path / "a", root, mesh_of)
    [entry] = list_checkpoints(root)
    assert verify_checkpoint(entry.path).ok

    assert in_ranks(size, load, tmp_path / "b", root, mesh_of) == saved
    assert load(0, 0, root, None) == saved[0]
    assert in_ranks(2, load, tmp_path / "c", root, "fsdp") == saved[:2]


@pytest.mark.parametrize("kind", ["Rows", "NAdam", "Adagrad"])
def test_state_of_other_shapes_than_the_parameters_comes_back(tmp_path, kind):
    root = tmp_path / "root"
    saved = in_ranks(2, save, tmp_path / "b", root, "fsdp", kind)

    assert in_ranks(2, load, tmp_path / "c", root, "fsdp", kind) == saved
    assert in_ranks(4, load, tmp_path / "d", root, "fsdp", kind)[:2] == saved
    assert load(0, 0, root, None, kind) == saved[0]


def lazy(rank, size, root):
    """An extra part that has no state before it is given some."""
    answers = []
    for seed in (0, 7):
        parts, topology = make(seed, "fsdp", "AdamW")
        steps(parts, 1)
        box = Box({name: value.detach() * 0.5 for name, value in parts["model"].state_dict().items()})
        if seed:
            box.value = None
        options = {"topology": topology, "policy": NEVER, "timeout_seconds": 30, "extra": {"ema": box}}
        checkpointer = Checkpointer(root, **options, **parts)
        checkpointer.resume() if seed else checkpointer.save()
        answers.append({name: (type(value).__name__, bits(whole(value))) for name, value in box.value.items()})
    return answers


def test_an_extra_part_without_state_of_its_own_yet_gets_values_and_no_shells(tmp_path):
    for before, after in in_ranks(2, lazy, tmp_path / "a", tmp_path / "root"):
        assert before == after
        assert {kind for kind, _ in after.values()} == {"DTensor"}


def only_extra(rank, size, root):
    """The model lies whole on every rank, and another one in pieces."""
    answers = []
    for seed in (0, 7):
        parts, topology = make(seed, "fsdp", "AdamW")
        torch.manual_seed(seed)
        model = torch.nn.Linear(3, 3)
        extra = {"big": parts["model"], "its_optimizer": parts["optimizer"]}
        checkpointer = Checkpointer(root, model=model, extra=extra, topology=topology, policy=NEVER, timeout_seconds=30)
        if seed:
            checkpointer.resume()
        else:
            steps(parts, 1)
            checkpointer.save()
        answers.append((full_state(parts), bits(model.state_dict())))
    return answers


def test_extra_modules_may_lie_in_pieces_where_the_model_does_not(tmp_path):
    for before, after in in_ranks(2, only_extra, tmp_path / "a", tmp_path / "root"):
        assert before == after


def hidden(rank, size, root):
    parts, topology = make(0, "fsdp", "AdamW")
    box = Box(parts["model"].state_dict())
    checkpointer = Checkpointer(root, model=torch.nn.Linear(2, 2), extra={"box": box}, topology=topology, policy=NEVER)
    try:
        return str(checkpointer.save())
    except (TypeError, ValueError) as error:
        return str(error)


def test_pieces_that_only_one_rank_would_know_of_are_refused(tmp_path):
    for answer in in_ranks(2, hidden, tmp_path / "a", tmp_path / "root"):
        assert "extra.pt holds a DTensor" in answer


def uneven_state(rank, size, root):
    """One rank has no state for one parameter, so that the n-th piece is another tensor there."""
    parts, topology = make(0, "fsdp", "SGD")
    parts["optimizer"] = torch.optim.SGD(parts["model"].parameters(), lr=0.1, momentum=0.9)
    steps(parts, 1)
    if rank == 1:
        first = next(iter(parts["model"].parameters()))
        del parts["optimizer"].state[first]
    checkpointer = Checkpointer(root, topology=topology, policy=NEVER, timeout_seconds=30, **parts)
    try:
        return str(checkpointer.save())
    except ValueError as error:
        return str(error)


def test_state_that_only_some_ranks_have_is_refused(tmp_path):
    for answer in in_ranks(2, uneven_state, tmp_path / "a", tmp_path / "root"):
        assert "sharded tensors" in answer
