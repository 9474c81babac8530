"""The digest of a file in tree mode, from the digests of its pieces."""

from __future__ import annotations

from collections.abc import Sequence

from detdata.algorithms import digest_size, new_hasher
from detdata.checks import as_int
from detdata.errors import ArgumentValueError

_TREE = b"detdata.pieces/1"


def join_pieces(algorithm: str, piece_size: int, size: int, digests: Sequence[bytes]) -> str:
    """Return the hex digest of a file of `size` bytes from those of its pieces, in order.

    Raises ValueError if there are too few or too many, or one isn't of this algorithm.

    >>> join_pieces("xxh3-128", 4, 0, [])
    '93a2935d23fc6ba187c9e79a45f33617'
    """
    step = as_int(piece_size, "piece_size", low=1)
    count = -(-as_int(size, "size") // step)
    if len(digests) != count:
        raise ArgumentValueError(f"{size} bytes in pieces of {step} are {count} pieces; got {len(digests)} digests")
    if any(len(digest) != digest_size(algorithm) for digest in digests):
        raise ArgumentValueError(f"a digest of {algorithm} has {digest_size(algorithm)} bytes; digests has others")
    hasher = new_hasher(algorithm)
    hasher.update(_TREE + step.to_bytes(8, "little") + size.to_bytes(8, "little") + b"".join(digests))
    return hasher.digest().hex()
