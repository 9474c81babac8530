"""One text as a corpus of every format, to look at and to try code on: `write_corpora.py OUT`.

Each format gets a folder of its name in OUT, and says how it is opened. The text is the one that `make demo` trains on,
in passages of one length; a row is a passage. About 5 MB in all.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from detdata.demo.corpus import options_for, write_corpus  # noqa: E402  (after the path)
from detdata.demo.settings import CORPORA, Settings  # noqa: E402
from detdata.demo.text import NoText, cut, read_text, split  # noqa: E402


def main() -> int:
    """Write all; exit code 2 where that cannot be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", metavar="OUT", type=Path, help="folder to write into; what is there is not overwritten")
    out: Path = parser.parse_args().out
    try:
        passages = cut(split(read_text())[0], Settings().samples)
        for name in CORPORA:
            write_corpus(out / name, name, passages)
            options = "".join(f", {key}={value!r}" for key, value in options_for(name, passages.shape[1]).items())
            print(f"open_corpus({str(out / name)!r}{options})")
    except FileExistsError as error:
        print(f"write_corpora: {error.filename} is there already; name a new folder", file=sys.stderr)
        return 2
    except (NoText, OSError) as error:
        print(f"write_corpora: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
