"""Section 14 of docs/spec.md a second time: plain Python integers and lists, written from the page.

A run is a list of steps; a batch is a list of ids. Nothing is computed that can be listed and counted.
"""

from __future__ import annotations

from functools import cache
from itertools import accumulate, count
from math import isqrt

import xxhash

from tests.second import by_sorting, fold, network, permute
from tests.second_mixture import deal

F = "detdata.bucket_plan/1"

# --- bounds ---


def even_bounds(lengths, number, limit):
    n, top = len(lengths), min(max(lengths), limit)
    shift = max(0, top.bit_length() - 22)
    bins = sorted(min(length, top) >> shift for length in lengths)
    ends = sorted({bins[-(-n * q // 1024) - 1] for q in range(1, 1025)})
    E = [bins[0] - 1, *ends]
    T = [0, *(sum(b <= end for b in bins) for end in ends)]
    A = [0, *accumulate(isqrt((T[i] - T[i - 1]) * (E[i] - E[i - 1]) << 20) for i in range(1, len(E)))]
    bounds = set()
    for v in range(1, number + 1):
        goal = -(-A[-1] * v // number)
        i = next(i for i in range(1, len(A)) if A[i] >= goal)
        bounds.add(E[i - 1] - (-(E[i] - E[i - 1]) * (goal - A[i - 1]) // (A[i] - A[i - 1])))
    found = sorted(bounds)
    return [*(((x + 1) << shift) - 1 for x in found[:-1]), top] if shift else found


def bounds_of(lengths, *, max_tokens, divisor, boundaries, num_buckets, max_length, oversized):
    n, limit = len(lengths), limit_of(max_length, max_tokens, divisor)
    if boundaries is None:
        boundaries = even_bounds(lengths, num_buckets or min(64, max(1, n // 64)), limit)
    largest = max(lengths)
    if largest > limit:
        boundaries = {*(b for b in boundaries if b <= limit), limit}
    last = limit if oversized == "clip" and largest > limit else largest
    return sorted({last, *(min(b, last) for b in boundaries)})


def limit_of(max_length, max_tokens, divisor):
    limit = 2**40 if max_length is None else max_length
    return limit if max_tokens is None else min(limit, max_tokens // divisor)


# --- cutting ---


def cut(m, S, D):
    """(P, mixed, pool, V)."""
    P = [0] * len(m)
    c = m.index(max(m))

    def carry(buckets, *, wide):
        carried, mixed = [], []
        for k in buckets:
            held = samples(carried)
            want = S[carried[0][0]] if wide and carried else S[k]
            if held >= want:
                first, carried = split(carried, held - held % D)
                mixed.append(first)
                held %= D
            fill = min(m[k], want - held) if held else 0
            P[k] = (m[k] - fill) // S[k]
            a = P[k] * S[k]
            r = m[k] - a
            if held and held + fill == want:
                mixed.append(carried + ([(k, a, fill)] if fill else []))
                carried, a, r = [], a + fill, r - fill
            if r:
                carried = [*carried, (k, a, r)]
        return carried, mixed

    above, X = carry(range(len(m) - 1, c, -1), wide=True)
    below, Y = carry(range(c), wide=False)
    while True:
        V = S[above[0][0]] if above else S[c]
        h = samples(above) + samples(below)
        if m[c] + h < 3 * V and X:
            above = X.pop() + above
        elif m[c] + h < 3 * V and Y:
            below = Y.pop() + below
        else:
            break
    P[c] = max(0, min(m[c] // S[c], (m[c] + h - 3 * V) // S[c]))
    own = (c, P[c] * S[c], m[c] - P[c] * S[c])
    return P, X + Y, [*above, *([own] if own[2] else []), *reversed(below)], V


def samples(pieces):
    return sum(count for _, _, count in pieces)


def split(pieces, number):
    """(the first `number` samples, the others)."""
    ahead, behind = [], []
    for k, first, size in pieces:
        taken = min(size, number - samples(ahead))
        ahead += [(k, first, taken)] if taken else []
        behind += [(k, first + taken, size - taken)] if size > taken else []
    return ahead, behind


def listed(pieces):
    return [(k, number) for k, first, size in pieces for number in range(first, first + size)]


# --- shapes ---


class Shape:
    """places: of each bucket, rising. Its steps in an epoch are lists of (bucket, place)."""

    def __init__(self, run, size, places, seen, *, whole):
        self.run, self.places, self.seen, self.whole = run, places, seen, whole
        self.S = run.sizes(size)
        self.P, self.mixed, pool, self.V = cut([len(own) for own in places], self.S, run.D)
        self.pool = listed(pool)
        self.J, self.z = divmod(len(self.pool), self.V)
        self.first = None  # (label, number of the special)
        self.known = {}

    def put_first(self):
        """Let the costliest batch come first; return the exchange."""
        S, P, b = self.S, self.P, self.run.bounds
        w = max(k for k, own in enumerate(self.places) if own)
        q = max((S[k] * b[k], k) for k in range(len(b)) if k == w or P[k])[1]
        if P[q]:
            self.first = (q, None)
            return (q, 0)
        specials = [listed(pieces) for pieces in self.mixed] + ([self.pool] if self.J else [])
        for number, special in enumerate(specials):
            for k, place in special:
                if k == q:
                    self.first = (len(b), number)
                    return (q, place)
        return None

    def steps(self, epoch):
        """[(grid, [(bucket, place), …]), …]."""
        if epoch not in self.known:
            self.known[epoch] = [
                (grid, [(k, self.places[k][number]) for k, number in step]) for grid, step in self._steps(epoch)
            ]
        return self.known[epoch]

    def _steps(self, epoch):
        run, K, Z, z, V = self.run, len(self.S), len(self.pool), self.z, self.V
        first = self.first if epoch == 0 else None
        g = Z - z
        if run.tail == "drop" and z and not (first and first[0] == K):
            g = z * ((fold(F, "dropped", run.seed, self.seen) + epoch) % (Z // z))
        kept = self.pool[:g] + self.pool[g + z :]
        specials = [listed(pieces) for pieces in self.mixed] + [kept[j * V : j * V + V] for j in range(self.J)]
        G = len(specials)
        special_at = [permute(r, G, fold(F, "mixed", run.seed, epoch, self.seen)) for r in range(G)]
        counts = [*self.P, G]
        labels = []
        if first:
            if first[0] == K:
                at = special_at.index(first[1])
                special_at[at], special_at[0] = special_at[0], special_at[at]
            labels.append(first[0])
            counts[first[0]] -= 1
        if sum(counts):
            labels += deal(counts, fold(F, "batches", run.seed, epoch, self.seen))
        came = [0] * (K + 1)
        for label in labels:
            r = came[label]
            came[label] += 1
            step = (
                specials[special_at[r]]
                if label == K
                else [(label, r * self.S[label] + j) for j in range(self.S[label])]
            )
            yield len(step), step
        if z and run.tail != "drop":
            yield V, self.pool[Z - z :]

    def rest(self, epoch, t, size):
        used = {sample for _, step in self.steps(epoch)[:t] for sample in step}
        places = [[p for p in own if (k, p) not in used] for k, own in enumerate(self.places)]
        return Shape(self.run, size, places, self.seen + len(used), whole=False)


# --- a run ---


@cache
def places_of(n, key):
    if n <= 1024:
        return by_sorting(n, key)
    found = []
    for p in range(n):
        x = network(p, n, key)
        while x >= n:
            x = network(x, n, key)
        found.append(x)
    return found


class Run:
    """A spec and its lengths. `batches(upto)`: rows of the first steps."""

    def __init__(self, spec, lengths):
        self.bounds, self.D, self.seed, self.tail = spec["bounds"], spec["divisor"], spec["seed"], spec["tail"]
        assert spec["lengths"] == {"count": len(lengths), "digest": lengths_digest(lengths)}
        limit = limit_of(spec["max_length"], spec["max_tokens"], self.D)
        self.alone = [spec["oversized"] == "alone" and b > limit for b in self.bounds]
        self.by_tokens = spec["max_tokens"] is not None
        self.own = lengths
        self.len = [min(length, limit) for length in lengths] if spec["oversized"] == "clip" else lengths
        self.I = [[] for _ in self.bounds]
        for id, length in enumerate(self.len):
            self.I[next((k for k, b in enumerate(self.bounds) if length <= b), -1)].append(id)
        self.spec = spec

    def sizes(self, size):
        if not self.by_tokens:
            return [self.D if alone else size for alone in self.alone]
        D = self.D
        return [min(max(size // max(b, 1) // D * D, D), 2**31 // D * D) for b in self.bounds]

    def whole(self, size):
        return Shape(self, size, [list(range(len(own))) for own in self.I], 0, whole=True)

    def _begun(self):
        """(shape of whole epochs before any change, the exchange)."""
        size = self.spec["max_tokens"] if self.by_tokens else self.spec["batch_size"]
        W, first = self.whole(size), size
        for kind, step, value in self.spec["changes"]:
            if (kind, step) != ("resize", 0):
                break
            first = value
        if not self.spec["longest_first"]:
            return W, None, {}
        special = self.whole(first)
        exchange = special.put_first()
        return (special if first == size else W), exchange, {first: special}

    def steps(self, upto):
        """(epoch, shape, step of the shape) of steps 0 … upto - 1."""
        shape, self.exchange, made = self._begun()
        needed = upto + sum(b - a for kind, a, b in self.spec["changes"] if kind == "skip")

        def epochs(W, epoch):
            assert W.steps(epoch)
            for e in count(epoch):
                for t in range(len(W.steps(e))):
                    yield (e, W, t)

        def begin(stream):
            return [step for step, _ in zip(stream, range(needed + 1), strict=False)]

        Q = begin(epochs(shape, 0))
        for kind, a, b in self.spec["changes"]:
            if kind == "skip":
                del Q[a:b]
                continue
            if a >= len(Q):
                continue
            e, H, t = Q[a]
            W = made.setdefault(b, self.whole(b)) if a == 0 else self.whole(b)
            if t == 0 and H.whole:
                Q[a:] = begin(epochs(W, e))
            else:
                R = H.rest(e, t, b)
                Q[a:] = [(e, R, s) for s in range(len(R.steps(e)))] + begin(epochs(W, e + 1))
        return Q[:upto]

    def id_at(self, epoch, k, place):
        n = len(self.I[k])
        order = places_of(n, fold(F, "samples", self.seed, epoch, k))
        if epoch == 0 and self.exchange and self.exchange[0] == k:
            wanted = self.exchange[1]
            longest = max(range(n), key=lambda r: (self.own[self.I[k][r]], -r))
            had = order.index(longest)
            place = {wanted: had, had: wanted}.get(place, place)
        return self.I[k][order[place]]

    def batches(self, upto):
        """{"epoch", "start", "ids", "real", "width", "grid", "consumed"} of each step."""
        consumed = 0
        for epoch, shape, t in self.steps(upto):
            grid, step = shape.steps(epoch)[t]
            ids = sorted((self.id_at(epoch, k, p) for k, p in step), key=lambda one: (-self.len[one], one))
            held = len(ids)
            rows = grid if self.tail == "pad" or held == grid else min(grid, -(-held // self.D) * self.D)
            yield {
                "epoch": epoch,
                "start": shape.seen + sum(len(step) for _, step in shape.steps(epoch)[:t]),
                "ids": [ids[j % held] for j in range(rows)],
                "real": [j < held for j in range(rows)],
                "width": self.len[ids[0]],
                "grid": grid,
                "consumed": consumed,
            }
            consumed += held


def lengths_digest(lengths):
    data = b"".join(length.to_bytes(8, "little") for length in lengths)
    return f"xxh3-128:{xxhash.xxh3_128(data, seed=0).intdigest():032x}"
