"""Engines for tests: one with DeepSpeed's documented interface, and DeepSpeed's own on the CPU."""

import os
import sys
import warnings
from pathlib import Path

import torch


def small_model(dropout=0.25):
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(dropout), torch.nn.Linear(8, 1))


class StandIn(torch.nn.Module):
    """Saves and loads as DeepSpeed documents it: collective, each rank its part of the optimizer, files of pickle."""

    def __init__(self, module, *, zero_stage=1):
        super().__init__()
        self.module = module
        self.optimizer = torch.optim.AdamW(module.parameters(), lr=0.05)
        self.zero_stage, self.calls, self.more = zero_stage, [], []
        self.there = torch.distributed.is_initialized()
        self.rank = torch.distributed.get_rank() if self.there else 0

    def forward(self, batch):
        return self.module(batch)

    def zero_optimization_stage(self):
        return self.zero_stage

    def backward(self, loss):
        loss.backward()

    def step(self):
        for parameter in self.module.parameters():
            if self.there:
                torch.distributed.all_reduce(parameter.grad)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def save_checkpoint(self, save_dir, tag=None, client_state={}, save_latest=True):  # noqa: B006 - DeepSpeed's own
        self.calls.append(("save", tag, client_state, save_latest))
        folder = Path(save_dir) / tag
        folder.mkdir(parents=True, exist_ok=True)
        torch.save(self.optimizer.state_dict(), folder / f"zero_pp_rank_{self.rank}_mp_rank_00_optim_states.pt")
        if self.rank == 0:
            torch.save({"module": self.module.state_dict(), **client_state}, folder / "mp_rank_00_model_states.pt")
            (Path(save_dir) / "zero_to_fp32.py").write_text("print('a tool')\n")
            for name, content in self.more:
                (folder / name).parent.mkdir(exist_ok=True)
                torch.save(content, folder / name)
        if self.there:
            torch.distributed.barrier()
        return True

    def load_checkpoint(self, load_dir, tag=None):
        self.calls.append(("load", tag))
        folder = Path(load_dir) / tag
        for path in sorted(folder.glob("**/*.more")):
            torch.load(path, weights_only=False)
        saved = torch.load(folder / "mp_rank_00_model_states.pt", weights_only=False)
        self.module.load_state_dict(saved["module"])
        name = f"zero_pp_rank_{self.rank}_mp_rank_00_optim_states.pt"
        self.optimizer.load_state_dict(torch.load(folder / name, weights_only=False))
        return str(folder), {}


def deepspeed_engine(stage):
    """An engine of DeepSpeed over the process group that is there; ZeRO 3 in bfloat16."""
    os.environ.update(DS_ACCELERATOR="cpu", LOCAL_RANK=os.environ["RANK"])
    warnings.simplefilter("ignore")
    import deepspeed

    # It would compile an extension for shared memory at its first use, and do without if that fails.
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None
    deepspeed.utils.logger.setLevel("ERROR")
    model = small_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 30)
    config = {
        "train_micro_batch_size_per_gpu": 4,
        "zero_optimization": {"stage": stage},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "bf16": {"enabled": stage == 3},
    }
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, lr_scheduler=schedule, config=config)
    return engine
