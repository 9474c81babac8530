"""Cases of checkpoints: a model and its AdamW state saved and loaded, by us and by what a user would call otherwise.

Run by cases.py, each in a process of its own. Times are wall seconds, because the disk is part of them, with the CPU
seconds beside them; peak memory is what a process held at most above what it held before.
"""

from __future__ import annotations

import gc
import importlib.util
import os
import shutil
import sys
import time
import warnings
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
VOCABULARY = 24  # times the width: of a model of 768, some 18,000
NEEDS = {"accelerate": "accelerate", "lightning": "lightning"}


def build(width, layers, seed):
    """A model with the tensors of a GPT, and its AdamW: 1.2 GB in all at a width of 768 and 12 layers."""
    import torch

    torch.manual_seed(seed)
    shapes = [(VOCABULARY * width, width), (width, width)]
    shapes += [(3 * width, width), (width, width), (4 * width, width), (width, 4 * width)] * layers
    shapes += [(size * width,) for size in (3, 1, 4, 1, 1, 1, 1, 1)] * layers
    model = torch.nn.Module()
    for number, shape in enumerate(shapes):
        model.register_parameter(f"p{number}", torch.nn.Parameter(torch.empty(shape).normal_()))
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def train(model, optimizer):
    """One step, after which the optimizer has its state."""
    import torch

    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def tensors(model, optimizer):
    """All tensors of both, by name."""
    found = {f"model.{name}": tensor.detach() for name, tensor in model.named_parameters()}
    for name, parameter in model.named_parameters():
        found |= {f"{name}.{key}": value for key, value in optimizer.state[parameter].items()}
    return found


# --- sides: each saves into a folder of the given name, and loads from it ---


class Ours:
    def __init__(self, model, optimizer, folder):
        sys.path.insert(0, str(ROOT))
        from detdata import Checkpointer

        self.checkpointer = Checkpointer(folder / "root", model=model, optimizer=optimizer)
        self.saved = folder / "root" / "ckpt_latest"

    def save(self):
        self.checkpointer.save()

    def load(self):
        self.checkpointer.resume()


class Torch:
    """torch.save and fsync; a new file each time, as overwriting the only one would lose it."""

    def __init__(self, model, optimizer, folder):
        self.model, self.optimizer, self.saved = model, optimizer, folder / "checkpoint.pt"

    def save(self):
        import torch

        new = self.saved.with_suffix(".new")
        with new.open("wb") as file:
            torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}, file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.saved)

    def load(self):
        import torch

        state = torch.load(self.saved, map_location="cpu", weights_only=True, mmap=False)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])


class DCP:
    """torch.distributed.checkpoint, which syncs its files; a new folder each time."""

    def __init__(self, model, optimizer, folder):
        self.model, self.optimizer, self.saved = model, optimizer, folder / "checkpoint"

    def state(self):
        from torch.distributed.checkpoint.state_dict import get_state_dict

        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer}

    def save(self):
        import torch.distributed.checkpoint as dcp

        new = self.saved.with_suffix(".new")
        dcp.save(self.state(), storage_writer=dcp.FileSystemWriter(new, sync_files=True))
        shutil.rmtree(self.saved, ignore_errors=True)
        new.replace(self.saved)

    def load(self):
        import torch.distributed.checkpoint as dcp
        from torch.distributed.checkpoint.state_dict import set_state_dict

        state = self.state()
        dcp.load(state, checkpoint_id=self.saved)
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])


class Accelerate:
    """Accelerator.save_state, which syncs nothing."""

    def __init__(self, model, optimizer, folder):
        from accelerate import Accelerator

        self.accelerator = Accelerator(cpu=True)
        self.accelerator.prepare(model, optimizer)
        self.saved = folder / "checkpoint"

    def save(self):
        self.accelerator.save_state(str(self.saved))

    def load(self):
        self.accelerator.load_state(str(self.saved))


class Lightning:
    """Trainer.save_checkpoint, which syncs nothing."""

    def __init__(self, model, optimizer, folder):
        import lightning.pytorch as pl
        import torch

        class Module(pl.LightningModule):
            def __init__(self):
                super().__init__()
                self.inner = model

            def training_step(self, batch, index):
                return sum(parameter.sum() for parameter in model.parameters()) * 0.0

            def configure_optimizers(self):
                return optimizer

        self.module, self.optimizer, self.saved = Module(), optimizer, folder / "checkpoint.ckpt"
        switches = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
        off = dict.fromkeys(switches, False)
        self.trainer = pl.Trainer(max_steps=0, accelerator="cpu", devices=1, default_root_dir=folder, **off)
        self.trainer.fit(self.module, torch.utils.data.DataLoader(torch.zeros(1)))
        self.trainer.strategy.connect(self.module)
        self.trainer.strategy.optimizers = [optimizer]

    def save(self):
        self.trainer.save_checkpoint(self.saved)

    def load(self):
        state = self.trainer.strategy.load_checkpoint(self.saved, weights_only=True)
        self.trainer.strategy.load_model_state_dict(state)
        self.trainer.strategy.load_optimizer_state_dict(state)


SIDES = {"ours": Ours, "torch": Torch, "dcp": DCP, "accelerate": Accelerate, "lightning": Lightning}


# --- cases ---


def checkpoint_save(side, folder, width, layers, times=3):
    """Save one after another, each replacing the last; the first one isn't timed, and shows the peak memory."""
    if not_there(side):
        return {"missing": NEEDS[side]}
    model, optimizer, saver = prepared(side, folder, width, layers, seed=7)
    train(model, optimizer)
    gc.collect()
    memory = Peak()
    saver.save()
    memory = memory.mib()
    walls, cpus = [], []
    held = sum(tensor.nbytes for tensor in tensors(model, optimizer).values())
    for _ in range(times):
        os.sync()
        touch(held)
        wall, cpu = time.perf_counter(), time.process_time()
        saver.save()
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    size = sum(path.stat().st_size for path in [saver.saved, *saver.saved.rglob("*")] if path.is_file())
    return {"wall_s": median(walls), "cpu_s": median(cpus), "memory_mib": memory, "bytes": size, "tensors": held}


def checkpoint_load(side, folder, width, layers):
    """Load what checkpoint_save left into new objects; the files are in the page cache."""
    if not_there(side):
        return {"missing": NEEDS[side]}
    model, optimizer, loader = prepared(side, folder, width, layers, seed=8)
    for path in [loader.saved, *loader.saved.rglob("*")]:
        if path.is_file():
            with path.open("rb", buffering=0) as file:
                while file.read(2**24):
                    pass
    gc.collect()
    touch(3 * sum(parameter.nbytes for parameter in model.parameters()))
    memory, wall, cpu = Peak(), time.perf_counter(), time.process_time()
    loader.load()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    memory = memory.mib()
    found = tensors(model, optimizer)
    model, optimizer = build(width, layers, seed=7)
    train(model, optimizer)
    for name, tensor in tensors(model, optimizer).items():
        if not (tensor == found[name]).all():
            raise SystemExit(f"{side} loaded another {name} than was saved")
    return {"wall_s": wall, "cpu_s": cpu, "memory_mib": memory}


def checkpoint_background(side, folder, width, layers, times=5):
    """How long training stands still for a save behind it, from the second one on; and what it is held against."""
    import torch

    model, optimizer, _ = prepared("torch", folder, width, layers, seed=7)
    train(model, optimizer)
    place = Path(folder, f"background-{side}")
    place.mkdir(exist_ok=True)
    begin, finish = BACKGROUND[side](model, optimizer, place)
    walls = []
    with torch.no_grad():
        for _ in range(times + 1):
            os.sync()
            wall = time.perf_counter()
            waited = begin()
            walls.append(time.perf_counter() - wall)
            finish(waited)
    return {"wall_s": median(walls[1:]), "first_s": walls[0]}


def _ours_behind(model, optimizer, place):
    from detdata import Checkpointer

    checkpointer = Checkpointer(place, model=model, optimizer=optimizer, background=True)
    return checkpointer.save, lambda _: checkpointer.wait()


def _torch_unsynced(model, optimizer, place):
    import torch

    def save():
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, place / "checkpoint.pt")

    return save, lambda _: (place / "checkpoint.pt").unlink()


def _copy(model, optimizer, _place):
    import torch

    sources = list(tensors(model, optimizer).values())
    targets = [torch.empty_like(tensor) for tensor in sources]

    def copy():
        for target, source in zip(targets, sources, strict=True):
            target.copy_(source)

    return copy, lambda _: None


def _dcp_behind(model, optimizer, place):
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    state = DCP(model, optimizer, place)
    return (
        lambda: dcp.async_save(state.state(), checkpoint_id=place / "checkpoint"),
        lambda future: future.result(),
    )


BACKGROUND = {"ours": _ours_behind, "torch": _torch_unsynced, "copy": _copy, "dcp": _dcp_behind}


def not_there(side):
    return side in NEEDS and importlib.util.find_spec(NEEDS[side]) is None


def prepared(side, folder, width, layers, seed):
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    model, optimizer = build(width, layers, seed)
    place = Path(folder, side)
    place.mkdir(exist_ok=True)
    return model, optimizer, SIDES[side](model, optimizer, place)


def touch(size):
    """Use and free memory: a virtual machine fetches what was never used, or not for seconds, page by page."""
    import numpy as np

    np.ones(size + size // 4, np.uint8)


class Peak:
    """The peak memory of this process from now on, above what it holds now."""

    def __init__(self):
        try:
            Path("/proc/self/clear_refs").write_text("5")  # the peak is what it holds now
            self.before = self.status("VmRSS")
        except OSError:
            self.before = None

    def mib(self):
        return 0.0 if self.before is None else max(self.status("VmHWM") - self.before, 0.0)

    def status(self, name):
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) / 1024


CASES = {case.__name__: case for case in (checkpoint_save, checkpoint_load, checkpoint_background)}
