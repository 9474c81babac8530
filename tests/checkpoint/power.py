"""The proof: after every operation the power goes, and whatever may be left is looked at with the real finder."""

import contextlib
import copy
import os
import shutil
import tempfile
import warnings
from dataclasses import dataclass, field
from pathlib import Path

from detdata.checkpoint import store
from detdata.checkpoint.group import Alone
from detdata.checkpoint.manifest import MANIFEST
from detdata.checkpoint.selection import select
from detdata.checkpoint.verify import find_problems
from detdata.errors import CheckpointBroken
from tests.checkpoint.disk import Pool
from tests.checkpoint.recorder import contents

BROKEN = "there are checkpoints, and none is whole"


def verified(root):
    """The newest folder that the finder and the verification accept; None where there is none; BROKEN."""
    candidates = store.find(root)
    for candidate in candidates:
        if candidate.manifest is not None and not find_problems(candidate.path, candidate.manifest):
            return candidate.path
    return BROKEN if candidates else None


def selected(root):
    """The same by what `resume` does, which reads every part too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            saved = select(root, None, Alone(), strict=False)
        except CheckpointBroken:
            return BROKEN
    return None if saved is None else saved.path


@dataclass
class Proof:
    """Counts what was examined, and keeps what spoke against it.

    folder: for the trees. root: the folder of checkpoints, relative to the base of a recording. finder: root -> path.
    rank: content of a checkpoint -> its place in time, from 0, or None if no save has written that.
    """

    folder: Path
    root: str
    rank: object
    finder: object = verified
    prefixes: int = 0
    states: int = 0
    counterexamples: list = field(default_factory=list)
    _pool: Pool = field(default_factory=Pool)
    _outcomes: dict = field(default_factory=dict)

    @property
    def distinct(self):
        return len(self._outcomes)

    def __str__(self):
        seen = f"{self.prefixes} prefixes, {self.states} states, {self.distinct} of them distinct"
        return f"{seen}, {self._pool.sampled} times sampled" if self._pool.sampled else f"{seen}, exhaustive"

    def examine(self, recorder, floor=None, skip=0):
        """Cut the power before each operation from `skip` on, and after the last. floor: rank that is kept anyhow."""
        disk = copy.deepcopy(recorder.before)
        for count in range(len(recorder.operations) + 1):
            if count:
                disk.apply(recorder.operations[count - 1])
            if count < skip:
                continue
            returned = [rank for rank in [floor] if rank is not None]
            returned += [self.rank(content) for at, content in recorder.saves if at <= count]
            self.prefixes += 1
            for tree in disk.states(self._pool):
                self.states += 1
                fault = self._fault(tree, max(returned, default=None))
                if fault:
                    last = recorder.operations[count - 1] if count else "nothing"
                    self.counterexamples.append(f"after operation {count} ({last}): {fault}")

    def trees(self, recorder):
        """The distinct trees that a cut anywhere may leave, names of temporary folders aside."""
        disk = copy.deepcopy(recorder.before)
        found = {_canonical(tree): None for tree in disk.states(self._pool)}
        for operation in recorder.operations:
            disk.apply(operation)
            found.update({_canonical(tree): None for tree in disk.states(self._pool)})
        return list(found)

    def build(self, tree, folder):
        """Make `tree` in `folder`, files as links to one copy of each content."""
        folder.mkdir()
        for name, state in tree:
            if isinstance(state, tuple):
                self.build(state, folder / name)
            else:
                os.link(self._copy(state), folder / name)

    def _copy(self, number):
        path = self.folder / f"content-{number}"
        if not path.exists():
            path.write_bytes(self._pool.contents[number])
        return path

    def _fault(self, tree, floor):
        key = _canonical(tree)
        if key not in self._outcomes:
            self._outcomes[key] = self._look(key)
        found, after = self._outcomes[key]
        if found == BROKEN or isinstance(after, str):
            return f"{found if found == BROKEN else after}; there are {_names(tree)}"
        if found != after:
            return f"cleaning up turned {found} into {after}"
        if (floor is not None and (found is None or found < floor)) or found == -1:
            return f"found {found}, {floor} had returned; there are {_names(tree)}"
        return None

    def _look(self, tree):
        base = self.folder / "tree"
        self.build(tree, base)
        root = base / self.root
        found = self._find(root)
        try:
            if root.exists():
                store.sweep(root)
            after = self._find(root)
            left = [path.name for path in root.iterdir() if _is_left(path.name)] if root.exists() else []
            if left:
                after = f"the next save leaves {left}"
        except OSError as error:
            after = f"the next save fails: {error!r}"
        shutil.rmtree(base)
        return found, after

    def _find(self, root):
        path = self.finder(root)
        if path is None or path == BROKEN:
            return path
        rank = self.rank(contents(path))
        return -1 if rank is None else rank


def _is_left(name):
    return name.startswith(store.TEMPORARY) or name.endswith(store.PREVIOUS)


def _names(tree):
    return ", ".join(f"{name}/ ({_names(state)})" if isinstance(state, tuple) else name for name, state in tree)


def _canonical(tree):
    """The tree with temporary folders numbered: their names carry the time, and mean nothing."""
    result, count = [], 0
    for name, state in tree:
        temporary = name.startswith(store.TEMPORARY)
        named = f"{store.TEMPORARY}{count}" if temporary else name
        count += temporary
        result.append((named, _canonical(state) if isinstance(state, tuple) else state))
    return tuple(result)


def saved_rank(recorder):
    """Rank by the exact content of the saves of a recording."""
    return lambda content: next((rank for rank, (_, saved) in enumerate(recorder.saves) if saved == content), None)


@contextlib.contextmanager
def scratch():
    """A folder for many small trees: in memory where there is such a place."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


MEMBERS = ("model.pt", "progress.json")


def plain_save(root, step, kind="latest"):
    """A save without torch: two small members that say the step."""
    stage = store.Stage(root)
    try:
        for name in MEMBERS:
            stage.write(name, lambda file, name=name: file.write(f"{name} of step {step}".encode()))
        return stage.publish(kind, step)
    finally:
        stage.abandon()


def plain_rank(content):
    """The step that every member of a plain save says, if they agree."""
    steps = {data.rpartition(b" ")[2] for name, data in content.items() if name != MANIFEST}
    if set(content) != {MANIFEST, *MEMBERS} or len(steps) != 1:
        return None
    return int(steps.pop())
