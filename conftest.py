"""Keeps the bytecode of what tests import in one place, whatever the environment says, as the Makefile does.

Images of Python often forbid bytecode to be written. Then each test process compiles all libraries anew, which takes it
a minute, and so does each process that a test starts.
"""

import os
import sys
from pathlib import Path

if sys.pycache_prefix is None:
    sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = str(Path(__file__).parent / ".venv" / "bytecode")
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

pytest_plugins = ["tests.support.workers.plugin"]
