"""Files stay short enough to be read in one sitting."""

from statistics import median

from tests.sources import MODULES, ROOT, relative

LONGEST = 400
MEDIAN = 200
FOLDERS = ("tests", "bench", "tools")


def line_counts(files):
    return {relative(file): len(file.read_text(encoding="utf-8").splitlines()) for file in files}


def test_no_file_is_over_400_lines():
    files = [*MODULES, *(file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py"))]
    assert {file: lines for file, lines in line_counts(files).items() if lines > LONGEST} == {}


def test_the_median_file_is_under_200_lines():
    assert median(line_counts(MODULES).values()) < MEDIAN
