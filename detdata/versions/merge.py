"""The manifests of parts, hashed on several machines, put together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice

from detdata.checks import brief
from detdata.errors import ArgumentTypeError, ArgumentValueError
from detdata.versions.columns import encode_paths, listing_digest
from detdata.versions.manifest import Manifest, Part
from detdata.versions.names import printable

_MOST = 10  # numbers of parts in a message


def merge(parts: Sequence[Manifest]) -> Manifest:
    """Return the manifest of the whole dataset, as if it had been hashed at once.

    parts: the manifests of all n parts of one listing (`hash_dataset(…, part=(i, n))`), in any order. Raises ValueError
    naming the parts that are missing, given twice, or made from another listing or in another way. Some 2 µs a file.

    >>> from detdata.versions.columns import encode_paths, listing_digest
    >>> listing = listing_digest(encode_paths(["a", "b"]), [5, 6])
    >>> first = Manifest.build(["a"], [5], ["1" * 32], part=(1, 2, listing))
    >>> second = Manifest.build(["b"], [6], ["2" * 32], part=(2, 2, listing))
    >>> merge([second, first]) == Manifest.build(["a", "b"], [5, 6], ["1" * 32, "2" * 32])
    True
    """
    if isinstance(parts, Manifest) or not isinstance(parts, Iterable):
        raise ArgumentTypeError(f"parts must be a list of manifests, got {brief(parts)}; give those of all parts")
    parts = list(parts)
    numbers = _numbers(parts)
    first = parts[0]
    for part, number in zip(parts, numbers, strict=True):
        for name in ("algorithm", "content", "piece_size", "rules", "select"):
            if getattr(part, name) != getattr(first, name):
                raise ArgumentValueError(
                    f"{_named(part, number)} was made with another {name} than {_named(first, numbers[0])}: "
                    f"{getattr(part, name)!r} and {getattr(first, name)!r}; hash one of them again"
                )
    columns = [
        [item for part in parts for item in getattr(part, name)] for name in ("paths", "sizes", "hexes", "kinds")
    ]
    _check_once(parts, numbers, columns[0])
    whole = Manifest.build(
        *columns,
        algorithm=first.algorithm,
        content=first.content,
        piece_size=first.piece_size,
        rules=first.rules,
        select=first.select,
    )
    if listing_digest(encode_paths(whole.paths), whole.sizes) != _part_of(first)[2]:
        raise ArgumentValueError(
            "the parts together are not the listing that they say they are parts of: a file is missing from one of "
            "them, or one was edited; hash the parts again"
        )
    return whole


def _numbers(parts: list[Manifest]) -> list[int]:
    """The number of each part, once all of them are there, each once, of one listing."""
    if not parts:
        raise ArgumentValueError("parts is empty: there is nothing to merge")
    for at, part in enumerate(parts):
        if not isinstance(part, Manifest):
            raise ArgumentTypeError(f"parts must be manifests, parts[{at}] is {brief(part)}")
        if part.part is None:
            raise ArgumentValueError(f"{_named(part, at + 1)} is of a whole dataset, not of a part: nothing to merge")
    records = [_part_of(part) for part in parts]
    for part, record in zip(parts, records, strict=True):
        if record[1:] != records[0][1:]:
            first = records[0]
            raise ArgumentValueError(
                f"{_named(part, record[0])} is one of {record[1]} parts of the listing {record[2]}; "
                f"{_named(parts[0], first[0])} is one of {first[1]} of {first[2]}. Hash all parts of one state"
            )
    found = Counter(number for number, _, _ in records)
    twice = sorted(number for number, count in found.items() if count > 1)
    if twice:
        raise ArgumentValueError(f"given twice: {_listed(twice)} of {records[0][1]}")
    if len(found) != records[0][1]:
        missing = islice((number for number in range(1, records[0][1] + 1) if number not in found), _MOST + 1)
        raise ArgumentValueError(f"missing: {_listed(list(missing))} of {records[0][1]}")
    return [number for number, _, _ in records]


def _check_once(parts: list[Manifest], numbers: list[int], paths: list[str]) -> None:
    if len(set(paths)) == len(paths):
        return
    owner: dict[str, int] = {}
    for part, number in zip(parts, numbers, strict=True):
        for path in part.paths:
            if owner.setdefault(path, number) != number:
                raise ArgumentValueError(f"'{printable(path)}' is in part {owner[path]} and in part {number}")


def _part_of(manifest: Manifest) -> Part:
    if manifest.part is None:
        raise ArgumentValueError("a manifest of a whole dataset is no part")
    return manifest.part


def _named(manifest: Manifest, number: int) -> str:
    return f"part {number}" if manifest.path is None else f"part {number} ({printable(str(manifest.path))})"


def _listed(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:_MOST]))
    return f"part {shown}" + (" and more" if len(numbers) > _MOST else "")
