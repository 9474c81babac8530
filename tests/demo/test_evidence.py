import math

import pytest

from detdata.demo.evidence import NotComparable, check_ground, count_uses, differences, measure
from detdata.demo.run import conclude
from tests.demo.logs import KILL, LOSSES, SETTINGS, USES, run, runs


@pytest.mark.parametrize(
    ("seen", "expected", "counts"),
    [
        ([], [], (0, 0)),
        ([(0, 1), (0, 2)], [(0, 2), (0, 1)], (0, 0)),
        ([(0, 1), (0, 1)], [(0, 1)], (1, 0)),
        ([(0, 1)], [(0, 1), (0, 2)], (0, 1)),
        ([(0, 1)], [(1, 1)], (1, 1)),  # the same sample in another epoch is another use
        ([(0, 1)] * 3, [(0, 2)] * 2, (3, 2)),
    ],
)
def test_uses_beyond_the_expected_are_repeated_and_those_missing_skipped(seen, expected, counts):
    assert count_uses(seen, expected) == counts


def test_samples_are_counted_over_the_killed_run_up_to_its_checkpoint_and_what_followed():
    # Steps 3 and 4 of the killed run are lost; this one trains on epoch 0 again instead of epoch 1.
    evidence = runs()
    again = run("weights", first=3, uses={**USES, 3: USES[1], 4: [(0, 2), (1, 2)]})

    row = measure(again, evidence["straight"], evidence["interrupted"])

    assert (row.resumed_from, row.repeated, row.skipped) == (2, 3, 3)
    assert (row.last_loss, row.first_loss) == (3.0, 2.5)


def test_an_exact_resume_has_no_difference():
    outcome = conclude(SETTINGS, KILL, runs())

    assert outcome.problems == ()
    assert all(row.parameters_equal and row.largest_loss_difference == 0 for row in outcome.rows)
    assert [(row.repeated, row.skipped) for row in outcome.rows] == [(0, 0)] * 4
    assert [row.arm for row in outcome.rows] == ["straight", "weights", "no-position", "detdata"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"losses": {**LOSSES, 4: math.nextafter(2.25, 3)}}, "step 4 is the first that differs: loss"),
        ({"uses": {**USES, 3: [(1, 0), (1, 3)]}}, "step 3 is the first that differs: samples"),
        ({"held_out": math.nextafter(2.0, 3)}, "held-out loss 2.0000000000000004"),
        ({"parameters": (1.0, 2.0000002)}, "largest difference 2.3842e-07"),
        ({"parameters": (1.0, -0.0)}, "parameters xxh3-128:"),
    ],
)
def test_one_bit_of_difference_is_found_and_named(change, words):
    outcome = conclude(SETTINGS, KILL, runs(detdata=run("detdata", first=3, **change)))

    assert len(outcome.problems) == 1
    assert words in outcome.problems[0]


def test_repeated_and_skipped_samples_are_a_problem_of_their_own():
    evidence = runs(detdata=run("detdata", first=3, uses={**USES, 3: USES[2]}))
    row = measure(evidence["detdata"], evidence["straight"], evidence["interrupted"])

    assert "2 samples repeated, 2 skipped" in differences(evidence["detdata"], evidence["straight"], row)


def test_the_other_resumes_may_differ():
    other = run("weights", first=3, losses={**LOSSES, 3: 9.0}, parameters=(0.0, 0.0), held_out=7.0)

    outcome = conclude(SETTINGS, KILL, runs(weights=other))

    row = outcome.rows[1]
    assert outcome.problems == ()
    assert (row.largest_loss_difference, row.equal_losses, row.compared_losses) == (6.5, 1, 2)
    assert (row.parameters_equal, row.largest_parameter_difference, row.held_out_difference) == (False, 2.0, 5.0)


def test_runs_that_differ_before_the_kill_show_nothing():
    evidence = runs(interrupted=run("interrupted", losses={**LOSSES, 1: 4.5}, finished=False))

    with pytest.raises(NotComparable, match="at step 1, before anything was killed"):
        check_ground(evidence["straight"], evidence["interrupted"])


def test_a_run_that_lacks_steps_is_not_compared():
    with pytest.raises(NotComparable, match=r"'detdata' lacks steps \[4\]"):
        conclude(SETTINGS, KILL, runs(detdata=run("detdata", first=3, last=3)))
