"""Every example in a docstring of detdata runs and prints what it says, those of the torch side too."""

import doctest
import importlib

import pytest

from tests.sources import MODULES, module_name

NAMES = [module_name(file) for file in MODULES if file.stem != "__main__"]


@pytest.mark.parametrize("name", NAMES)
def test_the_examples_of_a_module_run(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)  # an example that writes, writes there

    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)

    assert result.failed == 0, capsys.readouterr().out
