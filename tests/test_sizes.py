"""Files stay short enough to be read in one sitting."""

from statistics import median

from tests.sources import MODULES, relative

LONGEST = 400
MEDIAN = 200


def line_counts():
    return {relative(file): len(file.read_text(encoding="utf-8").splitlines()) for file in MODULES}


def test_no_file_is_over_400_lines():
    assert {file: lines for file, lines in line_counts().items() if lines > LONGEST} == {}


def test_the_median_file_is_under_200_lines():
    assert median(line_counts().values()) < MEDIAN
