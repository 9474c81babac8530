import pytest

from detdata.demo.folder import MARKER, ForeignFolder, prepare


def test_a_new_and_an_empty_folder_are_taken_and_marked(tmp_path):
    for folder in (tmp_path / "deep" / "new", tmp_path / "empty"):
        if folder.name == "empty":
            folder.mkdir()

        assert prepare(folder) == folder
        assert (folder / MARKER).is_file()


def test_a_folder_of_somebody_else_is_refused_and_untouched(tmp_path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "thesis.txt").write_text("years of work")

    with pytest.raises(ForeignFolder, match=r"not empty and has no file \.detdata-demo"):
        prepare(tmp_path)

    assert (tmp_path / "runs" / "thesis.txt").read_text() == "years of work"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs"]


def test_a_file_is_refused(tmp_path):
    file = tmp_path / "file"
    file.write_text("x")

    with pytest.raises(ForeignFolder, match="not a folder"):
        prepare(file)


def test_only_what_a_demo_wrote_is_replaced(tmp_path):
    prepare(tmp_path)
    (tmp_path / "runs" / "straight").mkdir(parents=True)
    (tmp_path / "table.json").write_text("{}")
    (tmp_path / "notes.txt").write_text("mine")

    prepare(tmp_path)

    assert sorted(path.name for path in tmp_path.iterdir()) == [MARKER, "notes.txt"]


def test_a_link_among_the_leftovers_is_removed_and_not_followed(tmp_path):
    folder, elsewhere = prepare(tmp_path / "demo"), tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").write_text("x")
    (folder / "runs").symlink_to(elsewhere, target_is_directory=True)

    prepare(folder)

    assert not (folder / "runs").exists()
    assert (elsewhere / "kept").is_file()
