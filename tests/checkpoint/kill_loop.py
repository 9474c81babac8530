"""Fork savers, SIGKILL each at a seeded moment, say what is found: `published found whole|torn clean|dirty`."""

import os
import random
import signal
import sys
import time
import traceback
from pathlib import Path

import torch

from detdata.checkpoint import Checkpointer

SIZE = 700  # a model of 2 MB


def stamp(model, step):
    for parameter in model.parameters():
        torch.nn.init.constant_(parameter, float(step))


def save_for_ever(root, pipe):
    model = torch.nn.Linear(SIZE, SIZE)
    checkpointer = Checkpointer(root, model=model)
    while True:
        stamp(model, checkpointer.progress.global_step + 1)
        checkpointer.step()
        checkpointer.save()
        os.write(pipe, checkpointer.progress.global_step.to_bytes(4, "big"))


def look(root, pipe):
    model = torch.nn.Linear(SIZE, SIZE)
    checkpointer = Checkpointer(root, model=model)
    step = checkpointer.resume().global_step
    whole = all((parameter == step).all() for parameter in model.parameters())
    checkpointer.save()
    clean = sorted(path.name for path in root.iterdir()) == [".lock", "ckpt_latest"]
    os.write(pipe, f"{step} {'whole' if whole else 'torn'} {'clean' if clean else 'dirty'}".encode())


def forked(work, root):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            work(root, writer)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(writer)
    return child, reader


def drain(reader):
    with os.fdopen(reader, "rb") as file:
        return file.read()


def main(folder, tries):
    torch.set_num_threads(1)
    delays = random.Random(20)
    for number in range(tries):
        root = Path(folder) / str(number)
        child, reader = forked(save_for_ever, root)
        first = os.read(reader, 4)  # from the first save on there is one to find
        time.sleep(delays.uniform(0.0, 0.15))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        published = (first + drain(reader))[-4:]
        child, reader = forked(look, root)
        os.waitpid(child, 0)
        print(int.from_bytes(published, "big"), drain(reader).decode())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
