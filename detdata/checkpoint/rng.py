"""The random states of this process: python, NumPy's global one, torch's CPU and CUDA generators.

The only module that reads or sets global random state. Everything becomes numbers and tensors, so that the file loads
without running code. A CUDA that this process has not touched is neither read nor initialised.
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

FORMAT = "detdata.rng/1"


def capture_rng() -> dict[str, Any]:
    """Return the random states as a plain tree. Changes none of them."""
    version, words, gauss = random.getstate()
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    return {
        "format": FORMAT,
        "python": {"version": version, "words": torch.tensor(words, dtype=torch.int64), "gauss": gauss},
        "numpy": _from_numpy(np.random.get_state(legacy=False)),
        "torch": torch.get_rng_state(),
        "cuda": cuda,
    }


def restore_rng(saved: Mapping[str, Any]) -> None:
    """Set the random states to what `capture_rng` returned; CUDA devices that are not here are left out."""
    python = saved["python"]
    random.setstate((python["version"], tuple(python["words"].tolist()), python["gauss"]))
    np.random.set_state(_to_numpy(saved["numpy"]))
    torch.set_rng_state(saved["torch"])
    for device, state in enumerate(saved["cuda"][: cuda_devices()]):
        torch.cuda.set_rng_state(state, device)


def derive_rng(saved: Mapping[str, Any], rank: int) -> None:
    """Seed this rank's streams from rank 0's saved ones: for a rank whose own were not saved.

    The seed is a hash of rank 0's torch state and the rank, so ranks differ, and a second resume gives the same.
    """
    state = xxhash.xxh3_64_intdigest(saved["torch"].numpy().tobytes())
    seed = fold("detdata.rank_rng/1", state, rank)
    seed_global(seed)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(seed % 2**63)


def cuda_devices() -> int:
    """Return how many CUDA devices this process sees."""
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


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
