"""The one place where single values enter: checked here, trusted everywhere else. Arrays enter by `detdata.arrays`.

Without NumPy, which takes longer to import than a small dataset to hash.
"""

from __future__ import annotations

import operator
import os
import reprlib

from detdata.errors import ArgumentTypeError, ArgumentValueError

MAX_SEED = 2**63 - 1
MAX_SIZE = 2**62


def as_int(value: object, name: str, *, low: int | None = 0, high: int | None = None, why: str = "") -> int:
    """Return `value` as a Python int in [low, high]; None is no limit.

    Python and NumPy integers of any width are integers; bool, float and str are not.
    Raises TypeError or ValueError naming the argument, the value and what is allowed; `why` ends the message.

    >>> as_int(7, "batch_size", low=1)
    7
    """
    if isinstance(value, bool) or not hasattr(type(value), "__index__"):
        raise ArgumentTypeError(f"{name} must be an integer, got {brief(value)} of type {type(value).__name__}{why}")
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError as error:  # an array of many elements has __index__ too
        raise ArgumentTypeError(f"{name} must be one integer, got {type(value).__name__}{why}") from error
    if (low is not None and number < low) or (high is not None and number > high):
        limit = f"at least {low}" if high is None else f"in {low} … {high}"
        raise ArgumentValueError(f"{name} must be {limit}, got {number}{why}")
    return number


def brief(value: object) -> str:
    """Return a value's repr, cut to what a message can hold: a wrong argument may be a list of a million items.

    >>> brief(list(range(10**6)))
    '[0, 1, 2, 3, 4, 5, ...]'
    """
    return _brief.repr(value)


_brief = reprlib.Repr()


def as_seed(value: object, name: str = "seed") -> int:
    """Return `value` as a seed: an integer in 0 … 2**63 - 1.

    >>> as_seed(0)
    0
    """
    return as_int(value, name, low=0, high=MAX_SEED)


def visible(text: str) -> str:
    r"""Return `text` as one line that any stream and terminal takes: what cannot be seen stands as an escape.

    Names of files and columns may hold anything, line breaks and a terminal's commands too.

    >>> visible("a\nb\x1b[2J\udcff")
    'a\\nb\\x1b[2J\\xff'
    """
    return text if text.isprintable() else "".join(map(_visible, text))


def _visible(character: str) -> str:
    if character.isprintable():
        return character
    if "\udc80" <= character <= "\udcff":  # a byte that is no UTF-8
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape").decode("ascii")


def as_version(value: object) -> str | None:
    """Return a dataset's version as text: a string, the `.digest` of whatever has one, or None.

    Raises TypeError for anything else, and for the path of a manifest: its text would be a version that never changes.
    """
    digest = value if value is None or isinstance(value, str) else getattr(value, "digest", None)
    path = value if isinstance(value, (str, os.PathLike)) and digest in {value, None} else None
    if path is not None and _is_manifest(os.fspath(path)):
        raise ArgumentTypeError(
            f"dataset_version must be a version, and {brief(os.fspath(path))} is where a manifest lies: give "
            f"Manifest.load({brief(os.fspath(path))})"
        )
    if value is not None and not (isinstance(digest, str) and digest):
        raise ArgumentTypeError(
            "dataset_version must be a string or have a .digest that is one (as a Manifest has), "
            f"got {type(value).__name__}"
        )
    return digest


def _is_manifest(path: str | bytes) -> bool:
    """Return whether a path is that of a manifest, by its name or by what lies there."""
    name = os.fsdecode(path)
    if name.lower().endswith((".lock", ".lock.json", ".lock.json.gz")):
        return True
    if not os.path.isfile(name):  # noqa: PTH113 - as below; nor is a pipe ever opened
        return False
    try:
        with open(name, "rb") as file:  # noqa: PTH123 - pathlib would be imported for this alone
            return b'"detdata.manifest/' in file.read(4096)
    except (OSError, ValueError):
        return False
