"""Stand-ins for a loader and a topology, and a small run to save."""

from dataclasses import dataclass, field

import torch

from detdata.checkpoint import Checkpointer, SavePolicy
from detdata.errors import StateMismatch
from detdata.progress import Progress

torch.set_num_threads(1)


@dataclass(frozen=True)
class FakeTopology:
    rank: int = 0
    world_size: int = 1
    recorded: dict = field(default_factory=dict)

    def to_dict(self):
        return {"rank": self.rank, "world_size": self.world_size, **self.recorded}


class FakeLoader:
    """Counts samples; `checks` decides whether it can say beforehand that a state does not fit."""

    def __init__(self, batch_size=8, seed=0, micro_steps=1, steps=100, draws=False):
        self.batch_size, self.seed, self.micro_steps, self.steps, self.draws = (
            batch_size,
            seed,
            micro_steps,
            steps,
            draws,
        )
        self.micro = 0

    def advance(self, micro_steps=1):
        self.micro += micro_steps

    @property
    def progress(self):
        step, micro = divmod(self.micro, self.micro_steps)
        return Progress(step, step // self.steps, step * self.batch_size, micro)

    def state_dict(self):
        return {
            "format": "detdata.loader/1",
            "plan": {"batch_size": self.batch_size},
            "seed": self.seed,
            "progress": self.progress.to_dict(),
        }

    def check_state(self, state):
        pairs = [("seed", state["seed"], self.seed), ("batch_size", state["plan"]["batch_size"], self.batch_size)]
        return [(name, str(saved), str(found)) for name, saved, found in pairs if saved != found]

    def load_state_dict(self, state):
        wrong = self.check_state(state)
        if wrong:
            raise StateMismatch(str(wrong))
        self.micro = state["progress"]["global_step"] * self.micro_steps + state["progress"]["micro_step"]
        if self.draws:
            torch.rand(1)


class PlainLoader(FakeLoader):
    """A loader without check_state."""

    check_state = None

    def load_state_dict(self, state):
        if state["seed"] != self.seed:
            raise StateMismatch(f"seed: saved {state['seed']}, found {self.seed}")
        self.micro = state["progress"]["global_step"] * self.micro_steps


class Box:
    """An extra part: whatever it is given."""

    def __init__(self, value=None):
        self.value = value

    def state_dict(self):
        return {"value": self.value}

    def load_state_dict(self, state):
        self.value = state["value"]


def make_model(seed=0, width=4):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.Dropout(0.5), torch.nn.Linear(width, 1))


def train(model, optimizer, scheduler=None, steps=1):
    """Return the losses of `steps` steps on data that the global torch stream gives."""
    losses = []
    width = model[0].in_features
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(torch.rand(8, width)).square().mean()
        loss.backward()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
        losses.append(loss.item())
    return losses


def bits(tree):
    """A value that is equal for trees that are equal in every bit, type and key."""
    if isinstance(tree, torch.Tensor):
        raw = tree.detach().cpu().contiguous().view(-1)
        return ("tensor", str(tree.dtype), tuple(tree.shape), raw.view(torch.uint8).numpy().tobytes())
    if isinstance(tree, dict):
        return (type(tree).__name__, tuple((key, bits(value)) for key, value in tree.items()))
    if isinstance(tree, (list, tuple)):
        return (type(tree).__name__, tuple(bits(value) for value in tree))
    if isinstance(tree, float):
        return ("float", tree.hex())
    return (type(tree).__name__, tree)


def stamped(step, size=16):
    """A model in which every number is `step`."""
    model = torch.nn.Linear(size, size)
    for parameter in model.parameters():
        torch.nn.init.constant_(parameter, float(step))
    return model


def save_steps(root, steps, kind="periodic", **options):
    """Save stamped models at the given global steps; return the paths."""
    loader = FakeLoader(batch_size=1)
    model = stamped(0)
    checkpointer = Checkpointer(root, model=model, loader=loader, **options)
    paths = []
    for step in steps:
        loader.micro = step
        for parameter in model.parameters():
            torch.nn.init.constant_(parameter, float(step))
        paths.append(checkpointer.save(kind))
    return paths


def resumed_step(root, **options):
    """Resume a fresh stamped model from `root`; return the step, having checked that every number is of it."""
    model = stamped(-1)
    progress = Checkpointer(root, model=model, loader=FakeLoader(batch_size=1), **options).resume()
    if progress is None:
        return None
    assert all((parameter == progress.global_step).all() for parameter in model.parameters())
    return progress.global_step


def newest_is_the_one_saved_last(root, monkeypatch):
    """Save one step three times, each with an earlier clock, and resume what was saved last each time."""
    layer = torch.nn.Linear(2, 1)
    run = Checkpointer(root, model=layer, policy=SavePolicy(latest_every_seconds=None))
    run.step()
    for value, kind, nanoseconds in ((1.0, "periodic", 2**60), (2.0, "latest", 2**59), (3.0, "latest", 2**58)):
        monkeypatch.setattr("detdata.checkpoint.store.time.time_ns", lambda at=nanoseconds: at)
        torch.nn.init.constant_(layer.weight, value)
        run.save(kind)
        Checkpointer(root, model=layer).resume()
        assert layer.weight[0, 0] == value
