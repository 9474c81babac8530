"""The rows of the result: which cases are run for each, in which order, and what is compared with what.

Sides that are compared are measured in turn (ours, theirs, ours, theirs …). A row holds each side's median, and the
median of the rounds' own ratios: on a machine whose speed moves, both sides of a round have met much the same one.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import sub, truediv
from statistics import median


@dataclass
class Row:
    """One comparison. Smaller is better in every unit that is used here."""

    id: str
    what: str
    unit: str
    ours: float
    base: float | None = None  # of what a user would run otherwise; None where there is no such thing
    base_name: str = ""
    note: str = ""
    budget: dict[str, float] | None = None
    met: bool | None = None  # None: there is no budget
    paired: float | None = None  # the median of the rounds' ratios

    @property
    def ratio(self):
        """Ours / theirs: below 1 we cost less."""
        if self.paired is not None:
            return self.paired
        return None if not self.base else self.ours / self.base

    def judge(self, budget):
        """budget: {"ratio": …} against the base, {"value": …} in the row's unit, or both."""
        self.budget = budget
        if budget is not None:
            self.met = all(
                found is not None and found <= budget[key]
                for key, found in (("ratio", self.ratio), ("value", self.ours))
                if key in budget
            )

    def verdict(self):
        """Say the target and whether it is met."""
        if not self.budget:
            return "none"
        limits = [
            f"at most {self.budget[key]:.3g}{'x' if key == 'ratio' else f' {self.unit}'}"
            for key in ("ratio", "value")
            if key in self.budget
        ]
        return f"{' and '.join(limits)}: {'met' if self.met else 'NOT MET'}"


@dataclass(frozen=True)
class Setting:
    """How much is measured."""

    full: bool = False
    repeat: int = 3
    warm: int = 20
    sizes: tuple[int, ...] = (10**6, 10**7, 10**8)  # both sides
    own_sizes: tuple[int, ...] = (10**9, 10**12)  # where everything O(n) ends
    epoch: int = 10**7
    epoch_repeat: int = 7
    loader: int = 25_600
    loader_slow: int = 12_800  # samples of the augmenting dataset
    loader_repeat: int = 11
    hash_large: tuple[int, int] = (4, 2**30)  # files, and bytes of each
    hash_small: tuple[int, int] = (100_000, 8192)
    hash_rows: int = 180_000  # of a table
    checkpoint: tuple[int, int] = (768, 12)  # width and layers of the model
    corpus_rows: int = 1_000_000
    plan_lengths: int = 200_000  # whose padding is compared
    plan_samples: int = 10**6  # of the plans whose steps are timed
    plan_build: int = 10**7

    @staticmethod
    def of(repeat, *, full):
        return Setting(full=full, repeat=repeat, epoch_repeat=repeat + 4, loader_repeat=repeat + 8)

    @staticmethod
    def smoke():
        return Setting(
            repeat=1,
            warm=1,
            sizes=(100_000,),
            own_sizes=(10**12,),
            epoch=100_000,
            epoch_repeat=1,
            loader=1280,
            loader_slow=640,
            loader_repeat=1,
            hash_large=(2, 5 * 2**20),
            hash_small=(200, 8192),
            hash_rows=2000,
            checkpoint=(32, 2),
            corpus_rows=2000,
            plan_lengths=3000,
            plan_samples=30_000,
            plan_build=30_000,
        )


def power(n):
    """10^7 where n is a power of ten."""
    digits = len(str(n)) - 1
    return f"10^{digits}" if n == 10**digits else f"{n:,}"


class Rounds:
    """What a side answered, round by round."""

    def __init__(self):
        self.answers = []

    @property
    def missing(self):
        """The package that isn't installed, or None."""
        return self.answers[0].get("missing") if self.answers else None

    def median(self, name):
        return median(answer[name] for answer in self.answers)

    def against(self, base, name, compare=truediv):
        """The median of the rounds' comparisons with another side."""
        return median(compare(a[name], b[name]) for a, b in zip(self.answers, base.answers, strict=True))


def in_turn(run, repeat, cases):
    """Run each (key, name, arguments) `repeat` times in turn: {key: Rounds}; a missing side is asked once."""
    found = {key: Rounds() for key, _, _ in cases}
    for _ in range(repeat):
        for key, name, arguments in cases:
            if not found[key].missing:
                found[key].answers.append(run(name, **arguments))
    return found


def missing(row_id, what, unit, ours, side):
    return Row(row_id, what, unit, ours, note=f"{side.missing} is not installed")


def starts(run, setting, at):
    name = "resume" if at else "start"
    verb = "resume at 90 % of an epoch" if at else "start"
    for n in (*setting.sizes, *setting.own_sizes):
        own = {"side": "ours", "n": n, "at": at, "repeat": setting.warm}
        cases = [("ours", "start", own)]
        heavy = n > 5 * 10**7
        if n in setting.sizes:
            sides = ("grain",) if heavy and not setting.full else ("torch", "torchdata", "grain")
            cases += [(side, "start", {"side": side, "n": n, "at": at}) for side in sides]
        answers = in_turn(run, 1 if heavy and setting.full else setting.repeat, cases)
        ours = answers["ours"]
        first, warm = ours.median("first_s") * 1e3, ours.median("warm_s") * 1e3
        memory = max(ours.median("rss_mib"), ours.median("traced_mib"))
        what = f"{verb}, n = {power(n)}"
        for side in ("torch", "torchdata", "grain"):
            if side not in answers:
                continue
            answer = answers[side]
            row_id = f"{name}/{power(n)}/{side}"
            if answer.missing:
                yield missing(row_id, what, "ms", first, answer)
            else:
                theirs = answer.median("first_s") * 1e3
                yield Row(row_id, what, "ms", first, theirs, side, paired=ours.against(answer, "first_s"))
                yield Row(f"{row_id}/memory", f"{what}: extra memory", "MiB", memory, answer.median("rss_mib"), side)
        reason = "" if n in setting.sizes else "nothing of O(n) fits here"
        yield Row(f"{name}/{power(n)}", what, "ms", first, note=reason)
        yield Row(f"{name}/{power(n)}/warm", f"{what}, the process having done it before", "ms", warm)
        yield Row(f"{name}/{power(n)}/memory", f"{what}: extra memory", "MiB", memory)


def epochs(run, setting):
    n = setting.epoch
    for world in (1, 8):
        sides = ("ours", "ours_drop_in", "torch", "torchdata")
        cases = [(side, "epoch", {"side": side, "n": n, "world": world}) for side in sides]
        answers = in_turn(run, setting.epoch_repeat, cases)
        for side, named in (("ours", "BatchSampler"), ("ours_drop_in", "DistributedSampler")):
            spent, each = answers[side].median("epoch_s") * 1e3, answers[side].median("ns_per_id")
            what = f"a rank's ids of a whole epoch as Python ints, n = {power(n)}, world size {world}, {named}"
            for base in ("torch", "torchdata"):
                row_id = f"epoch/{named}/W{world}/{base}"
                theirs = answers[base]
                if theirs.missing:
                    yield missing(row_id, what, "ms", spent, theirs)
                else:
                    note = f"{each:.0f} and {theirs.median('ns_per_id'):.0f} ns an id"
                    paired = answers[side].against(theirs, "epoch_s")
                    yield Row(row_id, what, "ms", spent, theirs.median("epoch_s") * 1e3, base, note, paired=paired)
    for block in (512, 8192, 65536):
        arguments = {"n": n, "block": block, "count": min(n, 64 * block)}
        answer = in_turn(run, setting.repeat, [("take", "take", arguments)])["take"]
        spent = answer.median("ns_per_id")
        yield Row(f"epoch/take/{block}", f"Shuffle.take in NumPy blocks of {block}", "ns an id", spent)


def loaders(run, setting):
    for dataset in ("trivial", "augmenting"):
        for workers in (0, 2):
            sides = ["torch", "ours_off", "ours_batch", "ours_sample", "torchdata"]
            if dataset == "trivial" and not workers:
                sides += ["torch_seeded", "grain"]
            n = setting.loader_slow if dataset == "augmenting" else setting.loader
            answers = {side: Rounds() for side in sides}
            arguments = {"sides": sides, "dataset": dataset, "workers": workers, "n": n}
            for side, runs in run("loader", repeat=setting.loader_repeat, **arguments).items():
                answers[side].answers = runs
            base, at = answers["torch"], f"{dataset} dataset, {workers} workers"
            theirs = base.median("cpu_us")
            for side in sides[1:4]:
                ours, kind = answers[side], side.removeprefix("ours_")
                spent, ratio = ours.median("cpu_us"), ours.against(base, "cpu_us")
                more = ours.against(base, "cpu_us", sub)
                what = f'{at}: Loader with randomness="{kind}"'
                note = f"{more:+.1f} µs a sample; throughput {1 / ratio:.2f} of torch's"
                row_id = f"loader/{dataset}/W{workers}/{kind}"
                yield Row(row_id, what, "µs a sample", spent, theirs, "torch", note, paired=ratio)
                if kind == "sample":
                    yield Row(f"loader/{dataset}/W{workers}/extra", f"{what}: extra", "µs a sample", max(more, 0.0))
            for side in sides[4:]:
                row_id, what = f"loader/{dataset}/W{workers}/{side}", f'{at}: Loader with randomness="batch"'
                ours, other = answers["ours_batch"], answers[side]
                spent = ours.median("cpu_us")
                if other.missing:
                    yield missing(row_id, what, "µs a sample", spent, other)
                else:
                    paired, name = ours.against(other, "cpu_us"), side.replace("_", ", ")
                    yield Row(row_id, what, "µs a sample", spent, other.median("cpu_us"), name, paired=paired)


GROUPS = {
    "start": lambda run, setting: starts(run, setting, 0.0),
    "resume": lambda run, setting: starts(run, setting, 0.9),
    "epoch": epochs,
    "loader": loaders,
}
