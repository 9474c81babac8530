"""The rows of the group "plans": padding, the ids of a step of every plan, the building of plans, a resume."""

from __future__ import annotations

from rows import Row, in_turn, missing, power

NAMES = {
    "random": "random batches",
    "transformers": "transformers, group_by_length",
    "lhotse": "lhotse, dynamic buckets",
    "lhotse64": "lhotse, 64 dynamic buckets",
}
KINDS = {"lognormal": "log-normal lengths", "lines": "lines of Python's standard library"}
PLANS = {
    "plan": "Plan",
    "bucket": "BucketPlan, batch_size",
    "bucket_tokens": "BucketPlan, max_tokens",
    "concat": "PackPlan, concat",
    "best_fit": "PackPlan, best_fit",
    "mixture": "Mixture of 4",
    "weighted": "Weighted",
    "groups": "GroupShuffle",
}


def plans(run, setting):
    yield from wastes(run, setting.plan_lengths)
    yield from steps(run, setting)
    yield from builds(run, setting)
    yield from resumes(run, setting)


def wastes(run, n):
    for kind, named in KINDS.items():
        mine = run("plan_waste", side="ours", kind=kind, n=n)
        what = f"padded tokens / tokens, {named}, batches of 64, n = {mine['n']:,}"
        yield Row(f"plans/waste/{kind}", what, "times", mine["waste"])
        for side, name in NAMES.items():
            theirs = run("plan_waste", side=side, kind=kind, n=n)
            row_id = f"plans/waste/{kind}/{side}"
            if "missing" in theirs:
                yield Row(row_id, what, "times", mine["waste"], note=f"{theirs['missing']} is not installed")
            else:
                note = "" if side == "random" else f"{theirs['batches']:,} batches, ours {mine['batches']:,}"
                yield Row(row_id, what, "times", mine["waste"], theirs["waste"], name, note)


def steps(run, setting):
    n = setting.plan_samples
    arguments = {"n": n, "repeat": setting.warm * 10}
    found = in_turn(run, setting.repeat, [(side, "plan_step", {"side": side, **arguments}) for side in PLANS])
    for side, name in PLANS.items():
        answer = found[side]
        what = f"{name}: the ids of a random step, {power(n)} samples"
        note = f"{answer.median('rows'):.0f} rows; {answer.median('epoch_s') * 1e3:.2f} ms in an epoch of its own"
        yield Row(f"plans/step/{side}", what, "ms", answer.median("step_s") * 1e3, note=note)


def builds(run, setting):
    n = setting.plan_build
    sides = ("bucket", "concat", "best_fit")
    found = in_turn(run, 1, [(side, "plan_build", {"side": side, "n": n}) for side in sides])
    for side in sides:
        answer, what = found[side], f"{PLANS[side]}: made from {power(n)} lengths, first batch"
        yield Row(f"plans/build/{side}", what, "s", answer.median("build_s"))
        yield Row(f"plans/build/{side}/memory", f"{what}: memory beside them", "bytes each", answer.median("bytes"))


def resumes(run, setting):
    n = setting.plan_lengths
    cases = [(side, "plan_resume", {"side": side, "n": n, "at": 0.9}) for side in ("ours", "lhotse")]
    found = in_turn(run, setting.repeat, cases)
    mine, theirs = found["ours"], found["lhotse"]
    what = f"a bucketed plan of {n:,} samples made anew, first batch at 90 %"
    spent = mine.median("resume_s") * 1e3
    if theirs.missing:
        yield missing("plans/resume/lhotse", what, "ms", spent, theirs)
    else:
        base, paired = theirs.median("resume_s") * 1e3, mine.against(theirs, "resume_s")
        yield Row("plans/resume/lhotse", what, "ms", spent, base, NAMES["lhotse"], paired=paired)


GROUPS = {"plans": plans}
