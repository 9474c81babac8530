import io
import json

from rich.console import Console

from detdata.demo.picture import draw
from detdata.demo.report import number, show, to_record
from detdata.demo.run import conclude
from tests.demo.logs import KILL, LOSSES, SETTINGS, run, runs

OTHER = run("weights", first=3, losses={**LOSSES, 3: 2.62519}, parameters=(1.0, 2.5), held_out=2.125)


def printed(outcome):
    text = io.StringIO()
    show(outcome, Console(file=text, width=110))
    return text.getvalue()


def test_the_json_table_reads_back_with_every_bit():
    record = json.loads(json.dumps(to_record(conclude(SETTINGS, KILL, runs(weights=OTHER)))))

    rows = {row["arm"]: row for row in record["rows"]}
    assert (record["format"], record["exact"], record["problems"]) == ("detdata.demo/1", True, [])
    assert (record["kill"], record["checkpoint_step"]) == ({"step": 4, "signal": 9, "workers": 2}, 2)
    assert rows["weights"]["first_loss"] == 2.62519
    assert rows["weights"]["largest_loss_difference"] == 2.62519 - 2.5
    assert rows["detdata"]["largest_loss_difference"] == 0
    assert rows["detdata"]["digest"] == rows["straight"]["digest"] != rows["weights"]["digest"]


def test_the_printed_table_has_figures_digests_and_the_verdict():
    outcome = conclude(SETTINGS, KILL, runs(weights=OTHER))

    text = printed(outcome)

    for words in ("2.625190", "0.125190", "0.000000", "weights only", "detdata resume()", "EXACT", OTHER.digest):
        assert words in text
    assert "NOT EXACT" not in text


def test_what_differed_is_printed():
    text = printed(conclude(SETTINGS, KILL, runs(detdata=run("detdata", first=3, held_out=2.5))))

    assert "NOT EXACT" in text
    assert "held-out loss 2.5, straight 2.0" in text


def test_a_difference_too_small_for_the_decimals_does_not_look_like_none():
    assert number(0.0) == "0.000000"
    assert number(2.0**-40) == "9.0949e-13"
    assert number(1e-6) == "0.000001"


def test_the_picture_is_drawn_in_both_formats(tmp_path):
    paths = (tmp_path / "curves.png", tmp_path / "curves.svg")

    draw(conclude(SETTINGS, KILL, runs(weights=OTHER)), paths)

    assert paths[0].read_bytes().startswith(b"\x89PNG")
    assert "<svg" in paths[1].read_text(encoding="utf-8")


def test_no_figure_is_cut_off_on_a_narrow_terminal():
    far = run("weights", first=3, losses={**LOSSES, 3: 2.5 + 2.0**-40}, parameters=(1.0, 2.5))
    text = io.StringIO()

    show(conclude(SETTINGS, KILL, runs(weights=far)), Console(file=text, width=80))

    lines = text.getvalue().splitlines()
    assert any(line.count("2.500000") == 4 for line in lines)
    assert any("0.500000" in line and line.count("0.000000") == 3 for line in lines)
    assert "…" not in text.getvalue()
