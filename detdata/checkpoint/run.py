"""What a run consists of, as the Checkpointer is given it: checked once, then only looked at."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import torch

from detdata.checkpoint.deepspeed import DeepSpeedModel, check_options, is_engine
from detdata.checkpoint.sharded import any_sharded
from detdata.checks import as_version
from detdata.errors import ArgumentTypeError, ArgumentValueError
from detdata.progress import Progress
from detdata.streams import Stream
from detdata.topology import Topology


@runtime_checkable
class Stateful(Protocol):
    """Whatever can be saved as an extra part."""

    def state_dict(self) -> Any:
        """Return the state as plain values and tensors."""

    def load_state_dict(self, state_dict: Any, /) -> Any:
        """Take the state back."""


class LoaderLike(Protocol):
    """What the Checkpointer asks of a loader; `check_state(state)` beside it if it has one."""

    @property
    def progress(self) -> Progress:
        """Where training stands."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state as plain JSON."""

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """Take the state back; raise StateMismatch if it belongs to another plan."""


class TopologyLike(Protocol):
    """What the Checkpointer asks of a topology."""

    @property
    def rank(self) -> int:
        """The data-parallel rank."""

    @property
    def world_size(self) -> int:
        """The number of data-parallel ranks."""

    def to_dict(self) -> Mapping[str, Any]:
        """Return everything recorded as plain JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The objects of a run and what is declared about it; None is what the run does not have."""

    model: torch.nn.Module
    optimizer: Any = None
    schedulers: tuple[Any, ...] = ()
    scaler: Any = None
    loader: LoaderLike | None = None
    extra: Mapping[str, Stateful] = field(default_factory=dict)
    generators: Mapping[str, Stream] = field(default_factory=dict)
    topology: TopologyLike
    dataset_version: str | None = None
    precision: str | None = None
    config: Any = None

    @property
    def rank(self) -> int:
        """The data-parallel rank."""
        return self.topology.rank

    def layout(self) -> dict[str, Any]:
        """The topology as plain JSON."""
        return dict(self.topology.to_dict())

    def bare_model(self) -> torch.nn.Module:
        """The model without DistributedDataParallel and torch.compile around it."""
        return unwrap(self.model)

    def is_sharded(self) -> bool:
        """Whether a tensor of the model, or of a module or optimizer among the extra parts, is a DTensor."""
        model = self.bare_model()
        modules = [model, *(part for part in self.extra.values() if isinstance(part, torch.nn.Module))]
        optimizers = [part for part in self.extra.values() if isinstance(part, torch.optim.Optimizer)]
        return any_sharded(
            [
                *(tensor for module in modules for tensor in (*module.parameters(), *module.buffers())),
                *(one for part in optimizers for group in part.param_groups for one in group["params"]),
            ]
        )

    @property
    def engine(self) -> DeepSpeedModel | None:
        """The DeepSpeed engine that saves and loads itself, if the model is one."""
        return self.model if isinstance(self.model, DeepSpeedModel) else None

    def scaler_state(self) -> dict[str, Any] | None:
        """The state of the scaler; None if there is none or it is disabled (its state is then empty)."""
        return None if self.scaler is None else self.scaler.state_dict() or None


def layout_sizes(layout: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a topology is the same on all ranks: all but the places in it.

    >>> layout_sizes({"rank": 1, "world_size": 2, "tp_rank": 0, "tp_size": 2})
    {'world_size': 2, 'tp_size': 2}
    """
    return {name: value for name, value in layout.items() if name != "rank" and not name.endswith("_rank")}


def unwrap(model: torch.nn.Module) -> torch.nn.Module:
    """Return the module inside DistributedDataParallel, DataParallel and torch.compile, in any order of them."""
    wrappers = (torch.nn.parallel.DistributedDataParallel, torch.nn.DataParallel)
    while True:
        if isinstance(model, wrappers):
            model = model.module
        elif "_orig_mod" in model._modules and isinstance(model._orig_mod, torch.nn.Module):
            model = model._orig_mod
        else:
            return model


def describe_run(
    *,
    model: object,
    optimizer: object,
    scheduler: object,
    scaler: object,
    loader: Any,
    extra: object,
    generators: object,
    topology: Any,
    dataset_version: object,
    precision: object,
    config: object,
) -> Run:
    """Return what the Checkpointer was given as a Run. Raises TypeError, ValueError naming the argument."""
    if not isinstance(model, torch.nn.Module):
        raise ArgumentTypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    _refuse_old_fsdp(model)
    if is_engine(model):
        raise ArgumentTypeError(
            "model is a DeepSpeed engine, which saves and loads itself: give the Checkpointer DeepSpeedModel(engine)"
        )
    if isinstance(model, DeepSpeedModel):
        check_options(model, optimizer=optimizer, scaler=scaler)
    if optimizer is not None and not (isinstance(optimizer, Stateful) and getattr(optimizer, "param_groups", None)):
        more = (
            ". Give one here, and the others as extra={name: optimizer}" if isinstance(optimizer, (list, tuple)) else ""
        )
        raise ArgumentTypeError(f"optimizer must be a torch optimizer, got {type(optimizer).__name__}{more}")
    schedulers = () if scheduler is None else tuple(scheduler) if isinstance(scheduler, (list, tuple)) else (scheduler,)
    parts: dict[str, Any] = {f"scheduler[{index}]": one for index, one in enumerate(schedulers)}
    parts |= {} if scaler is None else {"scaler": scaler}
    parts |= {} if loader is None else {"loader": loader}
    if extra is not None and not isinstance(extra, Mapping):
        raise ArgumentTypeError(f"extra must be a mapping of names to objects, got {type(extra).__name__}")
    extras = dict(extra or {})
    for name, part in extras.items():
        if not isinstance(name, str) or not name:
            raise ArgumentTypeError(f"extra: names must be non-empty strings, got {name!r}")
        parts[f"extra[{name!r}]"] = part
    for name, part in parts.items():
        if not isinstance(part, Stateful):
            raise ArgumentTypeError(f"{name} must have state_dict() and load_state_dict(), got {type(part).__name__}")
    if generators is not None and not isinstance(generators, Mapping):
        raise ArgumentTypeError(f"generators must be a mapping of names to generators, got {type(generators).__name__}")
    streams = dict(generators or {})
    for name, stream in streams.items():
        if not isinstance(name, str) or not name or not isinstance(stream, Stream):
            raise ArgumentTypeError(
                f"generators: each must be a name with a torch.Generator, numpy.random.Generator or RandomState, or "
                f"random.Random; got {name!r}: {type(stream).__name__}"
            )
    if loader is not None and not isinstance(getattr(loader, "progress", None), Progress):
        raise ArgumentTypeError("loader must have a .progress that is a detdata.Progress, as detdata.Loader has")
    if precision is not None and not isinstance(precision, str):
        raise ArgumentTypeError(f'precision must be a string such as "bf16-mixed", got {precision!r}')
    if topology is None:
        topology = getattr(loader, "topology", None) or Topology.detect()
    for name in ("rank", "world_size", "to_dict"):
        if not hasattr(topology, name):
            raise ArgumentTypeError(f"topology must be a Topology, got {topology!r}")
    other = getattr(loader, "topology", topology)
    if (other.rank, other.world_size) != (topology.rank, topology.world_size):
        raise ArgumentValueError(
            f"topology contradicts the loader's: rank {topology.rank} of {topology.world_size}, but the loader takes "
            f"the part of rank {other.rank} of {other.world_size}"
        )
    if not 0 <= topology.rank < topology.world_size:
        raise ArgumentValueError(f"topology: rank {topology.rank} is outside its world size {topology.world_size}")
    own = getattr(loader, "dataset_version", None)
    version = own if dataset_version is None else as_version(dataset_version)
    if own is not None and version != own:
        raise ArgumentValueError(f"dataset_version contradicts the loader's: {version!r} here, {own!r} there")
    return Run(
        model=model,
        optimizer=optimizer,
        schedulers=schedulers,
        scaler=scaler,
        loader=loader,
        extra=extras,
        generators=streams,
        topology=topology,
        dataset_version=version,
        precision=precision,
        config=config,
    )


def _refuse_old_fsdp(model: torch.nn.Module) -> None:
    """The first FullyShardedDataParallel gathers its state by collectives of its own, and hides names and shapes."""
    module = sys.modules.get("torch.distributed.fsdp")
    old: Any = getattr(module, "FullyShardedDataParallel", ())
    if any(isinstance(part, old) for part in model.modules()):
        raise ArgumentTypeError(
            "model holds a FullyShardedDataParallel, which is not supported: shard it by "
            "torch.distributed.fsdp.fully_shard (FSDP2) instead"
        )
