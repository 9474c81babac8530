"""With the real loader: the resumed run is the uninterrupted one, bit for bit."""

import pytest
import torch

from detdata.checkpoint import Checkpointer, SavePolicy
from detdata.errors import CheckpointMismatch
from detdata.loader import Loader
from detdata.orders import Shuffle
from detdata.plans import Plan
from tests.checkpoint.fakes import bits, make_model


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 50

    def __getitem__(self, index):
        return torch.full((4,), index / 50) + torch.rand(4)  # an augmentation


def run(root, stop, *, model_seed, workers=0, seed=1):
    """Resume from `root`, train to global step `stop`; return the losses and the state at the end."""
    torch.manual_seed(model_seed)
    model = make_model(model_seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)
    loader = Loader(Numbers(), Plan(Shuffle(50, seed=seed), 8), num_workers=workers)
    policy = SavePolicy(latest_every_seconds=None, latest_every_steps=3, on_exit=False)  # as if it were killed
    losses = []
    parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "loader": loader}
    with Checkpointer(root, policy=policy, **parts) as checkpointer:
        checkpointer.resume()
        for batch in loader.until(stop):
            optimizer.zero_grad()
            loss = model(batch).square().mean()
            loss.backward()
            optimizer.step()
            scheduler.step()
            checkpointer.step(loss=loss)
            losses.append(loss.item())
    return losses, bits(model.state_dict()), bits(optimizer.state_dict()["state"]), bits(torch.get_rng_state())


@pytest.mark.parametrize("workers", [0, 2])
def test_o_cc4_a_resumed_run_is_the_uninterrupted_one_bit_for_bit(tmp_path, workers):
    losses, *state = run(tmp_path / "straight", 14, model_seed=0)
    run(tmp_path / "cut", 11, model_seed=0)  # the last save is that of step 9

    resumed, *resumed_state = run(tmp_path / "cut", 14, model_seed=7, workers=workers)

    assert resumed == losses[9:]
    assert resumed_state == state


def test_another_order_is_refused_by_name(tmp_path):
    run(tmp_path, 3, model_seed=0)

    with pytest.raises(CheckpointMismatch) as caught:
        run(tmp_path, 6, model_seed=0, seed=2)
    assert {difference.accept for difference in caught.value.differences} == {None}
