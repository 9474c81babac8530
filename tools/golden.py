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
from detdata.orders.deal import Deal  # noqa: E402
from detdata.orders.groups import GroupShuffle  # noqa: E402
from detdata.orders.mixture import Mixture  # noqa: E402
from detdata.orders.split import split  # noqa: E402
from detdata.orders.weighted import Weighted, class_balanced  # noqa: E402
from detdata.plans.bucket_plan import BucketPlan  # noqa: E402
from detdata.plans.pack_plan import PackPlan  # noqa: E402
from detdata.plans.phases import Phases  # noqa: E402
from detdata.plans.plan_mixture import PlanMixture  # noqa: E402
from detdata.plans.ramps import linear_ramp, ramped  # noqa: E402
from detdata.plans.views import EveryEpoch  # noqa: E402

FOLDER = ROOT / "tests" / "golden"
DEALS = (([5], 0), ([3, 1], 1), ([20, 0, 13, 7], 2), ([1, 1000], 3), ([2**30, 2**29, 2**29], 2**64 - 1))

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


def deal(counts: list[int], key: int) -> dict[str, Any]:
    """Return the first labels of a deal, and what comes before its middle and where its last draws are."""
    made = Deal(counts, key)
    edge = np.arange(min(made.size, 64), dtype=np.int64)
    used = np.flatnonzero(counts)
    return {
        "labels": made.draw(edge).label.tolist(),
        "before": made.before(np.array([made.size // 2, made.size]))[0].tolist(),
        "last": made.find(used, np.array(counts, dtype=np.int64)[used] - 1).tolist(),
    }


def mixtures() -> dict[str, Callable[[], Any]]:
    """Return makers of the mixtures whose ids, counts and specs are recorded."""
    two = {"web": detdata.Shuffle(10**6, seed=1), "code": detdata.Shuffle(300, seed=2)}
    three = {**two, "math": detdata.Shuffle(40, seed=3)}
    even = Mixture(two, {"web": 3, "code": 1}, seed=7, size=1000)
    made: dict[str, Callable[[], Any]] = {
        "size": lambda: even,
        "floats": lambda: Mixture(two, {"web": 0.9999, "code": 0.0001}, seed=7, size=10**6),
        "reweighted": lambda: even.reweighted(
            1300, {"web": 1, "math": 0.5}, add={"math": three["math"]}, limits={"math": 2}
        ),
        "limits": lambda: Mixture(three, dict.fromkeys(three, 1), 1, size=1000, limits={"code": 1, "math": 2}),
        "nested": lambda: Mixture({"even": even, "math": three["math"]}, {"even": 9, "math": 1}, size=500),
    }
    for stop in ("first", "all", "all_once"):
        made[stop] = partial(
            lambda stop: Mixture({**three, "web": detdata.Shuffle(999)}, {"web": 4, "code": 2, "math": 1}, stop=stop),
            stop,
        )
    return made


def mixture(make: Callable[[], Any]) -> dict[str, Any]:
    """Return the digests of the first epochs of a mixture, and its counts at the end of the second."""
    order = make()
    ids = [order.take(np.arange(order.size), epoch=epoch) for epoch in range(2)]
    return {
        "size": order.size,
        "first": ids[0][:EDGE].tolist(),
        "xxh3_128": [xxhash.xxh3_128_hexdigest(one.astype("<i8").tobytes()) for one in ids],
        "counts": list(order.counts(order.size, 1).values()),
    }


def whole(order: detdata.Order, epoch: int) -> dict[str, Any]:
    """Return the spec of an order, the first ids of an epoch, and the digest of them all."""
    ids = order.take(np.arange(order.size, dtype=np.int64), epoch)
    digest = xxhash.xxh3_128_hexdigest(ids.astype("<i8").tobytes())
    return {"spec": order.spec(), "first": ids[:EDGE].tolist(), "xxh3_128": digest}


def schedules() -> dict[str, Callable[[], Any]]:
    """Return makers of the plans made of other plans whose batches and specs are recorded."""
    lengths = np.arange(2000) ** 2 % 701 + 1
    plain = detdata.Plan(detdata.Shuffle(2000, seed=1), 64, "carry")
    bucket = BucketPlan(lengths, max_tokens=6000, num_buckets=6, seed=2)
    clipped = BucketPlan(lengths, max_tokens=6000, max_length=128, oversized="clip", seed=3)
    pack = PackPlan(lengths, 512, 8, seed=4)
    mixture = PlanMixture({"a": plain, "b": bucket}, {"a": 0.7, "b": 0.3}, seed=5, size=100)
    return {
        "ramp": lambda: ramped(plain, linear_ramp(64, 512, 300, 64)),
        "ramp of tokens": lambda: ramped(bucket, {100: 12000, 200: 24000}),
        "phases": lambda: Phases([(clipped, 150), (plain, 7, 100), (bucket, None)]),
        "every epoch": lambda: EveryEpoch(bucket, 50),
        "plan mixture": lambda: mixture.reweighted(300, {"a": 0.1}),
        "packed": lambda: PlanMixture({"a": pack, "b": Phases([(pack, 9), (pack, 5, None)])}, {"a": 1, "b": 2}, size=9),
    }


def draws() -> dict[str, Callable[[], detdata.Order]]:
    """Return makers of weighted draws, group batches and parts of a split, all of 10,000 samples."""
    ids = np.arange(10_000)
    return {
        "weighted/squares": lambda: Weighted(ids**2, seed=3),
        "weighted/fractions": lambda: Weighted(1 / (ids + 1), seed=3, size=5000),
        "weighted/balanced": lambda: class_balanced(ids**2 % 37, seed=3),
        "weighted/balanced,power=0.3": lambda: class_balanced(ids**2 % 37, seed=3, power=0.3),
        "group_shuffle/classes": lambda: GroupShuffle(ids**2 % 37, 8, 4, seed=3),
        "group_shuffle/pairs": lambda: GroupShuffle(ids // 2, 64, 2, seed=3),
        "group_shuffle/apart": lambda: GroupShuffle(ids**2 % 1000, 100, 1, seed=3, ids=ids[ids % 3 > 0]),
        "split/train": lambda: split(detdata.Shuffle(10_000, seed=3), {"train": 0.9, "rest": 0.1}, seed=3)["train"],
        "split/rest": lambda: split(10_000, {"train": 0.9, "rest": 0.1}, seed=3)["rest"],
    }


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


def buckets() -> dict[str, Callable[[], BucketPlan]]:
    """Return makers of the bucketed plans whose digests and specs are recorded."""
    lengths = np.arange(5000) ** 2 % 701 + 1
    made: dict[str, Callable[[], BucketPlan]] = {
        f"{name},{tail}": partial(
            lambda size, tail: BucketPlan(lengths, **size, seed=3, tail=tail, divisor=2), size, tail
        )
        for name, size in (("batch_size", {"batch_size": 48}), ("max_tokens", {"max_tokens": 9000}))
        for tail in ("drop", "keep", "pad")
    }
    made["longest_first"] = lambda: BucketPlan(lengths, max_tokens=9000, longest_first=True, boundaries=[50, 200, 400])
    made["clip"] = lambda: BucketPlan(lengths, 32, max_length=300, oversized="clip")
    made["alone"] = lambda: BucketPlan(lengths, 32, max_length=300, oversized="alone", num_buckets=5)
    made["changed"] = lambda: BucketPlan(lengths, 32, seed=1).resized(40, 96).skipping(60, 66).resized(100, 16)
    return made


def packed() -> dict[str, Callable[[], detdata.PackPlan]]:
    """Return makers of the packed plans whose digests and specs are recorded."""
    lengths = [id * 37 % 101 for id in range(5000)]
    pack = partial(detdata.PackPlan, lengths, 64, 16, 3)
    made: dict[str, Callable[[], detdata.PackPlan]] = {
        f"{method},{tail}": partial(pack, method, tail)
        for method in ("concat", "best_fit")
        for tail in ("drop", "pad", "keep", "carry")
    }
    made["relengthened"] = lambda: pack().relengthened(5, 100, 12).resized(9, 8).relengthened(15, 512, 3)
    made["skipping"] = lambda: pack().relengthened(5, 100).skipping(3, 9)
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
    for counts, key in DEALS:
        table[f"deal/counts={','.join(map(str, counts))},key={key}"] = partial(deal, counts, key)
    for name, make in mixtures().items():
        table[f"mixture/{name}"] = partial(mixture, make)
        table[f"mixture/spec,{name}"] = partial(lambda make: make().spec(), make)
    for name, made in draws().items():
        for epoch in (0, 1):
            table[f"{name},epoch={epoch}"] = partial(lambda made, epoch: whole(made(), epoch), made, epoch)
    for name, build in packed().items():
        table[f"pack_plan/digest,{name}"] = partial(lambda build: build().digest(0, 40), build)
        table[f"pack_plan/late,{name}"] = partial(lambda build: build().digest(10**9, 10**9 + 2), build)
        table[f"pack_plan/spec,{name}"] = partial(lambda build: build().spec(), build)
    for name, bucketed in buckets().items():
        table[f"bucket_plan/digest,{name}"] = partial(lambda bucketed: bucketed().digest(0, 300), bucketed)
        table[f"bucket_plan/late,{name}"] = partial(lambda bucketed: bucketed().digest(10**9, 10**9 + 2), bucketed)
        table[f"bucket_plan/spec,{name}"] = partial(lambda bucketed: bucketed().spec(), bucketed)
    for name, make in schedules().items():
        table[f"schedules/digest,{name}"] = partial(lambda make: make().digest(0, 600), make)
        table[f"schedules/spec,{name}"] = partial(lambda make: make().spec(), make)
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
