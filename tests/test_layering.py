"""Each module imports only what lies below it; torch, pyarrow, click and rich stay where they are needed."""

import ast
import sys
from pathlib import Path

import pytest

from tests.sources import MODULES, PACKAGE, module_name, relative, run_python

# From the bottom up. A module may import from the lines below its own and from its own package, nothing else.
LAYERS = [
    ("errors",),
    ("checks",),
    ("arrays",),
    ("disk",),
    ("records",),
    ("progress",),
    ("keys",),
    ("algorithms",),
    ("permutation",),
    ("orders",),
    ("plans",),
    ("packing",),
    ("look_ahead",),
    ("topology",),
    ("rows",),
    ("versions",),
    ("corpora",),
    ("streams",),
    ("seeding",),
    ("reading",),
    ("samplers",),
    ("loader_state",),
    ("loader",),
    ("streaming",),
    ("checkpoint",),
    ("demo", "testing"),
    ("cli",),
    ("__main__",),
]
ROOT_USERS = {"cli", "__main__"}  # on top of everything, so that `from detdata import …` makes no circle
LINE = {name: line for line, names in enumerate(LAYERS) for name in names}

# Third parties, by who may import them anywhere in a module, and who inside functions only.
EVERYWHERE = {"numpy", "xxhash"}
ANYWHERE_IN = {
    "torch": {"streams", "seeding", "reading", "samplers", "loader", "streaming", "checkpoint", "demo"},
    "pyarrow": {"rows", "versions", "corpora", "demo"},
    "click": {"cli"},
    "rich": {"cli", "demo"},
    "matplotlib": {"demo"},
}
IN_FUNCTIONS_OF = {
    "torch": {"orders/torch_shuffle.py", "corpora/columns.py", "packing.py"},
    "blake3": {"algorithms.py"},
    "fsspec": {"versions/remote.py", "checkpoint/remote_path.py", "corpora/remote.py"},
}

# keys … plans are arithmetic: no files, no processes, no clocks, no random streams.
PURE = {"keys", "permutation", "orders", "plans"}
IMPURE = {
    "os", "io", "pathlib", "shutil", "tempfile", "glob", "subprocess", "multiprocessing", "threading", "socket",
    "random", "secrets", "time", "datetime", "pickle", "importlib", "concurrent",
}  # fmt: skip


def is_type_checking(node):
    test = node.test if isinstance(node, ast.If) else None
    name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", None)
    return name == "TYPE_CHECKING"


def imports(source, module, *, is_package):
    """(imported dotted name, line, inside a function, for types only) of every import statement in `source`."""
    found = []

    def visit(node, inside, typing):
        if isinstance(node, ast.Import):
            found.extend((alias.name, node.lineno, inside, typing) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = module.split(".")
                parents = parents[: len(parents) - node.level + is_package]
                base = ".".join([*parents, base] if base else parents)
            names = [f"{base}.{alias.name}" for alias in node.names] if base == "detdata" else [base]
            found.extend((name, node.lineno, inside, typing) for name in names)
        inside = inside or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        for child in ast.iter_child_nodes(node):
            visit(child, inside, typing or (is_type_checking(node) and child in node.body))

    visit(ast.parse(source), inside=False, typing=False)
    return found


def violations(source, file):
    """What `source`, as the text of detdata/<file>, imports against the rules; one line each."""
    path = Path(file)
    module = ".".join(("detdata", *path.with_suffix("").parts)).removesuffix(".__init__")
    own = path.parts[0].removesuffix(".py")
    wrong = []
    if own not in LINE:
        return [f"{file}: {own!r} has no line in LAYERS (tests/test_layering.py); decide what it may import"]
    for name, line, inside, typing in imports(source, module, is_package=path.name == "__init__.py"):
        top, *rest = name.split(".")
        where = f"{file}:{line}: imports {name}"
        if top == "detdata":
            target = rest[0] if rest else ""
            if own in ROOT_USERS and target not in LINE:
                continue
            if target not in LINE:
                wrong.append(f"{where}, which is no module of LAYERS; import from the module that defines it")
            elif target != own and LINE[target] >= LINE[own]:
                wrong.append(f"{where}, which is not below {own}")
        elif top in sys.stdlib_module_names:
            if own in PURE and top in IMPURE:
                wrong.append(f"{where}; {sorted(PURE)} touch no files, processes, clocks or random streams")
        elif top not in EVERYWHERE and not typing:
            lazily = file in IN_FUNCTIONS_OF.get(top, ()) and inside
            if own not in ANYWHERE_IN.get(top, ()) and not lazily:
                wrong.append(f"{where}, which only {sorted(ANYWHERE_IN.get(top, ()))} may")
    return wrong


@pytest.mark.parametrize("file", [file for file in MODULES if file != PACKAGE / "__init__.py"], ids=relative)
def test_a_module_imports_only_from_lower_layers(file):
    assert violations(file.read_text(encoding="utf-8"), file.relative_to(PACKAGE).as_posix()) == []


def test_the_layers_name_each_module_once():
    names = [name for names in LAYERS for name in names]

    assert len(names) == len(set(names))
    assert all(module_name(file).split(".")[1] in LINE for file in MODULES if file != PACKAGE / "__init__.py")


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("keys.py", "from detdata.orders import Shuffle"),
        ("keys.py", "def f():\n    from detdata.plans.fixed import Plan"),
        ("orders/shuffle.py", "from detdata import Plan"),
        ("orders/shuffle.py", "import detdata"),
        ("orders/shuffle.py", "from ..plans import Plan"),
        ("orders/shuffle.py", "from .. import plans"),
        ("orders/__init__.py", "from ..loader import Loader"),
        ("orders/shuffle.py", "import torch"),
        ("orders/shuffle.py", "def f():\n    import torch.utils.data"),
        ("orders/torch_shuffle.py", "from torch import randperm"),
        ("plans/fixed.py", "def f():\n    from pathlib import Path"),
        ("plans/fixed.py", "import pyarrow"),
        ("loader.py", "import click"),
        ("newcomer.py", ""),
    ],
)
def test_the_check_sees_a_forbidden_import(file, source):
    assert len(violations(source, file)) == 1


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("orders/shuffle.py", "from detdata.orders.base import Order\nfrom .base import Order\nfrom . import base"),
        ("orders/torch_shuffle.py", "def f():\n    from torch import randperm"),
        ("plans/fixed.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch"),
        ("loader.py", "import torch\nfrom detdata.samplers import BatchSampler\nfrom detdata import samplers"),
    ],
)
def test_the_check_lets_an_allowed_import_pass(file, source):
    assert violations(source, file) == []


def test_importing_detdata_imports_nothing_heavy():
    result = run_python(
        "import sys, detdata\n"
        "dir(detdata)\n"
        "print(sorted({'torch', 'pyarrow', 'click', 'rich', 'matplotlib'} & set(sys.modules)))"
    )

    assert (result.stdout.strip(), result.stderr, result.returncode) == ("[]", "", 0)


def test_without_torch_orders_and_plans_work_and_the_loader_says_what_to_install():
    result = run_python("""
import sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NoTorch())

import detdata
print(sorted(detdata.Plan(detdata.Shuffle(10), 2).batch(0).ids.shape))
for name in ("Loader", "DistributedSampler", "BatchSampler"):
    try:
        getattr(detdata, name)
    except ImportError as error:
        print("pip install detdata[torch]" in str(error).replace("'", "").replace('"', ""))
    else:
        print(name, "came without torch")
""")

    assert (result.stdout.split("\n"), result.stderr) == (["[2]", "True", "True", "True", ""], "")
