"""Golden values: what this release computes must be what every earlier one recorded.

`golden.py verify` computes every case and compares; `golden.py write` records the cases that are not recorded yet.
A recorded value never changes by accident: `write` refuses, unless `--allow-change NAME` names the case.

Adding cases: add `"<group>/<case>": callable` to CASES, where the callable returns plain JSON (integers, strings,
lists, dicts, true, false, null; no floats), and run `write`. The group is the file: tests/golden/<group>.json.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402  (after the path, like detdata)
import xxhash  # noqa: E402

import detdata  # noqa: E402
from detdata.keys import fold  # noqa: E402

FOLDER = ROOT / "tests" / "golden"

SIZES = (1, 2, 7, 1000, 2**16 - 1, 2**16, 2**16 + 1, 10**6 + 3, 2**32 + 5, 10**12)
SEEDS = (0, 1, 2**63 - 1)
EPOCHS = (0, 1, 10**6)
WHOLE = 10**6 + 3  # up to here the whole order goes into the record, as a digest
EDGE = 16

PATHS: dict[str, tuple[int | str, ...]] = {
    "empty": (),
    "zero": (0,),
    "one": (1,),
    "largest": (2**64 - 1,),
    "empty_string": ("",),
    "ascii": ("shuffle",),
    "unicode": ("größe…",),
    "seed_epoch": (0, "shuffle", 1),
    "epoch_seed": (1, "shuffle", 0),
    "digit_string": ("1",),
    "split_ab_c": ("ab", "c"),
    "split_a_bc": ("a", "bc"),
}


def shuffle(n: int, seed: int, epoch: int) -> dict[str, Any]:
    """Return both ends and 16 spread positions of an epoch and, where n allows it, the digest of all its ids."""
    order = detdata.Shuffle(n, seed=seed)
    edge = min(n, EDGE)
    spread = [i * (n - 1) // (EDGE - 1) for i in range(EDGE)]
    value = {
        "first": order.take(range(edge), epoch=epoch).tolist(),
        "last": order.take(range(n - edge, n), epoch=epoch).tolist(),
        "spread": order.take(spread, epoch=epoch).tolist(),
    }
    if n <= WHOLE:
        ids = order.take(np.arange(n, dtype=np.int64), epoch=epoch)
        value["xxh3_128"] = xxhash.xxh3_128_hexdigest(ids.astype("<i8").tobytes())
    return value


def block_shuffle(epoch: int) -> list[int]:
    """Return a whole epoch of a small block shuffle."""
    order = detdata.BlockShuffle([3, 1, 4, 1, 5, 9, 2, 6], seed=3, window=3)
    return [int(id) for id in order.take(range(order.size), epoch=epoch)]


def plans() -> dict[str, Callable[[], Any]]:
    """Return makers of the plans whose digests and specs are recorded."""
    order = partial(detdata.Shuffle, 1000, seed=7)
    made: dict[str, Callable[[], Any]] = {
        tail: partial(lambda tail: detdata.Plan(order(), 64, tail=tail), tail)
        for tail in ("drop", "pad", "keep", "carry")
    }
    made["resized"] = lambda: detdata.Plan(order(), 64).resized(10, 96)
    made["skipping"] = lambda: detdata.Plan(order(), 64).skipping(5, 8)
    return made


def cases() -> dict[str, Callable[[], Any]]:
    """Return every case: name -> callable that computes its value."""
    table: dict[str, Callable[[], Any]] = {}
    for name, path in PATHS.items():
        table[f"keys/fold,{name}"] = partial(fold, *path)
        table[f"keys/derive_seed,{name}"] = partial(detdata.derive_seed, 7, *path)
    for seed in SEEDS:
        table[f"keys/derive_seed,seed={seed}"] = partial(detdata.derive_seed, seed)
        table.update(
            {
                f"shuffle/n={n},seed={seed},epoch={epoch}": partial(shuffle, n, seed, epoch)
                for n in SIZES
                for epoch in EPOCHS
            }
        )
    for epoch in (0, 1):
        table[f"block_shuffle/epoch={epoch}"] = partial(block_shuffle, epoch)
    for name, make in plans().items():
        table[f"plan/digest,{name}"] = partial(lambda make: make().digest(0, 40), make)
        table[f"plan/spec,{name}"] = partial(lambda make: make().spec(), make)
    return table


CASES: dict[str, Callable[[], Any]] = cases()


def text(value: object) -> str:
    """Return the one JSON text by which values are compared; floats and objects are no golden values."""
    _check(value)
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _check(value: object) -> None:
    if isinstance(value, dict):
        if not all(type(key) is str for key in value):
            raise TypeError(f"golden values are plain JSON; these keys are not all strings: {list(value)}")
        for item in value.values():
            _check(item)
    elif isinstance(value, list):
        for item in value:
            _check(item)
    elif value is not None and type(value) not in {int, str, bool}:
        raise TypeError(f"golden values are plain JSON without floats, got {value!r} of type {type(value).__name__}")


def recorded(folder: Path) -> dict[str, Any]:
    """Return all recorded values: name -> value."""
    values: dict[str, Any] = {}
    for file in sorted(folder.glob("*.json")):
        for case, value in json.loads(file.read_text(encoding="utf-8")).items():
            values[f"{file.stem}/{case}"] = value
    return values


def verify(table: dict[str, Callable[[], Any]], folder: Path = FOLDER) -> list[str]:
    """Return what is wrong, one line a case: changed, not recorded, or recorded and gone from the table."""
    known = recorded(folder)
    wrong = [f"{name}: recorded, but no longer a case" for name in known.keys() - table.keys()]
    for name, compute in table.items():
        if name not in known:
            wrong.append(f"{name}: not recorded yet; run `make golden`")
            continue
        expected, found = text(known[name]), text(compute())
        if expected != found:
            wrong.append(f"{name}: changed\n  recorded  {_short(expected)}\n  computed  {_short(found)}")
    return sorted(wrong)


def write(table: dict[str, Callable[[], Any]], folder: Path = FOLDER, allow: Iterable[str] = ()) -> list[str]:
    """Record the cases that are not recorded yet, and those in `allow` anew; return the names of what was written.

    Raises ValueError, and writes nothing, if any other recorded value has changed or its case is gone.
    """
    allowed = set(allow)
    known = recorded(folder)
    if unknown := allowed - known.keys():
        raise ValueError(f"--allow-change names cases that are not recorded: {sorted(unknown)}")
    values = {name: compute() for name, compute in table.items()}
    changed = {name for name in known if name not in values or text(known[name]) != text(values[name])}
    if refused := sorted(changed - allowed):
        raise ValueError(
            f"recorded values would change: {refused}\n"
            "A released algorithm keeps its values for ever; a better one gets a new format name. "
            "If the change is meant, name each case with --allow-change NAME."
        )
    groups: dict[str, dict[str, Any]] = {name.partition("/")[0]: {} for name in known}
    for name, value in values.items():
        group, _, case = name.partition("/")
        groups.setdefault(group, {})[case] = value
    folder.mkdir(parents=True, exist_ok=True)
    for group, members in groups.items():
        file = folder / f"{group}.json"
        if members:  # one case a line, so that a change shows as one line
            lines = [f"{json.dumps(case, ensure_ascii=False)}: {text(members[case])}" for case in sorted(members)]
            file.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
        else:
            file.unlink()
    return sorted(changed | (values.keys() - known.keys()))


def _short(line: str, width: int = 300) -> str:
    return line if len(line) <= width else f"{line[:width]}… ({len(line)} characters)"


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="golden.py", description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("verify", help="compare every case with its record; exit 1 if any differs")
    writer = commands.add_parser("write", help="record new cases; refuse to change recorded ones")
    writer.add_argument("--allow-change", action="append", default=[], metavar="NAME", help="a case that may change")
    options = parser.parse_args(arguments)
    if options.command == "verify":
        wrong = verify(CASES)
        print("\n".join(wrong) or f"golden: {len(CASES)} cases as recorded")
        return 1 if wrong else 0
    try:
        written = write(CASES, allow=options.allow_change)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"golden: {len(written)} of {len(CASES)} cases written" + "".join(f"\n  {name}" for name in written))
    return 0


if __name__ == "__main__":
    sys.exit(main())
