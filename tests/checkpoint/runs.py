"""A small run with every kind of part, saved: the same bits each time, but for what is asked."""

import torch

from detdata.checkpoint import Checkpointer
from detdata.seeding import seed_global
from tests.checkpoint.fakes import FakeLoader, make_model, train


def save_run(root, *, steps=3, weight=None, scaler=True, config=None, kinds=("latest",)):
    """Train `steps` steps from one seed and save; weight: what to put into one element of the last layer."""
    seed_global(1234)
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    grad_scaler = torch.amp.GradScaler("cpu", growth_interval=1000) if scaler else None
    loader = FakeLoader()
    losses = train(model, optimizer, scheduler, steps=steps)
    if grad_scaler is not None:
        grad_scaler.load_state_dict({**grad_scaler.state_dict(), "_growth_tracker": len(losses)})
    loader.advance(steps)
    if weight is not None:
        with torch.no_grad():
            model[2].weight[0, 0] = weight
    with Checkpointer(
        root,
        model=model,
        optimizer=optimizer,
        scheduler=scheduler,
        scaler=grad_scaler,
        loader=loader,
        config=config or {"lr": 0.01},
    ) as checkpointer:
        return [checkpointer.save(kind) for kind in kinds]
