"""Stripe's library takes a tenth of a second and 15 MB: only the process that uses it pays for it."""

import subprocess
import sys

PROCESSES = "console, edge, services.auth, services.metering, services.router"


def test_no_other_process_and_no_command_loads_stripe() -> None:
    code = f"""
import importlib, sys
for name in "{PROCESSES}".split(", "):
    importlib.import_module(name + ".__main__")
import cli.commands.service.up, cli.supervision.settings_check
cli.supervision.settings_check.kinds_of_settings()
assert not {{"stripe", "requests", "urllib3"}} & set(sys.modules)
import services.payments.__main__
assert "stripe" in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
