from dataclasses import replace

import pytest

from detdata.demo.settings import SMALL, Settings, choose_kill_step


@pytest.mark.parametrize("base", [Settings(), SMALL], ids=["full", "small"])
def test_the_kill_falls_in_mid_epoch_after_a_checkpoint_of_the_same_epoch(base):
    steps = set()
    for seed in range(200):
        settings = replace(base, seed=seed)
        step = choose_kill_step(settings)
        steps.add(step)
        done = step - 1
        saved = done // settings.save_every * settings.save_every
        epoch, position = divmod(saved, settings.steps_per_epoch)

        assert done - saved >= 2
        assert done // settings.steps_per_epoch == epoch
        assert 0 < epoch < settings.epochs - 1
        assert position > 0

    assert len(steps) >= 3  # the seed decides


def test_settings_survive_their_file(tmp_path):
    settings = replace(SMALL, seed=2**63 - 1, fault="rng", corpus="csv.gz").with_kill_step()

    settings.save(tmp_path / "settings.json")

    assert Settings.load(tmp_path / "settings.json") == settings


@pytest.mark.parametrize("step", [0, 6, 113])
def test_a_kill_before_the_first_checkpoint_or_after_the_end_is_refused(step):
    with pytest.raises(ValueError, match="kill_step must be in 7 … 112"):
        Settings(kill_step=step)


def test_an_unknown_corpus_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"corpus must be None or one of arrow, csv, .*; got 'xlsx'"):
        Settings(corpus="xlsx")
