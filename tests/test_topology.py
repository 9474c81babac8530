"""Who this process is: from arguments, from the environment, from a process group, from a device mesh."""

import multiprocessing
import os
import pickle
import socket
import warnings

import numpy as np
import pytest
import torch
import torch.distributed as dist

from detdata import DetdataError, Topology

NAMES = (
    "RANK",
    "WORLD_SIZE",
    "SLURM_PROCID",
    "SLURM_NTASKS",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
)


@pytest.fixture
def detect(monkeypatch):
    def with_variables(**variables):
        for name in NAMES:
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, str(value))
        return Topology.detect()

    return with_variables


def test_one_process_is_the_default(detect):
    assert Topology(0, 1) == Topology() == detect()


def test_torchruns_variables_are_read(detect):
    assert Topology(2, 4) == detect(RANK=2, WORLD_SIZE=4)


def test_torchrun_inside_slurm_wins_over_slurm(detect):
    assert Topology(1, 2) == detect(RANK=1, WORLD_SIZE=2, SLURM_PROCID=5, SLURM_NTASKS=8, SLURM_STEP_NUM_TASKS=8)


def test_a_slurm_steps_variables_are_read(detect):
    assert Topology(5, 8) == detect(SLURM_PROCID=5, SLURM_NTASKS=8, SLURM_JOB_ID=1, SLURM_STEP_ID=0)
    # A step may have fewer tasks than its job.
    assert Topology(1, 2) == detect(SLURM_PROCID=1, SLURM_NTASKS=8, SLURM_STEP_NUM_TASKS=2)


def test_a_batch_script_without_srun_is_warned_of(detect):
    with pytest.warns(UserWarning, match=r"SLURM_NTASKS is 8.*without srun"):
        assert Topology(0, 8) == detect(SLURM_PROCID=0, SLURM_NTASKS=8, SLURM_JOB_ID=1)


def test_a_batch_script_of_one_task_is_not_warned_of(detect):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Topology() == detect(SLURM_PROCID=0, SLURM_NTASKS=1, SLURM_JOB_ID=1)
        assert Topology() == detect(SLURM_PROCID=0, SLURM_JOB_ID=1)


@pytest.mark.parametrize(
    ("variables", "names"),
    [
        ({"RANK": "1"}, ["RANK", "WORLD_SIZE", "missing"]),
        ({"WORLD_SIZE": "2"}, ["RANK", "WORLD_SIZE", "missing"]),
        ({"RANK": "2", "WORLD_SIZE": "2"}, ["RANK=2", "WORLD_SIZE=2"]),
        ({"RANK": "-1", "WORLD_SIZE": "2"}, ["RANK", "'-1'"]),
        ({"RANK": "", "WORLD_SIZE": "2"}, ["RANK", "''"]),
        ({"RANK": "0", "WORLD_SIZE": "two"}, ["WORLD_SIZE", "'two'"]),
        ({"SLURM_PROCID": "8", "SLURM_NTASKS": "8"}, ["SLURM_PROCID=8", "SLURM_NTASKS=8"]),
        ({"SLURM_PROCID": "3"}, ["SLURM_PROCID", "missing"]),
    ],
)
def test_half_a_description_or_a_contradiction_is_refused(detect, variables, names):
    with pytest.raises(ValueError) as raised:
        detect(**variables)

    assert isinstance(raised.value, DetdataError)
    assert [name for name in names if name not in str(raised.value)] == []


def test_numpy_integers_are_integers():
    topology = Topology(np.int32(1), np.uint8(4), tp_size=2)
    assert (topology.rank, topology.world_size) == (1, 4)
    assert type(topology.rank) is type(topology.world_size) is int


@pytest.mark.parametrize("arguments", [(1, 1), (-1, 2), (0, 0), (4, 4)])
def test_a_rank_outside_the_size_is_refused(arguments):
    with pytest.raises(ValueError, match=r"rank|world_size"):
        Topology(*arguments)


@pytest.mark.parametrize("arguments", [(True, 2), (0.0, 2), ("0", 2), (0, None)])
def test_what_is_no_integer_is_refused(arguments):
    with pytest.raises(TypeError, match=r"rank|world_size"):
        Topology(*arguments)


@pytest.mark.parametrize("value", [True, 1.5, None])
def test_only_integers_and_strings_are_recorded(value):
    with pytest.raises(TypeError, match="tp_size"):
        Topology(0, 1, tp_size=value)


def test_a_topology_is_a_value():
    topology = Topology(1, 4, tp_size=2, host="a")

    assert topology == pickle.loads(pickle.dumps(topology))
    assert len({topology, Topology(1, 4, host="a", tp_size=2), Topology(1, 4)}) == 2
    assert topology.to_dict() == {"rank": 1, "world_size": 4, "host": "a", "tp_size": 2}
    assert topology == eval(repr(topology))
    with pytest.raises(AttributeError, match="immutable"):
        topology.rank = 0
    topology.recorded["tp_size"] = 3
    assert topology.recorded["tp_size"] == 2


# --- process groups and meshes ----------------------------------------------------------------------------------------


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def in_group(rank, world_size, port, pipe):
    """One process of a gloo group: reports what it detects before, within and after, and in a mesh."""
    torch.set_num_threads(1)
    before = Topology.detect().to_dict()
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world_size)
    os.environ.update(RANK="0", WORLD_SIZE="1")  # the group knows better
    within = Topology.detect().to_dict()
    mesh = dist.device_mesh.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    found = {
        "default": Topology.from_mesh(mesh),
        "both": Topology.from_mesh(mesh, dims=("dp", "tp")),
        "by name": Topology.from_mesh(mesh, dims="tp"),
        "none": Topology.from_mesh(mesh, dims=()),
        "sub": Topology.from_mesh(mesh["dp"]),
        "unnamed": Topology.from_mesh(dist.device_mesh.init_device_mesh("cpu", (4,))),
    }
    errors = []
    nameless = dist.device_mesh.init_device_mesh("cpu", (2, 2))
    for arguments in ((nameless,), (mesh["tp"],), (mesh, ("pp",))):
        try:
            Topology.from_mesh(*arguments)
        except ValueError as error:
            errors.append(str(error))
    pipe.send((before, within, {name: topology.to_dict() for name, topology in found.items()}, errors))
    dist.destroy_process_group()


def test_a_process_group_and_a_mesh_of_data_and_tensor_parallel_ranks():
    context = multiprocessing.get_context("fork")
    port = free_port()
    pipes = []
    processes = []
    for rank in range(4):
        here, there = context.Pipe(duplex=False)
        processes.append(context.Process(target=in_group, args=(rank, 4, port, there)))
        pipes.append(here)
        processes[-1].start()
        there.close()
    try:
        reports = [pipe.recv() for pipe in pipes]
    finally:
        for process in processes:
            process.join(60)

    assert [process.exitcode for process in processes] == [0, 0, 0, 0]
    for rank, (before, within, found, errors) in enumerate(reports):
        dp, tp = divmod(rank, 2)
        recorded = {"dp_rank": dp, "dp_size": 2, "tp_rank": tp, "tp_size": 2}
        assert before == {"rank": 0, "world_size": 1}
        assert within == {"rank": rank, "world_size": 4}
        assert found["default"] == {"rank": dp, "world_size": 2, **recorded}  # not the world rank
        assert found["both"] == {"rank": rank, "world_size": 4, **recorded}
        assert found["by name"] == {"rank": tp, "world_size": 2, **recorded}
        assert found["none"] == {"rank": 0, "world_size": 1, **recorded}
        assert found["sub"] == {"rank": dp, "world_size": 2, "dp_rank": dp, "dp_size": 2}
        assert found["unnamed"] == {"rank": rank, "world_size": 4}
        assert [word in error for word, error in zip(("without names", "dims=", "'pp'"), errors, strict=True)] == [
            True
        ] * 3
