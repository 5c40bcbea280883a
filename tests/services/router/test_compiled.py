"""The compiled part of the router is used where it is there, and is not missed where it is not."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from services.router import compiled, native
from services.router.prompts.running_count import PythonRunningCount


def load_again() -> ModuleType:
    spec = importlib.util.spec_from_file_location("compiled_again", Path(str(compiled.__file__)))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_was_compiled_is_used() -> None:
    for name in compiled.__all__:
        assert getattr(compiled, name) is getattr(native, name)


def test_without_it_texts_are_counted_in_python_and_everything_is_left_to_the_parsers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "services.router.native", None)
    without = load_again()
    assert without.RunningCount is PythonRunningCount
    assert without.pack_read(b"", PythonRunningCount(len), 0, 1, 1, 1) is None
    assert without.read_leading_texts(b"data: {}\n\n") == ([], 0)
    position = without.ChunkPosition()
    position.begin()
    position.end()
    assert not position.is_between
