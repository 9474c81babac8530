"""The training script of the demonstration, run as a process of its own: `python -m detdata.demo.train FOLDER ARM`.

Writes FOLDER/runs/ARM/log.jsonl, a line a step; at the end result.json and parameters.npy. Says on its output where it
is, one JSON object a line.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xxhash
from torch import nn

from detdata.checkpoint import Checkpointer, SavePolicy
from detdata.demo.arms import START, save_plain
from detdata.demo.corpus import open_passages
from detdata.demo.folder import CORPUS
from detdata.demo.model import Transformer
from detdata.demo.passages import Passages, windows
from detdata.demo.settings import Settings
from detdata.demo.text import cut, read_text, split
from detdata.loader import Loader
from detdata.orders import Shuffle
from detdata.plans import Plan
from detdata.topology import Topology


@dataclass(frozen=True, slots=True)
class Run:
    """The objects of one training run."""

    settings: Settings
    device: torch.device
    model: nn.Module
    optimizer: torch.optim.Optimizer
    scheduler: torch.optim.lr_scheduler.LambdaLR
    scaler: torch.amp.GradScaler | None
    loader: Loader
    checkpointer: Checkpointer


def build(settings: Settings, folder: Path) -> Run:
    """Seed all streams and make the objects, as at the start of any run. folder: of this run."""
    random.seed(settings.seed)
    np.random.seed(settings.seed % 2**32)
    torch.manual_seed(settings.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model: nn.Module = Transformer(
        layers=settings.layers,
        heads=settings.heads,
        width=settings.width,
        context=settings.context,
        dropout=settings.dropout,
    ).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate, weight_decay=0.1)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, _warm_up_and_cosine(settings.warmup, settings.steps))
    scaler = torch.amp.GradScaler(device.type) if device.type == "cuda" else None
    passages = cut(split(read_text())[0], settings.samples)
    corpus = None
    if settings.corpus is not None:
        corpus = open_passages(folder.parents[1] / CORPUS, settings.corpus, passages.shape[1])
    loader = Loader(
        Passages(passages if corpus is None else corpus, context=settings.context),
        Plan(Shuffle(settings.samples, settings.seed), settings.batch_size),
        Topology(),
        num_workers=settings.workers,
        dataset_version=None if corpus is None else corpus.version(),
        multiprocessing_context="fork" if settings.workers and sys.platform == "linux" else None,
    )
    checkpointer = Checkpointer(
        folder / "checkpoints",
        model=model,
        optimizer=optimizer,
        scheduler=scheduler,
        scaler=scaler,
        loader=loader,
        topology=Topology(),
        policy=SavePolicy(latest_every_seconds=None, latest_every_steps=settings.save_every),
    )
    return Run(settings, device, model, optimizer, scheduler, scaler, loader, checkpointer)


def train(run: Run, arm: str, folder: Path) -> None:
    """Train from where the arm starts to the last step, and log each step."""
    start = START[arm](run, folder)
    last = run.loader.progress.global_step + run.settings.steps - start
    saves = arm in {"straight", "interrupted", "detdata"}
    step = start
    with (folder / "log.jsonl").open("w", encoding="utf-8") as log, run.checkpointer:
        for epochs, ids, inputs, targets in run.loader.until(last):
            step += 1
            rate = float(run.scheduler.get_last_lr()[0])
            loss = _backward(run, inputs, targets)
            record = {"step": step, "loss": loss.hex(), "rate": rate.hex(), "epochs": epochs.tolist()}
            log.write(json.dumps({**record, "ids": ids.tolist()}) + "\n")
            log.flush()
            say(step=step, loss=loss)
            if arm == "interrupted" and step == run.settings.kill_step:
                say(kill=step, workers=len(multiprocessing.active_children()))
                time.sleep(60)  # in mid-step, gradients made and not applied: here the SIGKILL comes
                raise SystemExit(f"not killed at step {step}")
            _update(run)
            if saves and run.checkpointer.step(loss=loss) and arm == "interrupted":
                save_plain(run, folder, step)
    finish(run, start, folder)


def _backward(run: Run, inputs: torch.Tensor, targets: torch.Tensor) -> float:
    loss = _loss(run, inputs.to(run.device), targets.to(run.device))
    run.optimizer.zero_grad(set_to_none=True)
    (loss if run.scaler is None else run.scaler.scale(loss)).backward()  # type: ignore[no-untyped-call]
    return float(loss.item())


def _update(run: Run) -> None:
    if run.scaler is None:
        nn.utils.clip_grad_norm_(run.model.parameters(), 1.0)
        run.optimizer.step()
    else:
        run.scaler.unscale_(run.optimizer)
        nn.utils.clip_grad_norm_(run.model.parameters(), 1.0)
        run.scaler.step(run.optimizer)
        run.scaler.update()
    run.scheduler.step()


def _loss(run: Run, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    with torch.autocast(run.device.type, torch.float16, enabled=run.scaler is not None):
        logits = run.model(inputs)
    return nn.functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def finish(run: Run, start: int, folder: Path) -> None:
    """Evaluate on the held-out text and leave the parameters and their digest."""
    settings = run.settings
    text = windows(split(read_text())[1], count=settings.held_out_windows, context=settings.context)
    run.model.eval()
    with torch.no_grad():
        parts = [text[i : i + 32].to(run.device) for i in range(0, len(text), 32)]
        total = sum(float(_loss(run, part[:, :-1], part[:, 1:])) * len(part) for part in parts)
    digest = xxhash.xxh3_128()
    flat = []
    for name, parameter in run.model.named_parameters():
        values = parameter.detach().cpu().contiguous().numpy()
        digest.update(f"{name} {values.dtype} {values.shape}\n".encode())
        digest.update(values.tobytes())
        flat.append(values.ravel())
    np.save(folder / "parameters.npy", np.concatenate(flat))
    result: dict[str, Any] = {
        "resumed_from": start,
        "held_out_loss": (total / len(text)).hex(),
        "digest": f"xxh3-128:{digest.hexdigest()}",
        "parameters": sum(len(values) for values in flat),
        "device": str(run.device),
        "torch": torch.__version__,
        "dataset_version": run.loader.dataset_version,
    }
    (folder / "result.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def say(**record: Any) -> None:
    """Tell the parent."""
    sys.stdout.write(json.dumps(record) + "\n")
    sys.stdout.flush()


def _warm_up_and_cosine(warmup: int, steps: int) -> Callable[[int], float]:
    def factor(step: int) -> float:
        if step < warmup:
            return (step + 1) / warmup
        return 0.05 + 0.95 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup))) / 2

    return factor


def main(folder: str, arm: str) -> None:
    """Run one arm in `folder`, as settings.json there says."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    settings = Settings.load(Path(folder) / "settings.json")
    own = Path(folder) / "runs" / arm
    train(build(settings, own), arm, own)


if __name__ == "__main__":
    main(*sys.argv[1:])
