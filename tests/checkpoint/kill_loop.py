"""Fork savers, SIGKILL each at a seeded moment, and look at what is left: `kill_loop.py FOLDER KILLS [SEED]`.

A line for each kill as JSON: mix, published (the last step whose save had returned), found (the step resumed from),
whole (every number of the model is of that step), left (what the kill left behind), clean (the next save removed it).
Then a line of counts. Exits with 1 if one was torn, lost or not cleaned up.
"""

import json
import logging
import os
import random
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

import torch

from detdata.checkpoint import Checkpointer, SavePolicy

SIZE = 200  # a model of 160 kB
MIXES = {"latest": ["latest"], "periodic": ["periodic"], "both": ["periodic", "latest"]}
KEEP = 2
NOTHING = {"found": None, "whole": False, "left": [], "clean": False}


def run_of(root):
    model = torch.nn.Linear(SIZE, SIZE)
    return model, Checkpointer(root, model=model, policy=SavePolicy(latest_every_steps=1 << 30, keep_periodic=KEEP))


def save_for_ever(root, kinds, pipe):
    model, checkpointer = run_of(root)
    while True:
        checkpointer.step()
        step = checkpointer.progress.global_step
        for parameter in model.parameters():
            torch.nn.init.constant_(parameter, float(step))
        for kind in kinds:
            checkpointer.save(kind)
            os.write(pipe, step.to_bytes(4, "big"))


def look(root, kinds, pipe):
    left = leftovers(root)
    model, checkpointer = run_of(root)
    step = checkpointer.resume().global_step
    whole = all((parameter == step).all().item() for parameter in model.parameters())
    checkpointer.step()
    checkpointer.save(kinds[0])
    clean = not leftovers(root) and len(list(root.glob("ckpt_step_*"))) <= KEEP + 1  # and what was resumed from
    os.write(pipe, json.dumps({"found": step, "whole": whole, "left": left, "clean": clean}).encode())


def leftovers(root):
    names = [path.name for path in root.iterdir()]
    marks = {".tmp-": [name.startswith(".tmp-") for name in names]}
    marks[".previous"] = [name.endswith(".previous") for name in names]
    return [mark for mark, found in marks.items() if any(found)]


def forked(work, *arguments):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            work(*arguments, writer)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    os.close(writer)
    return child, reader


def drain(reader):
    with os.fdopen(reader, "rb") as file:
        return file.read()


def kill_once(root, mix, delays):
    kinds = MIXES[mix]
    child, reader = forked(save_for_ever, root, kinds)
    first = os.read(reader, 4)  # from the first save on there is one to find
    begun = time.monotonic()
    second = os.read(reader, 4)
    duration = time.monotonic() - begun
    moment = delays.choice([delays.uniform(0.0, 2.0), abs(delays.gauss(1.0, 0.1))])  # half: about when it is published
    time.sleep(duration * moment)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    published = int.from_bytes((first + second + drain(reader))[-4:], "big")
    child, reader = forked(look, root, kinds)
    found = drain(reader)
    os.waitpid(child, 0)
    return {"mix": mix, "published": published, **NOTHING, **json.loads(found or "{}")}


def main(folder, kills, seed=20):
    torch.set_num_threads(1)
    logging.basicConfig(level=logging.INFO, handlers=[logging.NullHandler()])
    delays = random.Random(seed)
    rows = []
    for number in range(kills):
        root = Path(folder) / str(number)
        rows.append(kill_once(root, list(MIXES)[number % len(MIXES)], delays))
        print(json.dumps(rows[-1]), flush=True)
        shutil.rmtree(root)
    faults = [row for row in rows if outcome(row) in {"torn", "lost"} or not row["clean"]]
    print(counts(rows))
    return 1 if faults else 0


def outcome(row):
    """Which save was found: the one under way when the kill came, the one before it; or a fault."""
    if row["found"] is None or row["found"] < row["published"]:
        return "lost"
    if not row["whole"]:
        return "torn"
    return "newest" if row["found"] > row["published"] else "previous"


def counts(rows):
    found = Counter(outcome(row) for row in rows)
    left = Counter(name for row in rows for name in row["left"])
    return (
        f"{len(rows)} kills: found newest (it was being saved) {found['newest']}, found previous {found['previous']}, "
        f"torn = {found['torn']}, lost = {found['lost']}; left .tmp- {left['.tmp-']}, left .previous "
        f"{left['.previous']}, not cleaned up {sum(not row['clean'] for row in rows)}"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *map(int, sys.argv[2:])))
