"""The digest of a file in tree mode, from the digests of its pieces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from detdata.algorithms import Bytes, digest_size, new_hasher
from detdata.checks import as_int, brief
from detdata.errors import ArgumentValueError

MIN_PIECE = 1 << 16  # bytes: a smaller piece costs more to hand out than to hash, and a list of them has no end
MAX_PIECE = 1 << 40  # bytes: no file has more than some millions of useful pieces
_TREE = b"detdata.pieces/1"


def check_piece_size(piece_size: int) -> int:
    """Return `piece_size` if files can be hashed with it: 0, or 64 KiB … 1 TiB. Raises TypeError, ValueError.

    >>> check_piece_size(2**26)
    67108864
    """
    size = as_int(piece_size, "piece_size")
    if size and not MIN_PIECE <= size <= MAX_PIECE:
        raise ArgumentValueError(
            f"piece_size must be 0 (no pieces) or {MIN_PIECE} … {MAX_PIECE} bytes (64 KiB … 1 TiB), got {brief(size)}; "
            "64 MiB (67108864) is a good one"
        )
    return size


class Joiner:
    """Makes the digest of a file out of those of its pieces as they come, in order; it keeps none of them.

    size: bytes of the file. count: how many pieces it has. taken: of how many there are digests.

    >>> joiner = Joiner("xxh3-128", 4, 0)
    >>> joiner.hex()
    '93a2935d23fc6ba187c9e79a45f33617'
    """

    def __init__(self, algorithm: str, piece_size: int, size: int) -> None:
        step = as_int(piece_size, "piece_size", low=1, high=(1 << 63) - 1)
        self.count = -(-as_int(size, "size", high=(1 << 63) - 1) // step)
        self.taken = 0
        self._step, self._size, self._width = step, size, digest_size(algorithm)
        self._hasher = new_hasher(algorithm)
        self._hasher.update(_TREE + step.to_bytes(8, "little") + size.to_bytes(8, "little"))

    def add(self, digests: bytes) -> None:
        """Take the digests of the next pieces, one after another. Raises ValueError if that isn't what they can be."""
        if len(digests) % self._width:
            raise ArgumentValueError(f"a digest has {self._width} bytes here; digests has {len(digests)}, with others")
        self.taken += len(digests) // self._width
        self._hasher.update(digests)

    def hex(self) -> str:
        """Return the hex digest. Raises ValueError if there were too few pieces, or too many."""
        if self.taken != self.count:
            raise ArgumentValueError(
                f"{self._size} bytes in pieces of {self._step} are {self.count} pieces; got {self.taken} digests"
            )
        return self._hasher.digest().hex()


def piece_digests(blocks: Iterable[Bytes], algorithm: str, piece_size: int) -> Iterator[bytes]:
    """Yield the digests of the pieces of what comes in blocks of any sizes; the last piece may be shorter.

    >>> [digest.hex()[:8] for digest in piece_digests([b"ban", b"ana"], "xxh3-128", 2)]
    ['b26fcc57', '7ff0a802', '7ff0a802']
    """
    hasher, filled = new_hasher(algorithm), 0
    for block in blocks:
        start = 0
        while start < len(block):
            part = block[start : start + piece_size - filled]
            hasher.update(part)
            start, filled = start + len(part), filled + len(part)
            if filled == piece_size:
                yield hasher.digest()
                hasher, filled = new_hasher(algorithm), 0
    if filled:
        yield hasher.digest()


def join_pieces(algorithm: str, piece_size: int, size: int, digests: Sequence[bytes]) -> str:
    """Return the hex digest of a file of `size` bytes from those of its pieces, in order.

    Raises ValueError if there are too few or too many, or one isn't of this algorithm.

    >>> join_pieces("xxh3-128", 4, 0, [])
    '93a2935d23fc6ba187c9e79a45f33617'
    """
    joiner = Joiner(algorithm, piece_size, size)
    for digest in digests:
        if len(digest) != digest_size(algorithm):
            raise ArgumentValueError(f"a digest of {algorithm} has {digest_size(algorithm)} bytes; digests has others")
        joiner.add(digest)
    return joiner.hex()
