"""Hand-made runs: four steps of two samples, without any training."""

from dataclasses import replace

import numpy as np

from detdata.demo.children import Kill
from detdata.demo.evidence import Evidence, Step
from detdata.demo.settings import SMALL

USES = {1: [(0, 0), (0, 1)], 2: [(0, 2), (0, 3)], 3: [(1, 3), (1, 0)], 4: [(1, 1), (1, 2)]}
LOSSES = {1: 4.0, 2: 3.0, 3: 2.5, 4: 2.25}
KILL = Kill(step=4, signal=9, workers=2)
SETTINGS = replace(SMALL, kill_step=7)


def run(arm, *, first=1, last=4, losses=LOSSES, uses=USES, parameters=(1.0, 2.0), held_out=2.0, finished=True):
    """Steps first … last of a run that has come to its end."""
    steps = {n: Step(n, losses[n], 0.1, tuple(uses[n])) for n in range(first, last + 1)}
    if not finished:
        return Evidence(arm, steps)
    values = np.array(parameters, np.float32)
    about = {"device": "cpu", "torch": "2", "parameters": len(values)}
    return Evidence(arm, steps, first - 1, held_out, f"xxh3-128:{values.tobytes().hex()}", values, about)


def runs(**changes):
    """Evidence of all runs, killed in step 4, checkpoint of step 2; each resume exact where nothing else is given."""
    made = {
        "straight": run("straight"),
        "interrupted": run("interrupted", finished=False),
        **{arm: run(arm, first=3) for arm in ("weights", "no-position", "detdata")},
    }
    return {**made, **changes}
