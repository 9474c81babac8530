"""What must not stand in the code: each gate is a pattern, its reason, and the files that may."""

import re
from dataclasses import dataclass, field

import pytest

from tests.sources import MODULES, PACKAGE, code_lines, relative, tracked_files


@dataclass(frozen=True)
class Gate:
    pattern: str
    why: str
    allowed: tuple[str, ...] = field(default=())  # files, and folders with a slash at the end, in detdata/
    prose: bool = False  # strings and comments count too

    def hits(self, file, source):
        if any(file == name or (name.endswith("/") and file.startswith(name)) for name in self.allowed):
            return []
        lines = source.splitlines() if self.prose else code_lines(source)
        return [f"{file}:{row}: {line.strip()}" for row, line in enumerate(lines, 1) if re.search(self.pattern, line)]


SCRIPTS = ("cli/", "cli.py", "demo/", "demo.py")

GATES = {
    "seed_plus": Gate(
        r"seed *\+|\+ *(\w+\.)*_?seed\b",
        "neighbouring seeds and epochs would share orders; use keys.fold",
        allowed=("orders/torch_shuffle.py",),  # reproduces torch, which does so
    ),
    "numpy_random": Gate(
        r"\b(np|numpy)\.random\b",
        "NumPy's streams may change between its releases, and its global state belongs to the user",
        allowed=(
            "keys.py",
            "streams.py",
            "seeding.py",
            "checkpoint/rng.py",
            "testing/",
            "testing.py",
            "demo/",
            "demo.py",
        ),
    ),
    "print": Gate(r"(?<![\w.])print\(", "a library logs; it doesn't print", allowed=SCRIPTS),
    "assert": Gate(r"^\s*assert\b", "asserts vanish under -O; raise an error that says what to do"),
    "pickle": Gate(r"\b(c?[pP]ickle|dill|cloudpickle|marshal)\.(loads?|Unpickler)\b", "loading runs no code"),
    "eval": Gate(r"(?<![\w.])(eval|exec)\(", "loading runs no code"),
    "weights_only": Gate(r"weights_only *= *False", "loading runs no code"),
    "torch_load": Gate(r"\btorch\.load\((?!.*weights_only *= *True)", "weights_only=True stands on the line itself"),
    "todo": Gate(r"\b(TODO|FIXME|XXX)\b", "what is left to do is an issue, not a comment", prose=True),
}

# Written in pieces: this file is tracked too.
MACHINE_PATH = re.compile(r"(?<![\w.}\])/-])/(" + "|".join(["wo" + "rk", "ro" + "ot", "tm" + r"p(?=/)"]) + r")\b")


@pytest.mark.parametrize("name", GATES)
def test_the_library_keeps_the_gate(name):
    gate = GATES[name]
    hits = [
        hit
        for file in MODULES
        for hit in gate.hits(file.relative_to(PACKAGE).as_posix(), file.read_text(encoding="utf-8"))
    ]

    assert hits == [], gate.why


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("seed_plus", "g.manual_seed(seed + epoch)"),
        ("seed_plus", "g.manual_seed(epoch + self._seed)"),
        ("seed_plus", "seed += 1"),
        ("numpy_random", "np.random.default_rng(0)"),
        ("print", "    print('here')"),
        ("assert", "    assert n > 0"),
        ("assert", "assert(n > 0)"),
        ("pickle", "pickle.load(file)"),
        ("pickle", "pickle.loads(data)"),
        ("eval", "x = eval(text)"),
        ("weights_only", "torch.load(path, weights_only = False)"),
        ("torch_load", "torch.load(path)"),
        ("todo", "x = 1  # TODO: later"),
    ],
)
def test_the_gate_sees_what_it_is_for(name, line):
    assert GATES[name].hits("orders/x.py", f"{line}\n") != []


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("seed_plus", 'x = "seed + epoch"  # never seed + epoch'),
        ("seed_plus", "numbers = seeds + offsets"),
        ("print", "pprint(x); self.print(x)"),
        ("eval", "model.eval()"),
        ("torch_load", "torch.load(path, map_location='cpu', weights_only=True)"),
    ],
)
def test_the_gate_lets_the_harmless_pass(name, line):
    assert GATES[name].hits("orders/x.py", f"{line}\n") == []


def test_no_tracked_file_names_a_path_of_one_machine():
    hits = []
    for file in tracked_files():
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # an image
        hits += [
            f"{relative(file)}:{row}: {line.strip()[:120]}"
            for row, line in enumerate(text.splitlines(), 1)
            if MACHINE_PATH.search(line)
        ]

    assert hits == []


def test_the_machine_path_pattern_sees_them_and_no_others():
    for path in ("wo" + "rk/main", "ro" + "ot/.cache", "tm" + "p/x"):
        assert MACHINE_PATH.search(f"cd /{path}")
        assert MACHINE_PATH.search(f"'/{path}'")
        assert not MACHINE_PATH.search(f"runs/{path}")
    assert not MACHINE_PATH.search("a worker / workers and/or roots")
