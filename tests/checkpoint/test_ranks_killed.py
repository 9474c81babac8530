"""SIGKILL to one rank in every phase of a save and of a resume: the others end, and a whole checkpoint is there."""

import importlib
import os
import signal
import time

import pytest

from detdata.checkpoint import RankMissing, list_checkpoints
from tests.checkpoint.ranks import in_ranks
from tests.checkpoint.test_ranks import build, to_step, train

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="forks and kills"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]
SAVE = [
    (0, "agreement.capture", "before"),
    (1, "agreement.capture", "before"),
    (0, "place.open_stage", "after"),
    (0, "store.write_file", "before"),
    (1, "writing.write_file", "after"),
    (0, "store.Stage.publish", "before"),
    (0, "store.sync_folder", "before"),
    (0, "store.Stage.publish", "after"),
]
RESUME = [
    (0, "resuming.select", "before"),
    (1, "selection.read", "before"),
    (0, "selection.read", "after"),
    (1, "resuming.compare", "before"),
    (1, "resuming.restore", "before"),
    (0, "resuming.restore", "after"),
]


def deadly(name, moment):
    """Make a function of detdata.checkpoint kill the process."""
    module, *rest = name.split(".")
    owner = importlib.import_module(f"detdata.checkpoint.{module}")
    for part in rest[:-1]:
        owner = getattr(owner, part)
    original = getattr(owner, rest[-1])

    def die(*arguments, **options):
        if moment == "after":
            original(*arguments, **options)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, rest[-1], die)


def dies(rank, size, root, victim, name, moment, saving):
    parts, checkpointer = build(rank, root, timeout_seconds=60)
    if saving:
        checkpointer.resume()
        train(parts, checkpointer, 4)
    if rank == victim:
        deadly(name, moment)
    begun = time.monotonic()
    with pytest.raises(RankMissing) as caught:
        checkpointer.save() if saving else checkpointer.resume()
    return str(caught.value), time.monotonic() - begun


@pytest.mark.parametrize(
    ("victim", "name", "moment", "saving"), [(*one, True) for one in SAVE] + [(*one, False) for one in RESUME]
)
def test_the_others_end_at_once_and_a_whole_checkpoint_is_there(tmp_path, victim, name, moment, saving):
    root = tmp_path / "root"
    in_ranks(2, to_step, tmp_path / "a", root, 2)

    answers = in_ranks(2, dies, tmp_path / "b", root, victim, name, moment, saving, killed=(victim,))

    assert answers[victim] == -signal.SIGKILL
    message, seconds = answers[1 - victim]
    assert f"rank {victim} of 2 is gone" in message
    assert "untouched" in message
    assert seconds < 60
    [entry] = list_checkpoints(root)
    assert entry.ok
    assert entry.step == (4 if (name, moment) == ("store.Stage.publish", "after") else 2)
