"""Plans of batches of like length beside their peers: what is padded, what a step costs, what a resume costs.

Lengths are log-normal (sigma 1) or real: bytes of the lines of Python's own standard library, which every machine has
(which lines there are depends on the Python). Times are CPU seconds of this process.
"""

from __future__ import annotations

import importlib.util
import resource
import sysconfig
import time
from itertools import islice
from pathlib import Path
from statistics import median

BATCH = 64  # samples of a batch whose padding counts
IDS = 512  # samples of a step whose time counts
SEQ_LEN = 2048
PEERS = {"transformers": "transformers", "lhotse": "lhotse", "lhotse64": "lhotse"}
BUCKETS = {"lhotse": 10, "lhotse64": 64}  # lhotse's default, and as many as ours


def lacking(side):
    package = PEERS.get(side)
    return {"missing": package} if package and importlib.util.find_spec(package) is None else None


# --- lengths ---


def lognormal(n, mean=5.0):
    import numpy as np

    return np.random.default_rng(0).lognormal(mean, 1.0, n).astype(np.int64) + 1


def lines(n):
    """Bytes of n lines that are not blank, evenly spread over all modules of the standard library."""
    import numpy as np

    found = []
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).rglob("*.py")):
        if "site-packages" not in path.parts:
            found += [len(line) for line in path.read_bytes().split(b"\n") if line.strip()]
    return np.array(found[:: max(1, len(found) // n)][:n], dtype=np.int64)


LENGTHS = {"lognormal": lognormal, "lines": lines}

# --- batches of an epoch, as arrays of lengths ---


def ours(lengths):
    from detdata.plans.bucket_plan import BucketPlan

    plan = BucketPlan(lengths, BATCH, seed=1, tail="keep")
    for step in range(plan.steps()):
        batch = plan.batch(step)
        yield lengths[batch.ids[batch.real]]


def at_random(lengths):
    import numpy as np

    order = lengths[np.random.default_rng(1).permutation(lengths.size)]
    return (order[first : first + BATCH] for first in range(0, order.size, BATCH))


def transformers(lengths):
    from transformers.trainer_pt_utils import LengthGroupedSampler

    order = lengths[list(LengthGroupedSampler(BATCH, lengths=lengths.tolist()))]
    return (order[first : first + BATCH] for first in range(0, order.size, BATCH))


def cuts_of(lengths):
    from lhotse import CutSet
    from lhotse.cut import MonoCut

    return CutSet([MonoCut(str(id), 0, float(length), 0) for id, length in enumerate(lengths.tolist())])


def lhotse_sampler(cuts, buckets):
    from lhotse.dataset.sampling import DynamicBucketingSampler

    return DynamicBucketingSampler(
        cuts, max_cuts=BATCH, num_buckets=buckets, shuffle=True, seed=1, world_size=1, rank=0
    )


def lhotse(lengths, side):
    import numpy as np

    for batch in lhotse_sampler(cuts_of(lengths), BUCKETS[side]):
        yield np.array([int(cut.duration) for cut in batch])


def plan_waste(side, kind, n):
    """Padded tokens over tokens in an epoch."""
    if lacking(side):
        return lacking(side)
    lengths = LENGTHS[kind](n)
    sides = {"ours": ours, "random": at_random, "transformers": transformers}
    padded = tokens = rows = batches = 0
    for held in sides[side](lengths) if side in sides else lhotse(lengths, side):
        padded += held.size * int(held.max())
        tokens += int(held.sum())
        rows, batches = rows + held.size, batches + 1
    if (rows, tokens) != (lengths.size, int(lengths.sum())):
        raise SystemExit(f"{side}: {rows} samples of {lengths.size} in the epoch")
    return {"waste": padded / tokens, "batches": batches, "n": rows}


# --- a step ---


def made(side, n):
    """A plan of batches of 512 ids (rows, of packed ones) about n samples."""
    import numpy as np

    from detdata import Plan, Shuffle

    if side in ("bucket", "bucket_tokens"):
        from detdata.plans.bucket_plan import BucketPlan

        lengths = lognormal(n)
        if side == "bucket":
            return BucketPlan(lengths, IDS)
        return BucketPlan(lengths, max_tokens=IDS * int(lengths.mean()), oversized="clip")
    if side in ("concat", "best_fit"):
        from detdata.plans.pack_plan import PackPlan

        return PackPlan(lognormal(n, 6.0), SEQ_LEN, min(IDS, n // 8), method=side)
    if side == "mixture":
        from detdata.orders.mixture import Mixture

        weights = {"web": 0.5, "code": 0.3, "books": 0.15, "math": 0.05}
        return Plan(Mixture({name: Shuffle(n, k) for k, name in enumerate(weights)}, weights, size=n), IDS)
    if side == "weighted":
        from detdata.orders.weighted import Weighted

        return Plan(Weighted(np.random.default_rng(0).random(n)), IDS)
    if side == "groups":
        from detdata.orders.groups import GroupShuffle

        return Plan(GroupShuffle(np.arange(n) * 7919 % (n // 50), IDS // 4, 4), IDS)
    return Plan(Shuffle(n), IDS)


def plan_step(side, n, repeat):
    """CPU time of the ids of random steps: of one epoch, and each of another one."""
    import numpy as np

    plan = made(side, n)
    rng = np.random.default_rng(2)

    rows = []

    def spent(step):
        begun = time.process_time()
        ids = plan.batch(step).ids.tolist()
        took = time.process_time() - begun
        rows.append(len(ids))
        return took

    spent(0)
    first, last = plan.first_step(3), plan.first_step(4)
    within = [spent(int(step)) for step in rng.integers(first, last, repeat)]
    others = [plan.first_step(int(epoch)) + 1 for epoch in rng.integers(5, 1000, max(1, repeat // 8))]
    return {
        "step_s": median(within[1:] or within),
        "epoch_s": median(spent(step) for step in others),
        "rows": sum(rows) / len(rows),
    }


def peak_mib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def plan_build(side, n):
    """CPU time of a plan about n lengths, and what its making adds to the memory of the process at most."""
    import numpy as np

    from detdata.plans.bucket_plan import BucketPlan
    from detdata.plans.pack_plan import PackPlan

    lengths = np.empty(n, dtype=np.int32)
    for first in range(0, n, 2**18):  # so that the making of the lengths isn't the peak
        lengths[first : first + 2**18] = lognormal(min(2**18, n - first))
    PackPlan([5, 3], 4, 1), BucketPlan([5, 3], 1)  # what is imported late
    before, begun = peak_mib(), time.process_time()
    plan = BucketPlan(lengths, IDS) if side == "bucket" else PackPlan(lengths, SEQ_LEN, min(IDS, n // 64), method=side)
    plan.batch(0)
    return {"build_s": time.process_time() - begun, "bytes": max(0.0, peak_mib() - before) * 2**20 / n}


# --- a resume ---


def plan_resume(side, n, at):
    """CPU time from a saved state to the first batch, at a part of an epoch. What both need at the start is there."""
    if lacking(side):
        return lacking(side)
    lengths = lognormal(n)
    if side == "ours":
        from detdata.plans.bucket_plan import BucketPlan

        plan = BucketPlan(lengths, BATCH)
        spec, consumed = plan.spec(), plan.consumed(int(plan.steps() * at))
        begun = time.process_time()
        again = BucketPlan.from_spec(spec, lengths)
        again.batch(again.step(consumed))
        return {"resume_s": time.process_time() - begun}
    cuts = cuts_of(lengths)
    sampler = lhotse_sampler(cuts, BUCKETS[side])
    for _ in islice(sampler, int(n / BATCH * at)):
        pass
    state = sampler.state_dict()
    begun = time.process_time()
    again = lhotse_sampler(cuts, BUCKETS[side])
    again.load_state_dict(state)
    next(iter(again))
    return {"resume_s": time.process_time() - begun}


CASES = {case.__name__: case for case in (plan_waste, plan_step, plan_build, plan_resume)}
