"""Dealt labels and mixtures a second time: docs/spec.md, sections 3 and 10, in plain Python, written from the page.

It walks draw by draw and counts, so it is the naive oracle of `Mixture` as well.
"""

from __future__ import annotations

from fractions import Fraction
from math import gcd, lcm

from tests.second import GOLDEN, MASK, bound_of, fold, mix64, size_of, take

# --- section 10 ---


def deal(counts, key):
    """Yield the labels of the sequence."""
    salt, n = fold("detdata.deal/1", key), sum(counts)
    D = 0
    while len(counts) > 2**D:
        D += 1
    W = [0] * 2 ** (D + 1)
    W[2**D : 2**D + len(counts)] = counts
    for v in reversed(range(1, 2**D)):
        W[v] = W[2 * v] + W[2 * v + 1]

    def before(t):
        B = [0] * 2 ** (D + 1)
        B[1] = t
        for v in range(1, 2**D):
            if W[v]:
                H = ((mix64((v * GOLDEN + salt) & MASK) >> 32) * W[v]) >> 32
                B[2 * v] = (B[v] * W[2 * v] + H) // W[v]
                B[2 * v + 1] = B[v] - B[2 * v]
        return B[2**D : 2**D + len(counts)]

    for begin in range(0, n, 32):
        here = zip(before(begin), before(min(begin + 32, n)), strict=True)
        slots = [label for label, (low, high) in enumerate(here) for _ in range(high - low)]
        keys = [mix64(((begin + k + 2**32) * GOLDEN + salt) & MASK) >> 5 << 5 | k for k in range(len(slots))]
        yield from [slots[key & 31] for key in sorted(keys)]


# --- section 3, detdata.mixture/1 ---


class Walk:
    """A mixture's draws as lists: `draws`, rows (source, number), for as many as it has or are asked for."""

    def __init__(self, spec, upto=None):
        self.spec, self.seed = spec, spec["seed"]
        self.names = [name for name, _ in spec["sources"]]
        self.orders = [source for _, source in spec["sources"]]
        self.s = [order_size(source) for source in self.orders]
        self.w = [Fraction(text) for text in spec["weights"]]
        limits = dict(spec["limits"])
        self.most = [limits[name] * s if name in limits else None for name, s in zip(self.names, self.s, strict=True)]
        if spec["stop"] == "all_once":
            self.most = list(self.s)
        self.changes = {at: {self.names.index(name): Fraction(text) for name, text in rows}
                        for at, rows in spec["changes"]}  # fmt: skip
        self.c = [0] * len(self.s)
        self.draws = []
        self.ended = self.walk(float("inf") if upto is None else upto)
        self.C = list(self.c)
        self.P = [-(-C // s) for C, s in zip(self.C, self.s, strict=True)]
        self.size = len(self.draws) if spec["stop"] else spec["size"]

    def walk(self, upto):
        """True if the sequence has ended before `upto` draws."""
        while len(self.draws) < upto:
            R = [i for i, w in enumerate(self.w) if w > 0 and (self.most[i] is None or self.c[i] < self.most[i])]
            if not R or self.segment(R, upto):
                return True
        return False

    def segment(self, R, upto):
        p, weights = len(self.draws), [self.w[i] for i in R]
        scale = lcm(*(w.denominator for w in weights))
        a = [int(w * scale) for w in weights]
        a = [one // gcd(*a) for one in a]
        A, Q = sum(a), 256
        while Q * min(a) < A:
            Q *= 2
        m = 0
        while True:
            n = [high - low for low, high in zip(quota(m, Q, a, A), quota(m + 1, Q, a, A), strict=True)]
            for j in deal(n, fold("detdata.mixture/1", "block", self.seed, p, m)):
                if len(self.draws) >= upto:
                    return False
                i = R[j]
                self.draws.append((i, self.c[i]))
                self.c[i] += 1
                if self.over(i, R):
                    return True
                if len(self.draws) in self.changes:
                    for source, weight in self.changes[len(self.draws)].items():
                        self.w[source] = weight
                    return False
                if self.c[i] == self.most[i]:
                    return False
            m += 1

    def over(self, i, R):
        if self.spec["stop"] == "first":
            return self.c[i] == self.s[i]
        return self.spec["stop"] == "all" and all(self.c[i] >= self.s[i] for i in R)

    def address(self, p, e):
        """(source, pass, place) of a position of an epoch."""
        if self.spec["stop"] is None:
            i, r = self.draws[e * self.size + p]
            return i, r // self.s[i], r % self.s[i]
        i, r = self.draws[p]
        if self.spec["stop"] == "first":
            r += e * self.C[i]
            return i, r // self.s[i], r % self.s[i]
        return i, e * self.P[i] + r // self.s[i], r % self.s[i]

    def take(self, p, e):
        i, number, place = self.address(p, e)
        return sum(order_bound(order) for order in self.orders[:i]) + order_take(self.orders[i], place, number)


def quota(m, Q, a, A):
    rounded = [m * Q * one // A for one in a]
    largest = sorted(range(len(a)), key=lambda j: (-(m * Q * a[j] % A), j))
    for j in largest[: m * Q - sum(rounded)]:
        rounded[j] += 1
    return rounded


def order_size(spec):
    if spec["format"] != "detdata.mixture/1":
        return size_of(spec)
    return spec["size"] or Walk(spec).size


def order_bound(spec):
    if spec["format"] != "detdata.mixture/1":
        return bound_of(spec)
    return sum(order_bound(source) for _, source in spec["sources"])


def order_take(spec, p, e):
    if spec["format"] != "detdata.mixture/1":
        return take(spec, p, e)
    return Walk(spec, (e + 1) * spec["size"] if spec["size"] else None).take(p, e)
