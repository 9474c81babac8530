"""The random states of this process: python's, NumPy's and torch's global ones, the accelerators', the registered.

The only module that reads or sets global random state. Everything becomes numbers and tensors, so that the file loads
without running code. An accelerator that this process has not touched is neither read nor initialised.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import xxhash

from detdata.keys import fold
from detdata.seeding import seed_global
from detdata.streams import Stream, seed_stream

FORMAT = "detdata.rng/1"
ACCELERATORS = ("cuda", "xpu", "mps")  # torch.<name>, each with get_rng_state


def capture_rng(generators: Mapping[str, Stream] | None = None) -> dict[str, Any]:
    """Return the random states as a plain tree. Changes none of them."""
    version, words, gauss = random.getstate()
    return {
        "format": FORMAT,
        "python": {"version": version, "words": torch.tensor(words, dtype=torch.int64, device="cpu"), "gauss": gauss},
        "numpy": _from_numpy(np.random.get_state(legacy=False)),
        "torch": torch.get_rng_state(),
        "accelerators": {name: states for name in ACCELERATORS if (states := _device_states(name))},
        "generators": {name: _capture_generator(stream) for name, stream in (generators or {}).items()},
    }


def restore_rng(saved: Mapping[str, Any], generators: Mapping[str, Stream] | None = None, rank: int = 0) -> None:
    """Set the random states to what `capture_rng` returned.

    A device that is here and was not saved is seeded from a hash of torch's saved state, its number and the rank, so
    all differ; states of devices that are not here are left out. The same for a registered generator by its name.
    """
    python = saved["python"]
    random.setstate((python["version"], tuple(python["words"].tolist()), python["gauss"]))
    np.random.set_state(_to_numpy(saved["numpy"]))
    torch.set_rng_state(saved["torch"])
    state = _hash(saved)
    for name in ACCELERATORS:
        _restore_devices(name, saved["accelerators"].get(name, []), state, rank)
    for name, stream in (generators or {}).items():
        own = saved["generators"].get(name)
        if own is None or own["class"] != generator_class(stream):
            seed_stream(stream, fold("detdata.generator_rng/1", state, name, rank))
        else:
            _restore_generator(stream, own["state"])


def derive_rng(saved: Mapping[str, Any], rank: int, generators: Mapping[str, Stream] | None = None) -> None:
    """Seed this rank's streams from rank 0's saved ones: for a rank whose own were not saved.

    The seeds are hashes of rank 0's torch state and the rank, so ranks differ, and a second resume gives the same.
    """
    state = _hash(saved)
    seed_global(fold("detdata.rank_rng/1", state, rank))
    for name in ACCELERATORS:
        _restore_devices(name, [], state, rank)
    for name, stream in (generators or {}).items():
        seed_stream(stream, fold("detdata.generator_rng/1", state, name, rank))


def devices_saved(saved: Mapping[str, Any]) -> dict[str, int]:
    """Return accelerator -> number of devices whose states were saved."""
    return {name: len(states) for name, states in saved["accelerators"].items()}


def devices_here(name: str) -> int:
    """Return how many devices of an accelerator this process sees."""
    module: Any = getattr(torch, name, None)
    if module is None or not _available(name, module):
        return 0
    return int(module.device_count()) if hasattr(module, "device_count") else 1


def generator_class(stream: Stream) -> str:
    """Return the kind of a generator: its class, with NumPy's bit generator or torch's device in it.

    >>> generator_class(np.random.default_rng(0))
    'numpy.Generator(PCG64)'
    """
    if isinstance(stream, np.random.Generator):
        return f"numpy.Generator({type(stream.bit_generator).__name__})"
    if isinstance(stream, np.random.RandomState):
        return "numpy.RandomState"
    return f"torch.Generator({stream.device.type})" if isinstance(stream, torch.Generator) else "random.Random"


def _capture_generator(stream: Stream) -> dict[str, Any]:
    state: Any
    if isinstance(stream, np.random.Generator):
        state = _from_numpy(stream.bit_generator.state)
    elif isinstance(stream, np.random.RandomState):
        state = _from_numpy(stream.get_state(legacy=False))
    elif isinstance(stream, torch.Generator):
        state = stream.get_state()
    else:
        version, words, gauss = stream.getstate()
        state = {"version": version, "words": torch.tensor(words, dtype=torch.int64, device="cpu"), "gauss": gauss}
    return {"class": generator_class(stream), "state": state}


def _restore_generator(stream: Stream, state: Any) -> None:
    if isinstance(stream, np.random.Generator):
        stream.bit_generator.state = _to_numpy(state)
    elif isinstance(stream, np.random.RandomState):
        stream.set_state(_to_numpy(state))
    elif isinstance(stream, torch.Generator):
        stream.set_state(state)
    else:
        stream.setstate((state["version"], tuple(state["words"].tolist()), state["gauss"]))


def _available(name: str, module: Any) -> bool:
    return bool(torch.backends.mps.is_available() if name == "mps" else module.is_available())


def _device_states(name: str) -> list[torch.Tensor]:
    module: Any = getattr(torch, name, None)
    if module is None or not _available(name, module):
        return []
    if name == "mps":
        return [module.get_rng_state()]
    return [generator.get_state() for generator in module.default_generators] if module.is_initialized() else []


def _restore_devices(name: str, states: list[torch.Tensor], seed: int, rank: int) -> None:
    """Give each device here its saved state, or one that is derived; devices that were never touched stay so."""
    module: Any = getattr(torch, name, None)
    count = devices_here(name)
    if not count or not (states or name == "mps" or module.is_initialized()):
        return
    if name != "mps":
        module.init()
    for device in range(count):
        derived = fold("detdata.device_rng/1", seed, name, device, rank) % 2**63
        if name == "mps":
            module.set_rng_state(states[0]) if states else module.manual_seed(derived)
        elif device < len(states):
            module.default_generators[device].set_state(states[device])
        else:
            module.default_generators[device].manual_seed(derived)


def _hash(saved: Mapping[str, Any]) -> int:
    return xxhash.xxh3_64_intdigest(saved["torch"].numpy().tobytes())


def _from_numpy(state: Any) -> Any:
    # uint32 keys as int64 tensors: torch has no full set of operations for unsigned integers in all its releases.
    if isinstance(state, Mapping):
        return {key: _from_numpy(value) for key, value in state.items()}
    if isinstance(state, np.ndarray):
        if state.dtype == np.uint64:
            return {"uint64": [int(word) for word in state.ravel()]}
        return {"uint32": torch.from_numpy(state.astype(np.int64))}
    return state.item() if isinstance(state, np.generic) else state


def _to_numpy(state: Any) -> Any:
    if isinstance(state, Mapping):
        if set(state) == {"uint32"}:
            return state["uint32"].numpy().astype(np.uint32)
        if set(state) == {"uint64"}:
            return np.array(state["uint64"], dtype=np.uint64)
        return {key: _to_numpy(value) for key, value in state.items()}
    return state
