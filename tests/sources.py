"""What the gates read: the files of the package and of the repository, and Python code without its prose."""

import io
import os
import subprocess
import sys
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "detdata"
MODULES = sorted(PACKAGE.rglob("*.py"))


def module_name(file):
    """detdata/orders/__init__.py -> detdata.orders"""
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def relative(file):
    return file.relative_to(ROOT).as_posix()


# f-strings are one token up to Python 3.11; since then their literal parts are tokens and their expressions are code.
_PROSE = {tokenize.STRING, tokenize.COMMENT} | {
    getattr(tokenize, name) for name in ("FSTRING_MIDDLE", "TSTRING_MIDDLE") if hasattr(tokenize, name)
}


def code_lines(source):
    """The lines of `source` with strings (docstrings and their examples too) and comments blanked out."""
    lines = [list(line) for line in source.splitlines()]
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in _PROSE:
            (first, start), (last, stop) = token.start, token.end
            for row in range(first, last + 1):
                line = lines[row - 1]
                begin, end = (start if row == first else 0), (stop if row == last else len(line))
                line[begin:end] = " " * (end - begin)
    return ["".join(line) for line in lines]


def tracked_files():
    """Every file that git tracks or would track; outside a git checkout, every file that isn't hidden or built."""
    listing = (
        subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            check=False,
        )
        if (ROOT / ".git").exists()
        else None
    )
    if listing is not None and listing.returncode == 0:
        names = [os.fsdecode(name) for name in listing.stdout.split(b"\0") if name]
        return sorted(ROOT / name for name in set(names) if (ROOT / name).is_file())
    skipped = {"__pycache__", "build", "dist"}
    return sorted(
        file
        for file in ROOT.rglob("*")
        if file.is_file() and not any(p in skipped or p.startswith(".") for p in file.relative_to(ROOT).parts)
    )


def run_python(code, *, cwd=ROOT, stdin=None, timeout=200):
    """Run `code` in a fresh interpreter that finds this checkout's detdata first."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=cwd,
        env=environment,
        input=stdin,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=timeout,
        check=False,
    )
