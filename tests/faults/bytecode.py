"""A place for the bytecode of processes that are started again and again, whatever the environment says about it."""

import atexit
import shutil
import tempfile

_FOLDER = tempfile.mkdtemp(prefix="lg-bytecode-")
atexit.register(shutil.rmtree, _FOLDER, ignore_errors=True)

WITH_BYTECODE = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": _FOLDER}
