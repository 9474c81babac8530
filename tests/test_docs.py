"""The docs are true: their Python runs, their commands parse, their links lead somewhere.

How a code block is treated follows from its info string:

    ```python           runs; the blocks of one file share one namespace, in order, in an empty folder
    ```python norun     doesn't; an HTML comment right before it says why
    ```console          each `$ detdata …` line must parse
    ```json             must parse
    ```text, ```sh …    is only shown
"""

import json
import re
import shlex
from dataclasses import dataclass

import click
import pytest

from tests.sources import ROOT, relative, run_python

FILES = sorted(file for file in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")) if file.is_file())
LINKED = sorted({*FILES, *(ROOT / name for name in ("CHANGELOG.md", "tests/README.md", "bench/README.md"))})
LINKED = [file for file in LINKED if file.is_file()]
SHOWN = {"text", "sh", "bash", "make", "yaml", "toml", "ini", "diff", "c", "mermaid"}
KNOWN = {"python", "python norun", "console", "json"} | SHOWN

_FENCE = re.compile(r"^(?P<indent> *)(?P<fence>`{3,}|~{3,})(?P<info>[^`]*)$")
_LINK = re.compile(r"(?<!\\)\[(?:[^\[\]]|\[[^\]]*\])*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
_REFERENCE = re.compile(r"^ {0,3}\[[^\]]+\]:\s+<?(\S+?)>?(?:\s|$)", re.MULTILINE)
_ANCHOR = re.compile(r"<a\s+(?:id|name)=[\"']([^\"']+)[\"']")


@dataclass(frozen=True)
class Block:
    line: int  # of the first line of code, from 1
    info: str
    code: str
    before: str  # the last line with text before the fence


def split(text):
    """(code blocks, the text with them blanked out)."""
    blocks, prose, before = [], [], ""
    fence, info, start, code, indent = None, "", 0, [], 0
    for number, line in enumerate(text.splitlines(), 1):
        match = _FENCE.match(line)
        if fence is None and match:
            fence, info, indent = match["fence"], match["info"].strip(), len(match["indent"])
            start, code = number + 1, []
            prose.append("")
        elif fence is not None and match and match["fence"].startswith(fence) and not match["info"].strip():
            blocks.append(Block(start, info, "\n".join(code) + "\n", before))
            fence = None
            prose.append("")
        elif fence is not None:
            code.append(line[indent:] if not line[:indent].strip() else line)
            prose.append("")
        else:
            before = line.strip() or before
            prose.append(line)
    if fence is not None:
        raise ValueError(f"the block that starts in line {start} isn't closed")
    return blocks, "\n".join(prose)


def blocks_of(file):
    return split(file.read_text(encoding="utf-8"))[0]


# Runs the blocks in the namespace of __main__, as a script's code would, so that pickling and forking find their names.
_RUNNER = """
import json, linecache, sys, warnings
warnings.simplefilter("error", DeprecationWarning)
for block in json.load(sys.stdin):
    source = "\\n" * (block["line"] - 1) + block["code"]
    linecache.cache[block["file"]] = (len(source), None, source.splitlines(keepends=True), block["file"])
    exec(compile(source, block["file"], "exec"), sys.modules["__main__"].__dict__)
"""


def run_blocks(name, blocks, cwd):
    code = [{"file": name, "line": block.line, "code": block.code} for block in blocks if block.info == "python"]
    return run_python(_RUNNER, cwd=cwd, stdin=json.dumps(code)) if code else None


@pytest.mark.parametrize("file", FILES, ids=relative)
def test_the_python_blocks_of_a_page_run(file, tmp_path):
    result = run_blocks(relative(file), blocks_of(file), tmp_path)

    if result is not None:
        assert result.returncode == 0, result.stderr


def block_faults(block):
    if block.info not in KNOWN:
        return f"info string {block.info!r} is none of {sorted(KNOWN)}"
    if block.info == "python norun" and not re.fullmatch(r"<!--.*\w.*-->", block.before):
        return "`python norun` needs an HTML comment right before it that says why: <!-- needs two GPUs -->"
    if block.info == "json":
        try:
            json.loads(block.code)
        except ValueError as error:
            return f"is no JSON: {error}"
    return None


@pytest.mark.parametrize("file", FILES, ids=relative)
def test_each_block_says_what_it_is(file):
    faults = [
        f"{relative(file)}:{block.line}: {block_faults(block)}" for block in blocks_of(file) if block_faults(block)
    ]

    assert faults == []


def commands(block):
    """The argument lists of the detdata commands in a console block."""
    text = block.code.replace("\\\n", " ")
    found = []
    for line in text.splitlines():
        if not line.startswith("$ "):
            continue
        lexer = shlex.shlex(line[2:], posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        lexer.commenters = "#"
        words, command = [*lexer, ";"], []
        for word in words:
            if set(word) <= set("();<>|&"):
                while command and re.fullmatch(r"\w+=.*", command[0]):
                    command.pop(0)
                if command[:1] == ["detdata"]:
                    found.append(command[1:])
                command = []
            else:
                command.append(word)
    return found


def parse(command, name, arguments, parent=None):
    """Parse `arguments` as `command` would, subcommands too, and call nothing."""
    try:
        with command.make_context(name, list(arguments), parent=parent) as context:
            if isinstance(command, click.Group):
                rest = [*context._protected_args, *context.args]
                sub_name, sub, sub_arguments = command.resolve_command(context, rest)
                parse(sub, sub_name, sub_arguments, parent=context)
    except click.exceptions.Exit:
        pass  # --help, --version


@pytest.fixture
def root_command(monkeypatch):
    from detdata import cli

    for kind in (click.Path, click.File):  # the files of an example needn't exist
        monkeypatch.setattr(kind, "convert", lambda self, value, param, ctx: value)
    return cli.main


@pytest.mark.parametrize("file", FILES, ids=relative)
def test_the_detdata_commands_of_a_page_parse(file, root_command, capsys):
    faults = []
    for block in blocks_of(file):
        for arguments in commands(block) if block.info == "console" else ():
            try:
                parse(root_command, "detdata", arguments)
            except click.ClickException as error:
                faults.append(
                    f"{relative(file)}:{block.line}: detdata {shlex.join(arguments)}: {error.format_message()}"
                )

    assert faults == []


def slugs(text):
    """The anchors of a page, by GitHub's rule: lower case, punctuation off, spaces to hyphens, repeats numbered."""
    prose, found, seen = split(text)[1], set(), {}
    for heading in re.findall(r"^#{1,6}\s+(.*?)\s*#*$", prose, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        number = seen[slug] = seen.get(slug, -1) + 1
        found.add(f"{slug}-{number}" if number else slug)
    return found | set(_ANCHOR.findall(prose))


def dead_links(file, text):
    prose = re.sub(r"`[^`\n]*`", "", split(text)[1])
    dead = []
    for target in [*_LINK.findall(prose), *_REFERENCE.findall(prose)]:
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue  # the web is not ours to test
        path, _, anchor = target.partition("#")
        destination = (file.parent / path).resolve() if path else file
        if not destination.is_relative_to(ROOT) or not destination.exists():
            dead.append(f"{target}: no such file")
        elif anchor and destination.suffix == ".md" and anchor not in slugs(destination.read_text(encoding="utf-8")):
            dead.append(f"{target}: no such heading")
    return dead


@pytest.mark.parametrize("file", LINKED, ids=relative)
def test_the_links_between_pages_resolve(file):
    assert dead_links(file, file.read_text(encoding="utf-8")) == []


# --- the checks themselves ---


def page(*blocks):
    return "# Title\n\n" + "\n".join(f"```{info}\n{code}\n```\n" for info, code in blocks)


def test_blocks_share_a_namespace_and_run_in_order(tmp_path):
    text = page(("python", "x = 1"), ("text", "x = 2"), ("python", "assert x == 1; open('made', 'w').close()"))

    assert run_blocks("page.md", split(text)[0], tmp_path).returncode == 0
    assert (tmp_path / "made").exists()


def test_a_failing_block_is_reported_with_its_line(tmp_path):
    result = run_blocks("page.md", split(page(("python", "x = 1\nraise KeyError('gone')")))[0], tmp_path)

    assert result.returncode == 1
    assert '"page.md", line 5' in result.stderr


def test_norun_needs_a_reason():
    text = "```python norun\nx\n```\n\n<!-- needs two machines -->\n```python norun\nx\n```\n"
    without, with_reason = split(text)[0]

    assert block_faults(without) is not None
    assert block_faults(with_reason) is None


def test_a_misspelt_info_string_is_a_fault():
    assert [
        block_faults(block) is None for block in split(page(("Python", "x"), ("", "x"), ("console", "$ ls")))[0]
    ] == [
        False,
        False,
        True,
    ]


def test_commands_are_found_in_pipes_after_assignments_and_over_lines():
    code = "$ RANK=1 detdata plan show 'a b.json' | head\nplan: 3\n$ cd x && detdata demo \\\n    --quick # why\n$ ls"

    assert commands(Block(1, "console", code, "")) == [["plan", "show", "a b.json"], ["demo", "--quick"]]


def test_dead_links_and_anchors_are_found():
    text = "# A `b` c!\n[a](#a-b-c) [b](#nope) [c](missing.md) [d](LICENSE) [e](https://example.org) `[f](x.md)`\n"

    # The file itself is not read again for its own anchors unless it exists, so use one that does.
    assert [line.partition(":")[0] for line in dead_links(ROOT / "CHANGELOG.md", text)] == [
        "#a-b-c",
        "#nope",
        "missing.md",
    ]
    assert "a-b-c" in slugs(text)
