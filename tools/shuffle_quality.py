"""Is the shuffle as good as a true one? Statistics of it beside those of NumPy's, as z-scores.

`shuffle_quality.py` computes the whole battery (minutes) and prints it; `shuffle_quality.py write` puts it into
docs/shuffle-quality.md, between its markers. tests/test_shuffle_quality.py runs a smaller battery of the same code.

Every statistic is turned into a z-score: standard normal, nearly, for a permutation drawn at random. A battery of m of
them passes if all lie within `bound(m)`, which true randomness leaves once in a thousand runs of the whole battery.
"""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from math import isqrt, pi, sqrt
from pathlib import Path
from statistics import NormalDist

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402  (after the path, like detdata)
import numpy.typing as npt  # noqa: E402

import detdata  # noqa: E402

PAGE = ROOT / "docs" / "shuffle-quality.md"
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
CELLS = 256
HUGE = 10**12

Ids = npt.NDArray[np.int64]
Shuffler = Callable[[int, int, int], Ids]  # (n, seed, epoch) -> the whole order
Window = Callable[[int, int, int, int], Ids]  # (n, seed, start, length) -> that stretch of it


@dataclass(frozen=True)
class Row:
    """One statistic: what, of which n, at which stride; its z-score, and that of the single key that strays most."""

    name: str
    n: int
    stride: int | None
    z: float
    worst: float


@dataclass(frozen=True)
class Scale:
    """How much is measured: keys for each n, and how often the small statistics are repeated."""

    keys: dict[int, int]
    orders_of_four: int
    cells_of_sixteen: int
    repeats: int
    window: int


FULL = Scale({65537: 48, 70_000: 48, 2**20: 12, 2**20 + 7: 12, 3_000_017: 5}, 48_000, 32_000, 1000, 2**20)
QUICK = Scale({65537: 6, 70_000: 12, 2**20: 1, 2**20 + 7: 1, 3_000_017: 1}, 6_000, 4_000, 100, 2**16)


def ours(n: int, seed: int, epoch: int) -> Ids:
    """Return the whole order of `detdata.Shuffle`."""
    return detdata.Shuffle(n, seed).take(np.arange(n), epoch)


def numpys(n: int, seed: int, epoch: int) -> Ids:
    """Return a permutation by NumPy."""
    return np.random.default_rng([seed, epoch]).permutation(n)


def our_window(n: int, seed: int, start: int, length: int) -> Ids:
    """Return a stretch of `detdata.Shuffle`."""
    return detdata.Shuffle(n, seed).take(np.arange(start, start + length))


def numpys_window(n: int, seed: int, start: int, length: int) -> Ids:
    """Return independent draws: a stretch of so long a permutation, but for a repeat that it can't have."""
    return np.random.default_rng([seed, start]).integers(0, n, length)


def bound(tests: int) -> float:
    """Return the |z| that all of `tests` true statistics stay within, 999 times in a thousand (Bonferroni)."""
    return NormalDist().inv_cdf(1 - 0.001 / tests / 2)


def strides(n: int) -> list[int]:
    """Return the strides at which gaps are looked at: small ones, powers of two, the network's radices, batches."""
    a = isqrt(n - 1) + 1
    b = -(-n // a)
    small = [1, 2, 3, 5, 7, 11, 13, 48, 1000]
    return sorted({*small, *(2**k for k in range(2, 16)), a, b, 2 * a, 2 * b})


def gap_z(first: Ids, second: Ids, n: int, *, same: bool) -> float:
    """Return the z of the chi-square of (second - first) mod n in 256 cells.

    A gap is uniform over 0 … n - 1, or over 1 … n - 1 where both are of one order (`same`), which repeats no id. The
    sum of squares has 255 degrees of freedom: mean 255, variance 510. That gaps of one order are not quite independent
    shifts it by parts of 1/n only.
    """
    gaps = second - first
    gaps += (gaps < 0) * n
    counts = np.bincount(gaps * CELLS // n, minlength=CELLS)
    edges = -(-np.arange(CELLS + 1) * n // CELLS)
    share = np.diff(edges).astype(float)
    if same:
        share[0] -= 1
    expected = share / share.sum() * gaps.size
    chi2 = float(((counts - expected) ** 2 / expected).sum())
    return (chi2 - (CELLS - 1)) / sqrt(2 * (CELLS - 1))


def combined(name: str, n: int, stride: int | None, scores: list[float]) -> Row:
    """Return the row of the same statistic over many keys: their sum over the root of their number is again a z."""
    return Row(name, n, stride, sum(scores) / sqrt(len(scores)), max(scores, key=abs))


def gap_rows(shuffle: Shuffler, scale: Scale) -> Iterator[Row]:
    """Gaps within one order, at every stride."""
    for n, keys in scale.keys.items():
        table: dict[int, list[float]] = {stride: [] for stride in strides(n)}
        for key in range(keys):
            order = shuffle(n, key, 0)
            for stride, scores in table.items():
                scores.append(gap_z(order[:-stride], order[stride:], n, same=True))
        for stride, scores in table.items():
            yield combined("gaps", n, stride, scores)


def whole_rows(shuffle: Shuffler, scale: Scale) -> Iterator[Row]:
    """Serial correlation, parity and cycles of whole orders."""
    for n, keys in scale.keys.items():
        orders = [shuffle(n, 1000 + key, 3) for key in range(min(keys, 8))]
        for lag in (1, 2, 3, 4):
            yield combined("serial correlation", n, lag, [correlation_z(p[:-lag], p[lag:]) for p in orders])
        yield combined("parity kept", n, None, [parity_z(p) for p in orders])
        yield combined("cycles", n, None, [cycles_z(p) for p in orders])
    n = 1000
    yield combined("cycles", n, None, [cycles_z(shuffle(n, 2, key)) for key in range(scale.repeats)])
    yield distinct_gaps(shuffle, scale)


def correlation_z(x: Ids, y: Ids) -> float:
    """Return the z of the correlation of two rows of ids.

    Of a random order its mean is -1/(n - 1), its variance 1/(n - 1) up to parts of 1/n².
    """
    n = x.size
    return float((np.corrcoef(x, y)[0, 1] + 1 / n) * sqrt(n))


def parity_z(order: Ids) -> float:
    """Return the z of the number of ids as odd as their position.

    Even ids on even positions are hypergeometric: e² / n of them on average, variance e² o² / (n² (n - 1)) with e even
    and o odd numbers below n; each one more makes two more agreements.
    """
    n = order.size
    even, odd = -(-n // 2), n // 2
    both = int((order[::2] % 2 == 0).sum())
    return (both - even * even / n) / (even * odd / n / sqrt(n - 1))


def cycles_z(order: Ids) -> float:
    """Return the z of the number of cycles: mean H(n), variance H(n) - H2(n), harmonic numbers of 1st, 2nd order.

    Found by doubling: after k rounds each place knows the smallest of 2^k that follow it in its cycle.
    """
    n = order.size
    least, jump = np.arange(n), order
    for _ in range(n.bit_length()):
        least = np.minimum(least, least[jump])
        jump = jump[jump]
    harmonic = float((1 / np.arange(1, n + 1)).sum())
    return (int((least == np.arange(n)).sum()) - harmonic) / sqrt(harmonic - pi * pi / 6)


def distinct_gaps(shuffle: Shuffler, scale: Scale) -> Row:
    """How many different values p[i + 1] - p[i] has at n = 2^20.

    The difference d occurs n - |d| times among the n (n - 1) ordered pairs, so Poisson((n - |d|) / n) often, and is
    seen with probability 1 - exp of minus that: 2n/e = 771,499 in all. The variance is that of an occupancy problem.
    """
    n = 2**20
    rate = (n - np.abs(np.arange(1 - n, n))) / n
    rate[n - 1] = 0
    unseen = np.exp(-rate)
    variance = (unseen * (1 - unseen)).sum() - (rate * unseen).sum() ** 2 / n
    mean = (1 - unseen).sum()
    orders = (shuffle(n, 500 + key, 1) for key in range(scale.keys.get(n, 1)))
    return combined(
        "distinct gaps", n, 1, [float((np.unique(np.diff(p)).size - mean) / sqrt(variance)) for p in orders]
    )


def small_rows(shuffle: Shuffler, scale: Scale) -> Iterator[Row]:
    """Small orders, counted whole; and fixed points."""
    counts = np.zeros(256, dtype=np.int64)
    for key in range(scale.orders_of_four):
        counts[int(shuffle(4, key, 0) @ np.array([1, 4, 16, 64]))] += 1
    seen = counts[[a + 4 * b + 16 * c + 64 * d for a in range(4) for b in range(4) for c in range(4) for d in range(4)
                   if len({a, b, c, d}) == 4]]  # fmt: skip
    expected = scale.orders_of_four / 24
    z = (float(((seen - expected) ** 2 / expected).sum()) - 23) / sqrt(46)  # 23 degrees of freedom
    yield Row("orders of four", 4, None, z, z)
    table = np.zeros((16, 16), dtype=np.int64)
    for key in range(scale.cells_of_sixteen):
        table[np.arange(16), shuffle(16, 7, key)] += 1
    expected = scale.cells_of_sixteen / 16
    # A permutation's table has 15 x 15 degrees of freedom, each of variance 1/15 (not 1/16 as of free cells).
    z = (float(((table - expected) ** 2 / expected).sum()) * 15 / 16 - 225) / sqrt(450)
    yield Row("position x item", 16, None, z, z)
    for n in (1000, 65537):
        repeats = scale.repeats if n == 1000 else max(4, scale.repeats // 10)
        fixed = [int((shuffle(n, 11, key) == np.arange(n)).sum()) for key in range(repeats)]
        yield Row("fixed points", n, None, (sum(fixed) - repeats) / sqrt(repeats), max(fixed) - 1.0)  # Poisson(1) each


def neighbour_rows(shuffle: Shuffler, scale: Scale) -> Iterator[Row]:
    """Orders of neighbouring seeds and epochs, place by place: as unrelated as any two."""
    steps = {"seeds": (1, 0), "epochs": (0, 1), "seed against epoch": (1, -1)}
    for n in (1000, 70_000):
        repeats = scale.repeats if n == 1000 else max(4, scale.repeats // 20)
        for name, (seed, epoch) in steps.items():
            pairs = [(shuffle(n, 20 + k, 5), shuffle(n, 20 + k + seed, 5 + epoch)) for k in range(repeats)]
            agree = [int((p == q).sum()) for p, q in pairs]
            z = (sum(agree) - repeats) / sqrt(repeats)  # Poisson(1) each
            yield Row(f"{name}: agreements", n, None, z, max(agree) - 1.0)
            yield combined(f"{name}: correlation", n, None, [correlation_z(p, q) - 1 / sqrt(n) for p, q in pairs])
            if n > 1000:  # cells of a few hundred, else the sum of squares is no chi-square
                yield combined(f"{name}: gaps", n, None, [gap_z(p, q, n, same=False) for p, q in pairs])


def window_rows(window: Window, scale: Scale) -> Iterator[Row]:
    """Stretches of an order that is too long to list."""
    length, zero = scale.window, np.zeros(scale.window, dtype=np.int64)
    starts = [0, 10**6, HUGE // 3, HUGE - length]
    stretches = [window(HUGE, key, start, length) for key, start in enumerate(starts)]
    yield combined("window: ids", HUGE, None, [gap_z(zero, ids, HUGE, same=False) for ids in stretches])
    yield combined("window: low 8 bits", HUGE, None, [gap_z(zero, ids % 256, 256, same=False) for ids in stretches])
    for stride in (1, 2, 7, 48, 1000):
        scores = [gap_z(ids[:-stride], ids[stride:], HUGE, same=False) for ids in stretches]
        yield combined("window: gaps", HUGE, stride, scores)
        low = [gap_z(ids[:-stride] % 256, ids[stride:] % 256, 256, same=False) for ids in stretches]
        yield combined("window: gaps of low 8 bits", HUGE, stride, low)


def battery(shuffle: Shuffler, window: Window, scale: Scale) -> list[Row]:
    """Return all rows for one way to shuffle."""
    return [
        *gap_rows(shuffle, scale),
        *whole_rows(shuffle, scale),
        *small_rows(shuffle, scale),
        *neighbour_rows(shuffle, scale),
        *window_rows(window, scale),
    ]


def tables(mine: list[Row], theirs: list[Row], scale: Scale) -> str:
    """Return both batteries as Markdown."""
    sizes = list(scale.keys)
    head = " | ".join(f"n = {n:,}" for n in sizes)
    found = {(row.n, row.stride): (row, other) for row, other in zip(mine, theirs, strict=True) if row.name == "gaps"}
    lines = [
        "z of the gaps at each stride, ours / NumPy's.",
        "",
        f"| stride | {head} |",
        "| --- |" + " --- |" * len(sizes),
    ]
    for stride in sorted({stride for _, stride in found if stride is not None}):
        cells = [found.get((n, stride)) for n in sizes]
        text = [f"{pair[0].z:+.2f} / {pair[1].z:+.2f}" if pair else "" for pair in cells]
        lines.append(f"| {stride} | " + " | ".join(text) + " |")
    lines += ["", "| statistic | n | lag or stride | ours | NumPy's |", "| --- | --- | --- | --- | --- |"]
    for row, other in zip(mine, theirs, strict=True):
        if row.name != "gaps":
            lines.append(f"| {row.name} | {row.n:,} | {row.stride or ''} | {row.z:+.2f} | {other.z:+.2f} |")
    limit = bound(len(mine))
    lines += ["", f"| | ours | NumPy's |\n| --- | --- | --- |\n| statistics | {len(mine)} | {len(theirs)} |"]
    largest = [max(rows, key=lambda row: abs(row.z)).z for rows in (mine, theirs)]
    outside = [sum(abs(row.z) > limit for row in rows) for rows in (mine, theirs)]
    spread = [sqrt(sum(row.z**2 for row in rows) / len(rows)) for rows in (mine, theirs)]
    lines.append(f"| largest z | {largest[0]:+.2f} | {largest[1]:+.2f} |")
    lines.append(f"| root mean square of z | {spread[0]:.2f} | {spread[1]:.2f} |")
    lines.append(f"| outside ±{limit:.2f} | {outside[0]} | {outside[1]} |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="shuffle_quality.py", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("command", nargs="?", choices=["show", "write"], default="show")
    options = parser.parse_args(arguments)
    mine, theirs = battery(ours, our_window, FULL), battery(numpys, numpys_window, FULL)
    made = f"Made {datetime.now(UTC):%Y-%m-%d} with detdata {detdata.__version__}, NumPy {np.__version__}, "
    text = made + f"Python {platform.python_version()}.\n\n" + tables(mine, theirs, FULL)
    print(text)
    if options.command == "write":
        page = PAGE.read_text(encoding="utf-8")
        before, after = page.partition(BEGIN)[0], page.partition(END)[2]
        PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")
    return 1 if any(abs(row.z) > bound(len(mine)) for row in mine) else 0


if __name__ == "__main__":
    sys.exit(main())
