"""A disk in memory, and every tree that a power cut may leave of it.

What POSIX promises and nothing more:

- the bytes of a file are there once the file is synced; until then there are none, zeros, a half, or all;
- names made, changed and removed in a folder since it was last synced are there or not, each by itself, in whatever
  order; a rename is one change, never half of it, and a folder never has two names.
"""

import itertools
import math
import random
from dataclasses import dataclass, field

SUBSETS = 7  # so many unsynced changes of one folder are combined in every way: 128
PRODUCT = 1024  # so many combinations of what is below one folder are all looked at
SAMPLE = 48  # of more, so many by chance, beside none, all, each alone, all but each, and the first n


@dataclass
class _Folder:
    entries: dict = field(default_factory=dict)  # name -> node, as the process sees it
    synced: dict = field(default_factory=dict)
    pending: list = field(default_factory=list)  # operations since the last sync


@dataclass
class _File:
    content: bytes = b""
    synced: bool = False


class Disk:
    """Nodes by number; states are trees of `(name, state)` pairs sorted by name, contents as numbers in `pool`."""

    def __init__(self):
        self.root = 0
        self._nodes = {0: _Folder()}
        self._next = 1

    def new_number(self):
        self._next += 1
        return self._next - 1

    def load(self, folder, name, content):
        """Add what is on the disk already: a folder where content is None."""
        node = self.new_number()
        self._nodes[node] = _Folder() if content is None else _File(content, synced=True)
        self._nodes[folder].entries[name] = self._nodes[folder].synced[name] = node
        return node

    def entries(self, folder):
        return self._nodes[folder].entries

    def content(self, node):
        return self._nodes[node].content

    def live(self, node):
        """The tree as the process sees it."""
        found = self._nodes[node]
        if isinstance(found, _File):
            return found.content
        return {name: self.live(child) for name, child in found.entries.items()}

    def path_of(self, node, start=0, path=""):
        for name, child in self._nodes[start].entries.items():
            if child == node:
                return f"{path}{name}"
            if isinstance(self._nodes[child], _Folder):
                below = self.path_of(node, child, f"{path}{name}/")
                if below is not None:
                    return below
        return "." if node == start == self.root else None

    def apply(self, operation):
        node = operation.node
        match operation.kind:
            case "write":
                self._nodes[node] = _File(operation.content)
            case "sync file":
                self._nodes[node].synced = True
            case "sync folder":
                folder = self._nodes[node]
                folder.synced, folder.pending = dict(folder.entries), []
            case _:
                if operation.kind in {"mkdir", "create"}:
                    self._nodes[node] = _Folder() if operation.kind == "mkdir" else _File()
                folder = self._nodes[operation.folder]
                _change(folder.entries, operation)
                folder.pending.append(operation)

    def states(self, pool):
        """Every tree that may be left, each once."""
        return self._states(self.root, pool, {})

    def _states(self, node, pool, known):
        if node not in known:
            known[node] = self._trees(node, pool, known)
        return known[node]

    def _trees(self, node, pool, known):
        found = self._nodes[node]
        if isinstance(found, _File):
            return list(dict.fromkeys(pool.number(content) for content in _torn(found)))
        trees = {}
        pool.sampled += len(found.pending) > SUBSETS
        for kept in subsets(found.pending):
            entries = dict(found.synced)
            for operation in kept:
                _change(entries, operation)
            names = sorted(entries)
            below = [self._states(entries[name], pool, known) for name in names]
            pool.sampled += math.prod(map(len, below)) > PRODUCT
            for states in products(below):
                trees[tuple(zip(names, states, strict=True))] = None
        return list(trees)


class Pool:
    """Contents by number, so that trees are small. sampled: how often they were too many to look at all."""

    def __init__(self):
        self.contents = []
        self.sampled = 0
        self._numbers = {}

    def number(self, content):
        if content not in self._numbers:
            self._numbers[content] = len(self.contents)
            self.contents.append(content)
        return self._numbers[content]


def _torn(file):
    content = file.content
    return [content] if file.synced else [b"", bytes(len(content)), content[: len(content) // 2], content]


def _change(entries, operation):
    """Make one change of names; what it takes away counts only where it is what the name stands for."""
    node = operation.node
    if operation.kind == "unlink":
        if entries.get(operation.name) == node:
            del entries[operation.name]
        return
    for name in [name for name, other in entries.items() if other == node]:
        del entries[name]  # it has one name at a time, also where an earlier change of it did not reach the disk
    entries[operation.target or operation.name] = node


def subsets(items):
    """Every selection of `items`, in order; of many: none, all, each alone, all but each, the first n, and some."""
    count = len(items)
    if count <= SUBSETS:
        chosen = range(1 << count)
    else:
        whole = (1 << count) - 1
        singles = [1 << bit for bit in range(count)]
        by_chance = random.Random(count)
        sample = [by_chance.getrandbits(count) for _ in range(SAMPLE)]
        chosen = dict.fromkeys(
            [0, whole, *singles, *(whole ^ one for one in singles), *((1 << bit) - 1 for bit in range(count)), *sample]
        )
    for mask in chosen:
        yield [item for bit, item in enumerate(items) if mask >> bit & 1]


def products(choices):
    """Every combination of one of each; of many: the first and the last of all, one changed at a time, and some."""
    size = 1
    for choice in choices:
        size *= len(choice)
    if size <= PRODUCT:
        yield from itertools.product(*choices)
        return
    by_chance = random.Random(size)
    for base in ([choice[0] for choice in choices], [choice[-1] for choice in choices]):
        yield tuple(base)
        for place, choice in enumerate(choices):
            for one in choice:
                yield (*base[:place], one, *base[place + 1 :])
    for _ in range(SAMPLE):
        yield tuple(by_chance.choice(choice) for choice in choices)
