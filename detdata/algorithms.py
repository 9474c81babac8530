"""The digest algorithms of dataset versions, of files and of rows, by the name that a manifest records.

xxh3-128 guards against accidents at the speed of reading; sha256 and blake3 against someone who wants to fool you.
A name stands for one function of the bytes for ever: what `xxhsum -H2`, `sha256sum` and `b3sum` print.
"""

from __future__ import annotations

import string
from collections.abc import Callable
from typing import Protocol, TypeAlias

import xxhash

from detdata.checks import brief
from detdata.errors import ArgumentTypeError, ArgumentValueError, MissingExtra, UnknownFormat

Bytes: TypeAlias = bytes | bytearray | memoryview

ALGORITHMS = ("xxh3-128", "sha256", "blake3")

_SIZES = {"xxh3-128": 16, "sha256": 32, "blake3": 32}
_HEX_DIGITS = frozenset(string.digits + "abcdef")


class Hasher(Protocol):
    """A digest in the making."""

    def update(self, data: Bytes, /) -> object:
        """Take in more bytes."""

    def digest(self) -> bytes:
        """Return the digest of all bytes so far."""

    def copy(self) -> Hasher:
        """Return a hasher of the same bytes that goes on by itself."""


def check_algorithm(name: object) -> str:
    """Return `name` if it is an algorithm that can be used here.

    Raises TypeError or ValueError for anything but one of `ALGORITHMS`, MissingExtra (an ImportError) where its package
    is not installed.

    >>> check_algorithm("sha256")
    'sha256'
    """
    if not isinstance(name, str):
        raise ArgumentTypeError(f"algorithm must be the name of one, got {brief(name)} of type {type(name).__name__}")
    if name not in _SIZES:
        raise ArgumentValueError(f"algorithm must be one of {', '.join(ALGORITHMS)}; got {brief(name)}")
    if name == "blake3":
        _blake3()
    return name


def digest_size(algorithm: str) -> int:
    """Return how many bytes a digest has.

    >>> digest_size("xxh3-128"), digest_size("sha256")
    (16, 32)
    """
    if algorithm not in _SIZES:
        check_algorithm(algorithm)
    return _SIZES[algorithm]


def new_hasher(algorithm: str, data: Bytes = b"") -> Hasher:
    """Return a hasher that has had `data`. Raises as `check_algorithm` does.

    >>> hasher = new_hasher("xxh3-128")
    >>> hasher.update(b"a")
    >>> hasher.digest().hex()
    'a96faf705af16834e6c632b61e964e1f'
    """
    if algorithm == "xxh3-128":
        return xxhash.xxh3_128(data)
    if algorithm == "sha256":
        return _sha256()(data)
    check_algorithm(algorithm)
    return _blake3()(data)


def hex_function(algorithm: str) -> Callable[[Bytes], str]:
    """Return the function that gives the hex digest of bytes that are all there; the quickest way for small files.

    >>> hex_function("xxh3-128")(b"a")
    'a96faf705af16834e6c632b61e964e1f'
    """
    if algorithm == "xxh3-128":
        return xxhash.xxh3_128_hexdigest

    def hex_digest(data: Bytes) -> str:
        return new_hasher(algorithm, data).digest().hex()

    check_algorithm(algorithm)
    return hex_digest


def join_digest(algorithm: str, hex: str) -> str:
    """Return a digest as text that says its algorithm.

    >>> join_digest("xxh3-128", "99aa06d3014798d86001c324468d497f")
    'xxh3-128:99aa06d3014798d86001c324468d497f'
    """
    return f"{algorithm}:{hex}"


def split_digest(text: object) -> tuple[str, str]:
    """Return algorithm and hex digits of a digest's text. Raises UnknownFormat if it is malformed.

    >>> split_digest("xxh3-128:99aa06d3014798d86001c324468d497f")
    ('xxh3-128', '99aa06d3014798d86001c324468d497f')
    """
    if not isinstance(text, str):
        raise UnknownFormat(f"a digest must be text such as 'xxh3-128:<32 hex digits>', found {brief(text)}")
    algorithm, colon, digits = text.partition(":")
    if not colon or algorithm not in _SIZES:
        known = ", ".join(ALGORITHMS)
        raise UnknownFormat(f"a digest begins with its algorithm and a colon ({known}), found {brief(text)}")
    if len(digits) != 2 * _SIZES[algorithm] or not _HEX_DIGITS.issuperset(digits):
        raise UnknownFormat(
            f"a digest of {algorithm} has {2 * _SIZES[algorithm]} lower-case hex digits, found {brief(text)}"
        )
    return algorithm, digits


def _sha256() -> Callable[[Bytes], Hasher]:
    from hashlib import sha256  # with OpenSSL, which takes longer to load than all of this

    return sha256


def _blake3() -> Callable[[Bytes], Hasher]:
    try:
        from blake3 import blake3
    except ImportError as error:
        raise MissingExtra("the algorithm blake3 needs a package of its own", "blake3") from error
    return blake3
