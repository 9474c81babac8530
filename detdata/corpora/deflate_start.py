"""Deflate streams entered at any bit, with zlib as it is.

zlib's Python interface begins at a whole byte. So the bits between are filled: in front of the stream that begins at
bit s of a byte stand blocks that unpack to nothing and are s bits long, modulo 8. An empty block of fixed codes has 10
bits, which makes the even numbers; one of dynamic codes, with an odd number, makes the others.
"""

from __future__ import annotations

import zlib
from typing import Any, Final

import numpy as np

from detdata.corpora.points import WINDOW

_LENGTH_ORDER = (16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1)  # RFC 1951, 3.2.7, up to length 1


def _fixed() -> list[int]:
    return [*_bits(0, 1), *_bits(1, 2), *_bits(0, 7)]  # not the last block; fixed codes; end of block


def _dynamic() -> list[int]:
    bits = [*_bits(0, 1), *_bits(2, 2), *_bits(0, 5), *_bits(0, 5), *_bits(len(_LENGTH_ORDER) - 4, 4)]
    for symbol in _LENGTH_ORDER:
        bits += _bits(int(symbol in {1, 18}), 3)  # two codes: "0" is length 1, "1" a run of zeros
    bits += [0, 1, *_bits(138 - 11, 7), 1, *_bits(117 - 11, 7), 0, 0]  # literals 0 and 256, one distance: 1 bit each
    return [*bits, 1]  # end of block


def _bits(value: int, count: int) -> list[int]:
    return [(value >> place) & 1 for place in range(count)]


def _filling(shift: int) -> tuple[int, int]:
    """Return (bits as one number, the first lowest; how many) of blocks that unpack to nothing."""
    bits = _dynamic() if shift % 2 else []
    while len(bits) % 8 != shift:
        bits += _fixed()
    return sum(bit << place for place, bit in enumerate(bits)), len(bits)


_FILLINGS: Final = tuple(_filling(shift) for shift in range(8))


def inflate_from(shift: int, first: int, window: bytes) -> Any:
    """Return a zlib decompressor of a raw deflate stream that begins at bit `shift`, 0 … 7, of the byte `first`.

    That byte is taken already, if shift is not 0: go on with the next one. window: the text before, up to 32 KiB.
    Raises zlib.error.

    >>> inflate_from(0, 0, b"").decompress(zlib.compress(b"hello")[2:])
    b'hello'
    """
    unpacking = zlib.decompressobj(-zlib.MAX_WBITS, zdict=window) if window else zlib.decompressobj(-zlib.MAX_WBITS)
    if shift:
        bits, count = _FILLINGS[shift]
        whole = bits | (first >> shift) << count
        unpacking.decompress(whole.to_bytes(count // 8 + 1, "little"), 1)
    return unpacking


def needed_of(window: bytes, packed: bytes, bit: int) -> bytes:
    """Return `window` with zeros for what a stream does not copy from it, so that it packs to less.

    packed, bit: the stream, as far as it is at hand, and where it begins. If that is less than 32 KiB of text, all of
    the window is needed. Raises zlib.error.

    Every byte of text says itself where in the window it comes from, if the window holds its own places: their low and
    high bytes, in two runs. A byte that is not the same when the low bytes are turned over comes from the window.
    """
    places = np.arange(len(window))
    low, turned, high = (
        _text(shape.astype(np.uint8).tobytes(), packed, bit)
        for shape in (places & 255, places & 255 ^ 255, places >> 8)
    )
    if low.size < WINDOW:
        return window
    copied = low != turned
    kept = np.zeros(len(window), np.uint8)
    used = high[copied].astype(np.int64) << 8 | low[copied]
    kept[used] = np.frombuffer(window, np.uint8)[used]
    return kept.tobytes()


def _text(window: bytes, packed: bytes, bit: int) -> Any:
    byte, shift = divmod(bit, 8)
    unpacking = inflate_from(shift, packed[byte], window)
    return np.frombuffer(unpacking.decompress(packed[byte + (shift > 0) :], WINDOW), np.uint8)
