"""Streams of random numbers: the three global ones, saved and put back; and those that a dataset object holds, found.

Saving NumPy's global stream through `get_state` takes 60 µs and putting it back as long, more than a small batch costs;
Python's takes 25 µs. So where their Mersenne Twisters are seen to lie in memory as expected (checked once: NumPy's as
documented for its C interface, Python's inside its own object, as is NumPy's leftover normal number), the words are
copied instead; anything else goes through `getstate` and `get_state`.
"""

from __future__ import annotations

import ctypes
import random
import struct
import sys
from functools import cache
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch

Stream: TypeAlias = np.random.Generator | np.random.RandomState | torch.Generator | random.Random

_numpy: Any = np.random  # its stubs leave out get_bit_generator and set_bit_generator, which are public since 1.24
_WORDS = 624
_KEY_BYTES = 4 * _WORDS
_STATE_BYTES = _KEY_BYTES + 4  # the key and the position in it
_LEFTOVER_BYTES = struct.calcsize("@id")
_DEPTH = 6  # how deep generators are looked for in a dataset: dataset.base.transforms.transforms[3].rng
_BREADTH = 100_000  # objects looked at, at most …
_ITEMS = 1000  # … and of each list, tuple or dict so many: it may hold a million file names
_ATOMS = (str, bytes, int, float, complex, type(None), type, np.ndarray, np.generic, torch.Tensor)


class GlobalState(NamedTuple):
    """The global streams as they were."""

    python: tuple[Any, ...]  # (words, gauss_next) where the words were copied, else what `random.getstate` says
    numpy: _NumpyState
    torch: torch.Tensor


class _NumpyState(NamedTuple):
    generator: Any
    words: bytes | None  # None: `state` has all of it
    leftover: bytes  # whether the second normal number of a pair is drawn and not yet handed out, and that number
    state: dict[str, Any] | None


def save_global() -> GlobalState:
    """Return the state of python's, NumPy's and torch's global CPU streams. About 10 µs; changes nothing."""
    return GlobalState(_save_python(), _save_numpy(), torch.default_generator.get_state())


def restore_global(state: GlobalState) -> None:
    """Put the global streams back to the bit."""
    _restore_python(state.python)
    _restore_numpy(state.numpy)
    torch.default_generator.set_state(state.torch)


def same_global(a: GlobalState, b: GlobalState) -> bool:
    """Whether two saved states are the same to the bit."""
    return (
        a.python == b.python
        and a.numpy.words == b.numpy.words
        and a.numpy.leftover == b.numpy.leftover
        and repr(a.numpy.state) == repr(b.numpy.state)
        and torch.equal(a.torch, b.torch)
    )


@cache
def _python_words_at() -> int | None:
    """Where in the memory of `random`'s own generator its index and words lie; None where they aren't seen."""
    probe = random.Random(12345)  # noqa: S311  a sample of its memory, not of its numbers
    probe.random()
    *words, index = probe.getstate()[1]
    pattern = np.array([index, *words], dtype=np.uint32).tobytes()
    size = getattr(random.Random.__base__, "__basicsize__", 0)
    at = ctypes.string_at(id(probe), size).find(pattern) if sys.implementation.name == "cpython" else -1
    if at <= 0 or type(random._inst) is not random.Random:
        return None
    other = random.Random(54321)  # noqa: S311
    ctypes.memmove(id(other) + at, pattern, _STATE_BYTES)  # writing must do what reading has promised
    return at if other.getstate()[1] == probe.getstate()[1] and other.random() == probe.random() else None


def _save_python() -> tuple[Any, ...]:
    at = _python_words_at()
    if at is None:
        return random.getstate()
    generator: Any = random._inst
    return ctypes.string_at(id(generator) + at, _STATE_BYTES), generator.gauss_next


def _restore_python(state: tuple[Any, ...]) -> None:
    at = _python_words_at()
    if at is None:
        random.setstate(state)
        return
    generator: Any = random._inst
    ctypes.memmove(id(generator) + at, state[0], _STATE_BYTES)
    generator.gauss_next = state[1]


@cache
def _numpy_leftover_at() -> int | None:
    """Where in the memory of NumPy's global stream its leftover normal number lies; None where anything isn't seen."""
    bits = np.random.MT19937(12345)
    bits.random_raw()
    words: Any = bits.state["state"]
    expected = words["key"].astype("=u4").tobytes() + int(words["pos"]).to_bytes(4, sys.byteorder)
    if sys.implementation.name != "cpython" or expected != _numpy_words(bits):
        return None
    probe: Any = np.random.RandomState(bits)
    probe.set_state({**probe.get_state(legacy=False), "has_gauss": 1, "gauss": 12345.678})
    held = ctypes.string_at(id(probe), type(probe).__basicsize__)
    at = held.find(_leftover(12345.678))
    if at <= 0 or type(np.random.mtrand._rand) is not type(probe):
        return None
    for has, number in ((0, 0.0), (1, 87654.321)):  # writing must do what reading has promised
        ctypes.memmove(id(probe) + at, _leftover(number, has), _LEFTOVER_BYTES)
        state = probe.get_state(legacy=False)
        if (state["has_gauss"], state["gauss"]) != (has, number):
            return None
    return at


def _leftover(number: float, has: int = 1) -> bytes:
    return struct.pack("@id", has, number)  # a C int and a double, as in NumPy's legacy-distributions.h


def _numpy_words(bits: Any) -> bytes:
    return ctypes.string_at(bits.ctypes.state_address, _STATE_BYTES)


def _save_numpy() -> _NumpyState:
    generator = _numpy.get_bit_generator()
    at = _numpy_leftover_at()
    if at is None or type(generator) is not np.random.MT19937:
        return _NumpyState(generator, None, b"", np.random.get_state(legacy=False))
    leftover = ctypes.string_at(id(np.random.mtrand._rand) + at, _LEFTOVER_BYTES)
    return _NumpyState(generator, _numpy_words(generator), leftover, None)


def _restore_numpy(state: _NumpyState) -> None:
    if _numpy.get_bit_generator() is not state.generator:
        _numpy.set_bit_generator(state.generator)
    at = _numpy_leftover_at()
    if at is None or state.words is None:
        np.random.set_state(state.state)  # type: ignore[arg-type]
        return
    ctypes.memmove(state.generator.ctypes.state_address, state.words, _STATE_BYTES)
    ctypes.memmove(id(np.random.mtrand._rand) + at, state.leftover, _LEFTOVER_BYTES)


def find_streams(dataset: object) -> list[Stream]:
    """Return the random generators that a dataset object holds: in its attributes, and those of what it holds.

    Looks through attributes and the first 1,000 items of lists, tuples and dicts, six levels deep, always in the same
    order. A generator in a closure, a global variable or an object of another language is not found.

    >>> class Noisy:
    ...     def __init__(self):
    ...         self.transforms = [np.random.Generator(np.random.PCG64(0))]
    >>> len(find_streams(Noisy()))
    1
    """
    found: list[Stream] = []
    seen: set[int] = set()
    level: list[Any] = [dataset]
    for _ in range(_DEPTH):
        following: list[Any] = []
        for item in level:
            if isinstance(item, _ATOMS) or id(item) in seen or len(seen) >= _BREADTH:
                continue
            seen.add(id(item))
            if isinstance(item, (np.random.Generator, np.random.RandomState, torch.Generator, random.Random)):
                found.append(item)
            elif isinstance(item, (list, tuple)):
                following.extend(item[:_ITEMS])
            elif isinstance(item, dict):
                following.extend(islice(item.values(), _ITEMS))
            elif not callable_only(item):
                following.extend(_attributes(item))
        level = following
    shared: list[Any] = [np.random.mtrand._rand, torch.default_generator, random._inst]
    return [
        stream
        for stream in found
        if not any(stream is other for other in shared) and not isinstance(stream, random.SystemRandom)
    ]


def callable_only(item: object) -> bool:
    """Whether this is a plain function or module: nothing of a dataset hangs on its attributes."""
    return type(item).__name__ in {"function", "module", "builtin_function_or_method"}


def _attributes(item: object) -> list[Any]:
    values: list[Any] = list(vars(item).values()) if hasattr(item, "__dict__") else []
    for owner in type(item).__mro__:
        slots = owner.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(item, name):
                values.append(getattr(item, name))
    return values


def seed_stream(stream: Stream, seed: int) -> None:
    """Seed one generator object in place with a 64-bit seed."""
    if isinstance(stream, np.random.Generator):
        bits: Any = stream.bit_generator
        bits.state = type(bits)(seed).state
    elif isinstance(stream, np.random.RandomState):
        name: Any = stream.get_state(legacy=False)["bit_generator"]
        stream.set_state({**getattr(np.random, name)(seed).state, "has_gauss": 0, "gauss": 0.0})
    elif isinstance(stream, torch.Generator):
        stream.manual_seed(seed)
    else:
        stream.seed(seed)


def stream_state(stream: Stream) -> str:
    """Return a text that changes whenever a number is drawn from the generator."""
    if isinstance(stream, np.random.Generator):
        return repr(stream.bit_generator.state)
    if isinstance(stream, np.random.RandomState):
        state: Any = stream.get_state(legacy=False)
        return repr((state["state"]["key"].tobytes() if "key" in state["state"] else state["state"], state))
    if isinstance(stream, torch.Generator):
        return stream.get_state().numpy().tobytes().hex()
    return repr(stream.getstate())
