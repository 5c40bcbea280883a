"""What a process that works shows its supervisor."""

import os
import subprocess
import sys

from services.chassis.process import pulse

WORKS_THEN_HANGS = """
import asyncio, sys, time
from services.chassis.process import pulse
pulse.BEAT_EVERY_S = 0.01
async def main():
    pulse.begin()
    await asyncio.sleep(0.5)
    print("hangs", flush=True)
    time.sleep(600)
asyncio.run(main())
"""


def test_event_loop_that_turns_beats_and_one_that_hangs_does_not() -> None:
    beaten, beating = os.pipe()
    environ = {**os.environ, pulse.VARIABLE: str(beating)}
    command = [sys.executable, "-c", WORKS_THEN_HANGS]
    with subprocess.Popen(command, env=environ, pass_fds=(beating,), stdout=subprocess.PIPE) as process:
        os.close(beating)
        assert process.stdout is not None
        assert process.stdout.readline() == b"hangs\n"
        os.set_blocking(beaten, False)
        assert len(os.read(beaten, 4096)) > 1
        process.kill()
    assert os.read(beaten, 4096) == b""
    os.close(beaten)


def test_process_started_by_hand_has_no_pulse() -> None:
    program = "import asyncio; from services.chassis.process.pulse import begin; asyncio.run(asyncio.to_thread(begin))"
    environ = {name: value for name, value in os.environ.items() if name != pulse.VARIABLE}
    subprocess.run([sys.executable, "-c", program], env=environ, check=True)
