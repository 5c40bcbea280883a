"""Bytecode for processes that are started again and again, also where the environment wants none to be written."""

import atexit
import shutil
import sys
import tempfile
from functools import cache


@cache
def with_bytecode() -> dict[str, str]:
    """Variables for such a process."""
    if not sys.dont_write_bytecode:
        return {}
    folder = tempfile.mkdtemp(prefix="lg-bytecode-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": folder}
