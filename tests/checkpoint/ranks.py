"""Run a function in several processes of a gloo process group: what torchrun does, with less waiting."""

import datetime as dt
import multiprocessing
import os
import pickle
import socket
import traceback
from pathlib import Path

import torch
import torch._dynamo  # DistributedDataParallel would import it in every process, for seconds

SECONDS = 90


def in_ranks(size, work, folder, *arguments, killed=()):
    """Call `work(rank, size, *arguments)` in `size` forked processes; return what each gave, or its exit code.

    A rank in `killed` is expected to die and gives its exit code. An exception in any other one fails the test.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = multiprocessing.get_context("fork")
    processes = [
        context.Process(target=_rank, args=(rank, size, port, work, folder, arguments)) for rank in range(size)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(SECONDS)
    late = [rank for rank, process in enumerate(processes) if process.is_alive()]
    for process in processes:
        process.kill()
        process.join()
    assert not late, f"ranks {late} did not end within {SECONDS} s"
    results, errors = [], []
    for rank, process in enumerate(processes):
        answer = folder / f"rank{rank}"
        if rank in killed:
            results.append(process.exitcode)
        elif not answer.exists():
            errors.append(f"rank {rank} ended with exit code {process.exitcode} and no answer")
        else:
            kind, value = pickle.loads(answer.read_bytes())
            results.append(value)
            if kind == "error":
                errors.append(f"rank {rank}:\n{value}")
    assert not errors, "\n".join(errors)
    return results


def _rank(rank, size, port, work, folder, arguments):
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(size))
    code = 0
    try:
        torch.distributed.init_process_group("gloo", rank=rank, world_size=size, timeout=dt.timedelta(seconds=SECONDS))
        answer = ("value", work(rank, size, *arguments))
    except SystemExit as error:
        answer, code = ("value", ("exit", error.code)), error.code
    except BaseException:
        answer, code = ("error", traceback.format_exc()), 1
    (folder / f".rank{rank}").write_bytes(pickle.dumps(answer))
    (folder / f".rank{rank}").rename(folder / f"rank{rank}")
    os._exit(code)
