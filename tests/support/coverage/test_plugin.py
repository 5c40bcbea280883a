"""The plugin in test processes of its own, as `make test` has them."""

import os
import subprocess
import sys
from pathlib import Path

import coverage

ROOT = Path(__file__).parents[3]


def test_each_worker_measures_what_it_runs_and_what_its_conftest_imports(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[tool.pytest.ini_options]\npythonpath = ["."]\n[tool.coverage.run]\nsource = ["product"]\n'
    )
    product = tmp_path / "product"
    product.mkdir()
    (product / "early.py").write_text("def unused():\n    return 1\n")
    (product / "late.py").write_text("def one():\n    return 1\ndef two():\n    return 2\ndef three():\n    return 3\n")
    (tmp_path / "conftest.py").write_text("import product.early\n")
    for name in ("one", "two"):
        (tmp_path / f"test_{name}.py").write_text(
            f"import product.late\ndef test_{name}():\n    assert product.late.{name}()\n"
        )
    environment = os.environ | {"PYTEST_PLUGINS": "tests.support.coverage.plugin", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", "-p", "no:hypothesispytest"]
    run = subprocess.run(command, check=False, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr

    # One of each worker, and one of the process that has them.
    assert len(list(tmp_path.glob(".coverage.*"))) == 3
    report = coverage.Coverage(data_file=str(tmp_path / ".coverage"), config_file=str(tmp_path / "pyproject.toml"))
    report.combine([str(tmp_path)])
    assert report.analysis2(str(product / "early.py"))[3] == [2]
    assert report.analysis2(str(product / "late.py"))[3] == [6]
