"""A reader while another process saves: it lists before and reads after any step of the writer.

The writer's operations are recorded from real saves, and made again between the reader's looks at the disk.
"""

import copy
import itertools
import sys

import pytest

from detdata.checkpoint import SavePolicy, list_checkpoints
from detdata.checkpoint.group import Alone
from detdata.checkpoint.manifest import read_manifest
from detdata.checkpoint.selection import select
from tests.checkpoint.fakes import save_steps
from tests.checkpoint.power import scratch
from tests.checkpoint.recorder import Recorder

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("error")]

SCENARIOS = {
    "overwrites of latest": ("latest", [1], [2, 3], None),
    "retention": ("periodic", [1, 2], [3, 4], 1),
    "periodic replacing itself": ("periodic", [5], [5, 5], None),
}


class Looks:
    """Calls `before(n)` before the look number n of whoever reads below a folder."""

    def __init__(self):
        self._folder, self._before = None, None
        sys.addaudithook(self._hook)  # there until the process ends, and idle when nobody reads

    def watch(self, folder, before, work):
        self.count, self._before, self._folder = 0, before, str(folder)
        try:
            return work()
        finally:
            self._folder = None

    def _hook(self, event, arguments):
        folder = self._folder
        if folder is None or event not in {"open", "os.listdir"} or not str(arguments[0]).startswith(folder):
            return
        self._folder = None
        self._before(self.count)
        self.count += 1
        self._folder = folder


@pytest.fixture(scope="module")
def looks():
    return Looks()


@pytest.fixture(scope="module", params=SCENARIOS)
def recorded(request):
    kind, before, saves, keep = SCENARIOS[request.param]
    with scratch() as folder, pytest.MonkeyPatch.context() as patch:
        root, policy = folder / "root", SavePolicy(keep_periodic=keep)
        paths = [path for path in save_steps(root, before, kind, policy=policy) if path.exists()]
        recorder = Recorder(folder)
        for path in paths:
            recorder.returned(path)
        recorder.times = [read_manifest(path).saved_ns for path in paths]
        recorder.kind, recorder.step = kind, saves[-1]
        recorder.install(patch)
        for step in saves:
            [path] = save_steps(root, [step], kind, policy=policy)
            recorder.returned(path)
            recorder.times.append(read_manifest(path).saved_ns)
        recorder.finish()
        yield recorder


class Writer:
    """Makes the recorded operations in `folder`, up to the number that it is told."""

    def __init__(self, recorder, folder):
        self._operations, self._disk = recorder.operations, copy.deepcopy(recorder.before)
        self.folder, self.done = folder, 0
        folder.mkdir()
        _make(self._disk.live(0), folder)

    def go_to(self, count):
        for operation in self._operations[self.done : count]:
            if operation.folder is not None:
                path = self.folder / self._disk.path_of(operation.folder) / operation.name
                _do(operation, path)
            elif operation.kind == "write":
                (self.folder / self._disk.path_of(operation.node)).write_bytes(operation.content)
            self._disk.apply(operation)
        self.done = max(self.done, count)


def _make(tree, folder):
    for name, below in tree.items():
        if isinstance(below, dict):
            (folder / name).mkdir()
            _make(below, folder / name)
        else:
            (folder / name).write_bytes(below)


def _do(operation, path):
    match operation.kind:
        case "mkdir":
            path.mkdir()
        case "create":
            path.touch()
        case "rename":
            path.rename(path.with_name(operation.target))
        case "unlink" if path.is_dir():
            path.rmdir()
        case "unlink":
            path.unlink()


def seen(recorder):
    """Operations after which a reader may see something else: renames, and every third of the files removed."""
    kinds = ["", *(operation.kind for operation in recorder.operations)]
    removing = [at for at, kind in enumerate(kinds) if kind == "unlink"]
    return sorted({0, len(kinds) - 1, *removing[::3], *(at for at, kind in enumerate(kinds) if kind == "rename")})


def returned(recorder, count):
    return sum(at <= count for at, _ in recorder.saves) - len(recorder.saves) + len(recorder.times) - 1


def read(root, recorder):
    """The number of the save that is found; every number of it is checked."""
    saved = select(root, None, Alone(), strict=True)
    assert all((value == saved.progress.global_step).all() for value in saved.trees["model.pt"].values())
    return recorder.times.index(saved.manifest.saved_ns)


def race(recorder, looks, start, place, work):
    """Run `work(root)` with the writer at `start`, and before look number n at `place(n)`."""
    with scratch() as folder:
        writer = Writer(recorder, folder / "disk")
        writer.go_to(start)
        return looks.watch(folder, lambda number: writer.go_to(place(number)), lambda: work(writer.folder / "root"))


def interleavings(recorder, looks, work):
    """Run `work(root)` with each pair of the writer's places, the second reached before each look."""
    for start, end in itertools.combinations(seen(recorder), 2):
        for at in itertools.count():
            yield start, race(recorder, looks, start, lambda number, at=at, end=end: end if number >= at else 0, work)
            if at >= looks.count:
                break


def test_a_reader_finds_what_had_been_saved_when_it_began_or_later(recorded, looks):
    examined = 0
    for start, found in interleavings(recorded, looks, lambda root: read(root, recorded)):
        assert found >= returned(recorded, start)
        examined += 1

    print(f"\n{examined} interleavings of a reader and a writer")
    assert examined > 250


@pytest.mark.parametrize("stride", [1, 2, 3, 5, 8])
def test_a_reader_finds_it_where_the_writer_moves_at_every_look(stride, recorded, looks):
    places = seen(recorded)
    for start, place in enumerate(places):

        def moving(number, start=start):
            return places[min(start + number * stride, len(places) - 1)]

        assert race(recorded, looks, place, moving, lambda root: read(root, recorded)) >= returned(recorded, place)


def test_a_list_shows_no_fault_where_there_is_none(recorded, looks):
    for _, entries in interleavings(recorded, looks, list_checkpoints):
        assert entries
        assert [entry.problems for entry in entries if not entry.ok] == []
