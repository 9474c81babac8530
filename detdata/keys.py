"""Counter-based key derivation: every random choice has an address, and its key is a hash of that address.

Parts are length-prefixed, so no two different paths ever hash the same bytes; and keys are never made by adding a
seed and an epoch, so neighbouring seeds and epochs are as unrelated as any other two. The bytes are fixed in
docs/spec.md, section 1.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

import numpy as np
import xxhash

from detdata.arrays import UInt64Array, as_int64
from detdata.checks import as_int, as_seed, brief
from detdata.errors import ArgumentTypeError, ArgumentValueError

_INT = struct.Struct("<cQQ")  # tag, length in bytes (8), value
_STR = struct.Struct("<cQ")  # tag, length in bytes; the UTF-8 bytes follow

# The finaliser of SplitMix64 and its increment (Steele, Lea, Flood 2014; constants by David Stafford, "Mix13").
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX2 = np.uint64(0x94D049BB133111EB)


def fold(*path: int | str) -> int:
    """Return the 64-bit key of a path of integers (0 … 2**64 - 1) and strings.

    xxh3-64 over the length-prefixed parts. Raises TypeError or ValueError for other parts. Cost about 1 µs.

    >>> fold(0, "shuffle", 1) == fold(1, "shuffle", 0)
    False
    """
    return xxhash.xxh3_64_intdigest(b"".join([_encode(part) for part in path]))


def _encode(part: int | str) -> bytes:
    if type(part) is int and 0 <= part < 2**64:
        return _INT.pack(b"i", 8, part)
    if isinstance(part, str):
        text = part.encode("utf-8")
        return _STR.pack(b"s", len(text)) + text
    if isinstance(part, (bytes, bytearray)):
        raise ArgumentTypeError(f"path parts must be integers or strings, got {part!r} of type {type(part).__name__}")
    return _INT.pack(b"i", 8, as_int(part, "path part", low=0, high=2**64 - 1))


def fold_each(texts: Iterable[str | bytes], *path: int | str) -> UInt64Array:
    """Return `fold(*path, text)` of each text, uint64[k]. Bytes stand for the text that they are the UTF-8 of.

    Names of files that are no UTF-8 count by their bytes, as they are or as `os.fsdecode` gives them. Raises TypeError
    for anything else, ValueError for what has no UTF-8. Cost about 0.4 µs each.

    >>> fold_each(["a", b"a"], 1).tolist() == [fold(1, "a")] * 2
    True
    """
    before = b"".join([_encode(part) for part in path])
    digest = xxhash.xxh3_64_intdigest
    return np.fromiter((digest(before + _STR.pack(b"s", len(raw)) + raw) for raw in map(_raw, texts)), dtype=np.uint64)


def _raw(text: object) -> bytes:
    if isinstance(text, bytes):
        return text
    if not isinstance(text, str):
        raise ArgumentTypeError(f"keys must be strings or bytes, got {brief(text)} of type {type(text).__name__}")
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise ArgumentValueError(f"key {brief(text)} has no UTF-8: {error.reason}") from error


def derive_seed(seed: int, *path: int | str) -> int:
    """Return a 64-bit seed for the place `path` of the run with `seed`: for anything of yours that needs one.

    seed: 0 … 2**63 - 1; path: integers (0 … 2**64 - 1) and strings. Returns 0 … 2**64 - 1. Different paths give
    unrelated seeds; the same path gives the same seed on every machine. Raises TypeError, ValueError.

    >>> derive_seed(7, "dropout", 3) == derive_seed(7, "dropout", 3) != derive_seed(7, "dropout", 4)
    True
    """
    return fold("detdata.seed/1", as_seed(seed), *path)


def mix64(values: UInt64Array) -> UInt64Array:
    """Return the SplitMix64 finaliser of each value: a bijection of uint64 that looks random. Works on a copy.

    >>> hex(int(mix64(np.array([1], dtype=np.uint64))[0]))
    '0x5692161d100b05e5'
    """
    z = values ^ (values >> np.uint64(30))
    z *= _MIX1
    z ^= z >> np.uint64(27)
    z *= _MIX2
    z ^= z >> np.uint64(31)
    return z


def sample_seeds(seed: int, epoch: int, ids: object) -> UInt64Array:
    """Return the 64-bit seed of each sample in an epoch: uint64, in the shape of `ids`.

    What a sample draws depends on (seed, epoch, id) and on nothing else. Cost O(len(ids)), a few ns each.

    >>> sample_seeds(0, 0, [5, 5, 6]).tolist()[0] == int(sample_seeds(0, 0, 5))
    True
    """
    address = np.uint64(fold("detdata.sample/1", as_seed(seed), as_int(epoch, "epoch")))
    numbers = as_int64(ids, "ids", below=2**63, what="sample id").astype(np.uint64)
    seeds: UInt64Array = mix64(np.atleast_1d(numbers + np.uint64(1)) * GOLDEN + address).reshape(numbers.shape)
    return seeds


def sample_rng(seed: int, epoch: int, id: int) -> np.random.Generator:
    """Return a fresh NumPy generator for one sample of one epoch: the exact way to augment.

    The same for every worker, rank, batch size and resume. The generator's *seed* is fixed for ever; the stream that
    NumPy makes of it is NumPy's own and may change between its releases, as augmentations made with it always may.
    Cost about 30 µs.

    >>> float(sample_rng(0, 1, 42).random()) == float(sample_rng(0, 1, 42).random())
    True
    """
    return np.random.Generator(np.random.PCG64(int(sample_seeds(seed, epoch, as_int(id, "id")))))
