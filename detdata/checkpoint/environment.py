"""Where a checkpoint was made: versions, code, machine, switches. Recorded for people; a difference is a warning."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import platform
import socket
import subprocess
import sys
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

GIT_TIMEOUT_S = 5


def versions() -> dict[str, str | None]:
    """Return the versions that can change results; None for what is not here (CUDA, cuDNN, a driver, GPUs)."""
    cuda = torch.version.cuda if torch.cuda.is_available() else None
    running = cuda is not None and bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
    driver = getattr(torch._C, "_cuda_getDriverVersion", None) if running else None
    devices = range(torch.cuda.device_count()) if running else ()
    cudnn: Any = torch.backends.cudnn
    engine = sys.modules.get("deepspeed")
    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "detdata": getattr(sys.modules.get("detdata"), "__version__", None),
        "cuda": cuda,
        "cudnn": str(cudnn.version()) if cuda else None,
        "driver": None if driver is None else str(driver()),
        "devices": ", ".join(torch.cuda.get_device_name(device) for device in devices) or None,
        **({} if engine is None else {"deepspeed": getattr(engine, "__version__", None)}),
    }


def switches() -> dict[str, Any]:
    """Return the settings that decide whether, and how, the same operations give the same bits."""
    return {
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "cudnn_deterministic": torch.backends.cudnn.deterministic,
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "threads": torch.get_num_threads(),
        "CUBLAS_WORKSPACE_CONFIG": os.environ.get("CUBLAS_WORKSPACE_CONFIG"),
        "PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED"),
    }


def autocast() -> dict[str, str]:
    """Return device type -> dtype for each kind of device for which autocast is on just now.

    >>> autocast()
    {}
    """
    return {
        device: str(torch.get_autocast_dtype(device)) for device in ("cpu", "cuda") if torch.is_autocast_enabled(device)
    }


def host() -> dict[str, Any]:
    """Return the machine's name and this process's id."""
    return {"host": socket.gethostname(), "pid": os.getpid()}


@functools.cache
def git_state(folder: str) -> dict[str, Any] | None:
    """Return commit and dirtiness of the git checkout around `folder`, asked once a process; None if there is none."""
    commit = _git(folder, "rev-parse", "HEAD")
    if not commit:
        return None
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return {"commit": commit, "dirty": None if changes is None else bool(changes)}


def _git(folder: str, *arguments: str) -> str | None:
    try:
        result = subprocess.run(  # noqa: S603 - a fixed command
            ["git", "-C", folder, *arguments],  # noqa: S607 - whichever git the user has
            capture_output=True,
            check=True,
            timeout=GIT_TIMEOUT_S,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.decode("utf-8", "replace").strip()


def snapshot(value: Any, depth: int = 0) -> Any:
    """Return `value` as plain JSON, for people to read and to compare: what JSON does not have becomes text.

    Mappings, dataclasses and argparse namespaces become objects, sequences and sets lists, NumPy scalars and tensors of
    one element numbers, non-finite numbers and everything else strings.

    >>> snapshot({"lr": 0.1, "betas": (0.9, 0.99), "best": float("nan")})
    {'lr': 0.1, 'betas': [0.9, 0.99], 'best': 'nan'}
    """
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        value = value.item()
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, int):
        return int(value) if value.bit_length() <= 4096 else hex(value)  # decimal text of any length is refused
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(value)
    if depth < 20:
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        elif isinstance(value, Namespace):
            value = vars(value)
        if isinstance(value, Mapping):
            return {str(key): snapshot(item, depth + 1) for key, item in value.items()}
        if isinstance(value, (set, frozenset)):
            return sorted((snapshot(item, depth + 1) for item in value), key=str)
        if isinstance(value, (list, tuple)):
            return [snapshot(item, depth + 1) for item in value]
    text = str(value)
    return f"<{type(value).__qualname__}>" if " at 0x" in text else text  # an address differs at every start
