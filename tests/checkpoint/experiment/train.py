"""A small training run, started by torchrun; the same command starts it and goes on with it: `train.py --help`.

A byte model in float64 with dropout, AdamW, warm-up and cosine; a Loader with random augmentation; a checkpoint every
few steps. Each process adds a line of JSON to `OUT/rank<r>.jsonl` for its start, each step and its end, so that a test
can compare runs bit for bit, whatever becomes of the process.

--kill step:R:S:U    rank R is killed U microseconds into global step S (R `all`: every rank, and torchrun)
--kill write:R:N     rank R is killed in its N-th write to a checkpoint, half of the bytes being written
--kill slow:R:U      nobody is; rank R sleeps U microseconds in each step, so that others find the time

Several of them: the first one is for the first start, the next for torchrun's first restart of the ranks, and so on.
"""

import argparse
import itertools
import json
import os
import random
import signal
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import torch
import xxhash

from detdata import Loader, Plan, Shuffle, Topology
from detdata.checkpoint import Checkpointer, SavePolicy, files

CONTEXT, SAMPLES, BATCH, STEPS, SAVE_EVERY = 8, 44, 4, 40, 4  # 11 steps an epoch
WIDTH = 24


class Text(torch.utils.data.Dataset):
    """Contexts of bytes and the byte that follows; each time one byte of the context is another one, at random."""

    def __init__(self):
        words = np.random.default_rng(8).integers(0, 256, 60, dtype=np.uint8).tobytes()
        self.text = (words * 20)[: SAMPLES * 13 + CONTEXT + 1]

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        row = torch.tensor(list(self.text[index * 13 : index * 13 + CONTEXT + 1]))
        row[random.randrange(CONTEXT)] = np.random.randint(256)
        return row[:-1], row[-1], torch.randn(CONTEXT * WIDTH, dtype=torch.float64)


class Model(torch.nn.Module):
    def __init__(self, dropout):
        super().__init__()
        self.bytes = torch.nn.Embedding(256, WIDTH)
        self.hidden = torch.nn.Linear(CONTEXT * WIDTH, WIDTH)
        self.dropout = torch.nn.Dropout(dropout)
        self.out = torch.nn.Linear(WIDTH, 256)

    def forward(self, context, noise):
        inner = self.bytes(context).flatten(1) + 0.1 * noise
        return self.out(self.dropout(torch.nn.functional.gelu(self.hidden(inner))))


def build(arm, rank):
    """Return the parts of the run. arm: "ddp"; "fsdp2"; "alone", what fsdp2 is compared with."""
    torch.manual_seed(1)
    # A mask of dropout is drawn by each rank for its own rows: another number of ranks draws others.
    model = Model(0.2 if arm == "ddp" else 0.0).double()
    for stream in (random.seed, np.random.seed, torch.manual_seed):
        stream(100 + rank)
    if arm == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(model)
    elif arm == "fsdp2":
        from torch.distributed.fsdp import fully_shard

        for layer in (model.hidden, model.out, model):
            fully_shard(layer)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    warm_up = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=6)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS - 6)
    scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, [warm_up, cosine], [6])
    loader = Loader(Text(), Plan(Shuffle(SAMPLES, seed=5), BATCH), Topology.detect())
    return {"model": model, "optimizer": optimizer, "scheduler": scheduler, "loader": loader}


def whole(value):
    return value.full_tensor() if hasattr(value, "full_tensor") else value


def state(parts):
    """Parameters and moments by name, each whole. Collective under FSDP2."""
    found = {}
    for name, parameter in parts["model"].named_parameters():
        found[name] = whole(parameter).detach()
        for key, value in parts["optimizer"].state[parameter].items():
            found[f"{name}/{key}"] = whole(value)
    return found


def digests(parts):
    """Digests of parameters and moments, of the learning rate, and of this process's random states."""
    tensors = xxhash.xxh3_128()
    for name, value in sorted(state(parts).items()):
        tensors.update(name.encode() + value.contiguous().numpy().tobytes())
    kind, words, *rest = np.random.get_state()
    streams = repr((random.getstate(), kind, words.tolist(), rest)).encode() + torch.get_rng_state().numpy().tobytes()
    rate = parts["optimizer"].param_groups[0]["lr"]
    return {"state": tensors.hexdigest(), "rate": float(rate).hex(), "random": xxhash.xxh3_128_hexdigest(streams)}


class Log:
    """Lines that are with the system when `write` returns: a kill loses none."""

    def __init__(self, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        self.file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(self, **record):
        os.write(self.file, (json.dumps(record) + "\n").encode())


def arm_kill(kills, rank, log):
    """Return what to call at the start of each step; the process dies as `kills` has it for this restart."""
    restart = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    kind, who, *numbers = kills[restart].split(":") if restart < len(kills) else ("none", "nobody")
    if who not in ("all", str(rank)):
        return lambda step: None
    if kind == "write":
        die_in_write(int(numbers[0]), log)
        return lambda step: None
    if kind == "slow":
        return lambda step: time.sleep(int(numbers[0]) / 1e6)
    at, delay, torchrun = int(numbers[0]), int(numbers[1]) / 1e6, os.getppid()

    def die():
        time.sleep(delay)
        if who == "all" and rank == 0:
            os.kill(torchrun, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    def begin(step):
        if step == at:
            log.write(killed=f"{delay * 1e3:.1f} ms into step {step}")
            threading.Thread(target=die).start()

    return begin


def die_in_write(number, log):
    put, done = files.HashingFile._put, itertools.count(1)

    def put_or_die(self, view):
        if next(done) == number:
            put(self, view[: len(view) // 2])
            log.write(killed=f"in a save, writing {Path(self._file.name).name}")
            os.kill(os.getpid(), signal.SIGKILL)
        put(self, view)

    files.HashingFile._put = put_or_die


def train(parts, checkpointer, log, begin):
    for context, target, noise in parts["loader"].until(STEPS):
        step = parts["loader"].progress.global_step
        begin(step)
        parts["optimizer"].zero_grad()
        loss = torch.nn.functional.cross_entropy(parts["model"](context, noise), target)
        loss.backward()
        parts["optimizer"].step()
        parts["scheduler"].step()
        log.write(step=step, loss=loss.item().hex(), **digests(parts))
        if checkpointer is not None:
            checkpointer.step(loss=loss)


def run(options, rank):
    torch.set_num_threads(1)
    log = Log(Path(options.out) / f"rank{rank}.jsonl")
    parts = build(options.arm, rank)
    policy = SavePolicy(latest_every_steps=options.save_every, periodic_every_steps=3 * options.save_every)
    with Checkpointer(options.root, policy=policy, background=options.background, timeout_seconds=30, **parts) as saver:
        progress = saver.resume(accept=options.accept)
        log.write(start=0 if progress is None else progress.global_step, **digests(parts))
        try:
            train(parts, saver, log, arm_kill(options.kill, rank, log))
        except SystemExit as end:
            log.write(exit=end.code)
            raise
    torch.save(state(parts), Path(options.out) / f"final{rank}.pt")
    log.write(exit=0)


def weights_only(out, folder, rank):
    """Train as many do after a kill: the weights and the position are the saved ones, all else is fresh."""
    log = Log(Path(out) / f"rank{rank}.jsonl")
    parts = build("ddp", rank)
    parts["model"].module.load_state_dict(torch.load(Path(folder) / "model.pt"))
    parts["loader"].resume(json.loads((Path(folder) / "progress.json").read_text())["consumed_samples"])
    train(parts, None, log, lambda step: None)


def options_of(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", help="the folder of checkpoints")
    parser.add_argument("out", help="the folder of the lines")
    parser.add_argument("--arm", choices=("ddp", "fsdp2", "alone"), default="ddp")
    parser.add_argument("--background", action="store_true")
    parser.add_argument("--accept", nargs="*", default=())
    parser.add_argument("--save-every", type=int, default=SAVE_EVERY)
    parser.add_argument("--kill", nargs="*", default=())
    return parser.parse_args(arguments)


def main():
    warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view tensor")
    torch.distributed.init_process_group("gloo")
    run(options_of(sys.argv[1:]), torch.distributed.get_rank())
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
