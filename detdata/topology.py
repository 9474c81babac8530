"""Who takes which part of a global batch: the data-parallel rank and size, and what else is worth recording.

A topology never changes the order of the data, only which rows of a batch this process takes. `detect` and `from_mesh`
are the only places that look at the environment.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, final

from detdata.checks import as_int
from detdata.errors import ArgumentTypeError, ArgumentValueError

# Mesh dimensions over which the data differ; over all others (tp, pp, cp, sp, ep …) the same samples are seen.
DATA_DIMENSIONS = frozenset({"ddp", "fsdp", "hsdp", "data", "data_parallel", "batch", "replicate", "shard"})


@final
class Topology:
    """This process's place among the data-parallel ranks.

    rank: 0 … world_size - 1, the data-parallel rank (under tensor or pipeline parallelism not the world rank).
    world_size: data-parallel ranks. recorded: more integers or strings worth recording and checking (`tp_size=2`).
    Immutable and hashable. Raises ValueError, TypeError.

    >>> Topology(rank=1, world_size=4, tp_size=2)
    Topology(rank=1, world_size=4, tp_size=2)
    """

    __slots__ = ("_recorded", "rank", "world_size")

    rank: int
    world_size: int

    def __init__(self, rank: int = 0, world_size: int = 1, **recorded: int | str) -> None:
        size = as_int(world_size, "world_size", low=1)
        object.__setattr__(self, "world_size", size)
        object.__setattr__(self, "rank", as_int(rank, "rank", high=size - 1, why=f"; world_size is {size}"))
        for name, value in recorded.items():
            if isinstance(value, bool) or not isinstance(value, (int, str)):
                raise ArgumentTypeError(f"{name} must be an integer or a string, got {value!r}")
        object.__setattr__(self, "_recorded", tuple(sorted(recorded.items())))

    @property
    def recorded(self) -> dict[str, int | str]:
        """What was given beside rank and world_size."""
        recorded: dict[str, int | str] = dict(self._recorded)  # type: ignore[attr-defined]
        return recorded

    @classmethod
    def detect(cls) -> Topology:
        """Return the topology that the surroundings tell of.

        In this order: an initialised torch.distributed process group (its default one); RANK and WORLD_SIZE, as
        torchrun sets them; SLURM_PROCID with SLURM_STEP_NUM_TASKS or SLURM_NTASKS; else one process.
        Takes every process for a data-parallel rank: with tensor or pipeline parallelism use `from_mesh`.
        Raises ValueError for half a description or a rank outside the size. Does not import torch.

        >>> import os
        >>> Topology.detect() if not {"RANK", "SLURM_PROCID"} & set(os.environ) else Topology()
        Topology(rank=0, world_size=1)
        """
        distributed = getattr(sys.modules.get("torch"), "distributed", None)
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return cls(distributed.get_rank(), distributed.get_world_size())
        return _from_environment(os.environ)

    @classmethod
    def from_mesh(cls, device_mesh: Any, dims: Sequence[str] | None = None) -> Topology:
        """Return this process's topology in a torch `DeviceMesh`: rank and size over its data-parallel dimensions.

        dims: names of the data-parallel dimensions, outermost first; by default those named dp…, ddp, fsdp, hsdp,
        data, data_parallel, batch, replicate or shard, and the only one of an unnamed mesh. The place and size in all
        others are recorded (`tp_rank`, `tp_size`). Raises ValueError if no dimension is known to be data-parallel.
        """
        names = device_mesh.mesh_dim_names
        if names is None:
            if device_mesh.ndim != 1:
                raise ArgumentValueError(
                    f"device_mesh has {device_mesh.ndim} dimensions without names, so which are data-parallel is "
                    "unknown; build it with mesh_dim_names=('dp', 'tp') or so"
                )
            return cls(device_mesh.get_local_rank(), device_mesh.size())
        if dims is None:
            data = [name for name in names if name.startswith("dp") or name in DATA_DIMENSIONS]
            if not data:
                raise ArgumentValueError(
                    f"device_mesh has the dimensions {tuple(names)}, none of them known to be data-parallel; "
                    "name them: Topology.from_mesh(mesh, dims=('replica',)), or dims=() if all see the same data"
                )
        else:
            data = [dims] if isinstance(dims, str) else list(dims)
            unknown = [name for name in data if name not in names]
            if unknown:
                raise ArgumentValueError(f"dims {unknown} are not dimensions of device_mesh, which has {tuple(names)}")
        rank, size = 0, 1
        recorded: dict[str, int | str] = {}
        for name in data:
            length = device_mesh.size(names.index(name))
            rank, size = rank * length + device_mesh.get_local_rank(name), size * length
        for index, name in enumerate(names):
            recorded[f"{name}_rank"] = device_mesh.get_local_rank(name)
            recorded[f"{name}_size"] = device_mesh.size(index)
        return cls(rank, size, **recorded)

    def to_dict(self) -> dict[str, int | str]:
        """Return everything as plain JSON.

        >>> Topology(0, 2, tp_size=4).to_dict()
        {'rank': 0, 'world_size': 2, 'tp_size': 4}
        """
        return {"rank": self.rank, "world_size": self.world_size, **self.recorded}

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Topology is immutable; make another one instead of setting {name!r}")

    def __eq__(self, other: object) -> bool:
        return self.to_dict() == other.to_dict() if isinstance(other, Topology) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self.to_dict().items()))

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (self.to_dict(),))

    def __repr__(self) -> str:
        return f"Topology({', '.join(f'{name}={value!r}' for name, value in self.to_dict().items())})"


def _rebuild(fields: dict[str, Any]) -> Topology:
    return Topology(**fields)


def _from_environment(environment: Mapping[str, str]) -> Topology:
    if "RANK" in environment or "WORLD_SIZE" in environment:
        return _from_variables(environment, "RANK", "WORLD_SIZE")
    if "SLURM_PROCID" in environment:
        if "SLURM_STEP_NUM_TASKS" in environment:
            return _from_variables(environment, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS")
        if "SLURM_JOB_ID" in environment and "SLURM_STEP_ID" not in environment:
            tasks = environment.get("SLURM_NTASKS", "1")
            if tasks != "1":
                warnings.warn(
                    f"SLURM_NTASKS is {tasks} but there is no SLURM_STEP_ID: was this started by sbatch without srun? "
                    f"Then this process alone takes 1/{tasks} of the data. Start it by srun, or pass Topology().",
                    stacklevel=3,
                )
        if "SLURM_NTASKS" in environment:
            return _from_variables(environment, "SLURM_PROCID", "SLURM_NTASKS")
        if environment["SLURM_PROCID"].strip() != "0":  # 0 alone is a batch script of one task
            return _from_variables(environment, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS")  # says what is missing
    return Topology()


def _from_variables(environment: Mapping[str, str], rank_name: str, size_name: str) -> Topology:
    numbers = []
    for name in (rank_name, size_name):
        text = environment.get(name)
        if text is None:
            raise ArgumentValueError(
                f"the environment has only one of {rank_name} and {size_name}: {name} is missing; "
                "start by torchrun or srun, or pass Topology(rank, world_size)"
            )
        if not text.strip().isdigit():
            raise ArgumentValueError(f"environment variable {name} must be a number, got {text!r}")
        numbers.append(int(text))
    if numbers[0] >= numbers[1]:
        raise ArgumentValueError(
            f"environment variables contradict each other: {rank_name}={numbers[0]} but {size_name}={numbers[1]}"
        )
    return Topology(numbers[0], numbers[1])
