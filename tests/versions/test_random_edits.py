"""Random trees, random edits: the report names exactly the edits."""

from hypothesis import given, settings
from hypothesis import strategies as st

from detdata import Manifest, hash_dataset
from tests.versions.trees import make_tree

NAMES = st.builds(
    lambda folders, name: "/".join([*folders, name]),
    st.lists(st.sampled_from(["d", "d.x", "é", "D\n"]), max_size=2),
    st.sampled_from(["a", "b", ".c", "Q", "z z", "日"]),
)
EDITS = st.sampled_from(["keep", "keep", "remove", "flip", "grow", "rename"])


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_the_report_says_exactly_what_was_done(tmp_path_factory, data):
    root = tmp_path_factory.mktemp("tree")
    paths = data.draw(st.lists(NAMES, min_size=1, max_size=8, unique=True))
    tree = {path: f"{number}".encode() * 3 for number, path in enumerate(paths)}  # no two alike, so renames are clear
    make_tree(root, tree)
    manifest = hash_dataset(root)

    expected = {"added": set(), "removed": set(), "changed": set(), "renamed": set()}
    free = data.draw(st.lists(NAMES.map(lambda name: f"new/{name}"), max_size=8, unique=True))
    for path in paths:
        edit = data.draw(EDITS)
        file = root / path
        if edit == "remove":
            file.unlink()
            expected["removed"].add(path)
        elif edit == "flip":
            file.write_bytes(b"!" + tree[path][1:])
            expected["changed"].add(path)
        elif edit == "grow":
            file.write_bytes(tree[path] + b"+")
            expected["changed"].add(path)
        elif edit == "rename" and free:
            target = root / free.pop()
            target.parent.mkdir(parents=True, exist_ok=True)
            file.rename(target)
            expected["renamed"].add((path, target.relative_to(root).as_posix()))
    for number, path in enumerate(free):
        make_tree(root, {path: f"new {number}".encode()})
        expected["added"].add(path)

    report = Manifest.from_text(manifest.to_text()).verify(root)
    assert {
        "added": set(report.added),
        "removed": set(report.removed),
        "changed": {change.path for change in report.changed},
        "renamed": set(report.renamed),
    } == expected
    assert report.ok == (not any(expected.values()))
    if report.grown:
        assert set(map(bool, (expected[kind] for kind in ("removed", "changed", "renamed")))) == {False}
