import asyncio
import dataclasses
import io
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from cli.supervision import process_log
from cli.supervision.health import HealthProbe
from cli.supervision.supervisor import ProcessSpec, StartFailed, Supervisor, Timing
from services.chassis.telemetry.log import Log
from tests.support.waiting import until

# Answers GET /health on the socket it is given; appends its end to a file that all of them share.
SERVES = """
import os, signal, socket, sys
from services.chassis.process import lifeline
lifeline.hold()
name, path, diary = sys.argv[1:]
def end(*_):
    with open(diary, "a") as file:
        file.write(name + "\\n")
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
if os.path.exists(path):
    os.unlink(path)
listener = socket.socket(socket.AF_UNIX)
listener.bind(path)
listener.listen()
while True:
    connection, _ = listener.accept()
    connection.settimeout(2)
    connection.recv(1000)
    try:
        connection.sendall(b"HTTP/1.1 200 OK\\r\\n\\r\\n")
    except OSError:
        pass
    connection.close()
"""
IGNORES_SIGTERM = SERVES.replace("signal.signal(signal.SIGTERM, end)", "signal.signal(signal.SIGTERM, signal.SIG_IGN)")
FAILS = "import sys; print('the weights are missing: install them', file=sys.stderr); sys.exit(2)"
# Its second run does not begin.
SERVES_ONCE = f"""
import sys
from pathlib import Path
if Path(sys.argv[3]).exists():
    print('the routes are wrong', file=sys.stderr)
    sys.exit(2)
Path(sys.argv[3]).touch()
{SERVES}"""
NEVER_SERVES = "import time; time.sleep(60)"

QUICK = Timing(first_delay_s=0.01, longest_delay_s=0.04, start_timeout_s=20, grace_s=10)


class Scene:
    """A supervisor on stand-in processes, and what it said and did."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.said: list[str] = []
        self.states: list[dict[str, Any]] = []
        self.log = io.StringIO()
        self.stop = asyncio.Event()
        self.hurry = asyncio.Event()
        self.ready = asyncio.Event()

    def process(self, name: str, program: str = SERVES) -> ProcessSpec:
        socket = str(self.folder / f"{name}.sock")
        argv = [sys.executable, "-c", program, name, socket, str(self.folder / "diary")]
        return ProcessSpec(name, argv, dict(os.environ), HealthProbe("http", socket))

    def supervisor(self, *groups: list[ProcessSpec], timing: Timing = QUICK) -> Supervisor:
        return Supervisor(groups, self.folder, Log("up", self.log), self.said.append, self._on_change, timing)

    def _on_change(self, states: list[dict[str, Any]]) -> None:
        self.states = states

    async def run(self, supervisor: Supervisor) -> None:
        async def on_ready() -> None:
            self.ready.set()

        await supervisor.run(self.stop, self.hurry, on_ready)

    @asynccontextmanager
    async def running(self, supervisor: Supervisor) -> AsyncIterator[None]:
        task = asyncio.create_task(self.run(supervisor))
        try:
            await asyncio.wait_for(self.ready.wait(), 20)
            yield
        finally:
            self.stop.set()
            await asyncio.wait_for(task, 20)

    def pid(self, name: str) -> int | None:
        pid: int | None = next(state["pid"] for state in self.states if state["name"] == name)
        return pid

    def restarts(self, name: str) -> int:
        restarts: int = next(state["restarts"] for state in self.states if state["name"] == name)
        return restarts

    def diary(self) -> list[str]:
        return (self.folder / "diary").read_text().split()


@pytest.fixture
def scene(socket_folder: Path) -> Scene:
    return Scene(socket_folder)


def lives(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def pipes_of(pid: int | None, mode: int) -> set[str]:
    """Asks the kernel which pipes of a process were opened to be read, or written."""
    pipes = {link.name: str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()}
    flags = {name: Path(f"/proc/{pid}/fdinfo/{name}").read_text().split()[3] for name in pipes}
    return {
        pipe for name, pipe in pipes.items() if pipe.startswith("pipe:") and int(flags[name], 8) & os.O_ACCMODE == mode
    }


async def test_it_is_ready_only_when_every_process_serves(scene: Scene) -> None:
    slow = scene.process("slow", "import time; time.sleep(0.5)\n" + SERVES)
    async with scene.running(scene.supervisor([slow], [scene.process("quick")])):
        assert slow.health.is_serving()
        assert sorted(line.split(" is ready")[0] for line in scene.said) == ["quick", "slow"]


async def test_it_is_ready_without_a_process_that_is_not_awaited(scene: Scene) -> None:
    never_serves = dataclasses.replace(scene.process("console", "import time; time.sleep(600)"), is_awaited=False)
    supervisor = scene.supervisor([scene.process("auth")], [never_serves])
    async with scene.running(supervisor):
        assert scene.pid("console") is not None
    assert not any("console is ready" in text for text in scene.said)


async def test_processes_end_in_order_last_group_first(scene: Scene) -> None:
    groups = [[scene.process("auth")], [scene.process("router")], [scene.process("edge-1"), scene.process("edge-2")]]
    async with scene.running(scene.supervisor(*groups)):
        pids = [scene.pid(name) for name in ("auth", "router", "edge-1", "edge-2")]
    ended = scene.diary()
    assert sorted(ended[:2]) == ["edge-1", "edge-2"]
    assert ended[2:] == ["router", "auth"]
    assert not any(lives(pid) for pid in pids if pid)


async def test_a_process_that_dies_is_started_again_and_it_says_so(scene: Scene) -> None:
    async with scene.running(scene.supervisor([scene.process("auth")])):
        first = scene.pid("auth")
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await until(lambda: "auth is ready again" in scene.said)
        assert scene.pid("auth") not in (None, first)
        assert scene.restarts("auth") == 1
    assert "auth ended (SIGKILL); restarting it in 0.01 s" in scene.said
    assert "process.ended" in scene.log.getvalue()


async def test_a_process_that_finds_a_setting_wrong_when_it_is_started_again_is_quoted(scene: Scene) -> None:
    async with scene.running(scene.supervisor([scene.process("router", SERVES_ONCE)])):
        pid = scene.pid("router")
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await until(lambda: scene.restarts("router") >= 2)
        (scene.folder / "router.log").unlink()
        await until(lambda: scene.restarts("router") >= 4)
    assert "router ended (exit code 2: the routes are wrong); restarting it in 0.02 s" in scene.said


async def test_a_process_that_keeps_dying_is_started_ever_more_slowly(scene: Scene) -> None:
    async with scene.running(scene.supervisor([scene.process("auth")])):
        for restarts in range(1, 5):
            pid = scene.pid("auth")
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            await until(lambda: scene.restarts("auth") == restarts and scene.pid("auth") is not None)  # noqa: B023
    delays = [line.split(" in ")[1] for line in scene.said if "restarting it" in line]
    assert delays == ["0.01 s", "0.02 s", "0.04 s", "0.04 s"]


async def test_a_process_that_had_lived_for_long_starts_again_at_once(scene: Scene) -> None:
    timing = Timing(first_delay_s=0.01, steady_after_s=0.0)
    async with scene.running(scene.supervisor([scene.process("auth")], timing=timing)):
        for restarts in range(1, 4):
            pid = scene.pid("auth")
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            await until(lambda: scene.restarts("auth") == restarts and scene.pid("auth") is not None)  # noqa: B023
    delays = [line.split(" in ")[1] for line in scene.said if "restarting it" in line]
    assert delays == ["0.01 s"] * 3


async def test_a_process_that_does_not_start_ends_everything_and_is_quoted(scene: Scene) -> None:
    supervisor = scene.supervisor([scene.process("auth")], [scene.process("local-model", FAILS)])
    with pytest.raises(StartFailed) as failure:
        await scene.run(supervisor)
    assert str(failure.value).startswith("local-model did not start: the weights are missing: install them (see ")
    assert "\n" not in str(failure.value)
    assert not scene.ready.is_set()
    assert not any(state["pid"] is not None and lives(state["pid"]) for state in scene.states)


async def test_a_process_that_never_serves_ends_everything(scene: Scene) -> None:
    supervisor = scene.supervisor([scene.process("router", NEVER_SERVES)], timing=Timing(start_timeout_s=0.3))
    with pytest.raises(StartFailed, match="router was not ready within 0 s"):
        await scene.run(supervisor)
    pid = scene.pid("router")
    assert pid is not None
    assert not lives(pid)


async def test_stopped_while_it_starts_it_ends_what_it_began(scene: Scene) -> None:
    task = asyncio.create_task(scene.run(scene.supervisor([scene.process("router", NEVER_SERVES)])))
    await until(lambda: bool(scene.states))
    scene.stop.set()
    await asyncio.wait_for(task, 20)
    pid = scene.pid("router")
    assert pid is not None
    assert not lives(pid)
    assert not scene.ready.is_set()


async def test_a_process_that_ignores_sigterm_is_killed_after_the_grace(scene: Scene) -> None:
    timing = Timing(grace_s=0.1)
    async with scene.running(scene.supervisor([scene.process("edge-1", IGNORES_SIGTERM)], timing=timing)):
        pid = scene.pid("edge-1")
    assert pid is not None
    assert not lives(pid)


async def test_a_second_signal_cuts_the_grace_short(scene: Scene) -> None:
    timing = Timing(grace_s=3600)
    async with scene.running(scene.supervisor([scene.process("edge-1", IGNORES_SIGTERM)], timing=timing)):
        scene.hurry.set()


async def test_output_of_a_process_goes_to_its_log(scene: Scene) -> None:
    async with scene.running(scene.supervisor([scene.process("auth", "print('hello', flush=True)\n" + SERVES)])):
        assert (scene.folder / "auth.log").read_text() == "hello\n"


async def test_processes_do_not_inherit_the_end_that_keeps_them_alive(scene: Scene) -> None:
    """Else they would keep each other alive when the supervisor is killed."""
    async with scene.running(scene.supervisor([scene.process("auth")], [scene.process("router")])):
        auth, router = (scene.pid(name) for name in ("auth", "router"))
        lifeline_of_all = pipes_of(auth, os.O_RDONLY)
        assert len(lifeline_of_all) == 1
        assert lifeline_of_all == pipes_of(router, os.O_RDONLY)
        # Each has its own pulse, and nothing else.
        pulses = [pipes_of(pid, os.O_WRONLY) for pid in (auth, router)]
        assert [len(pulse) for pulse in pulses] == [1, 1]
        assert len(lifeline_of_all.union(*pulses)) == 3


async def test_a_state_that_cannot_be_written_does_not_end_what_runs(scene: Scene) -> None:
    def disk_is_full(states: list[dict[str, Any]]) -> None:
        raise OSError(28, "No space left on device")

    supervisor = Supervisor(
        [[scene.process("auth")]], scene.folder, Log("up", scene.log), scene.said.append, disk_is_full
    )
    async with scene.running(supervisor):
        assert supervisor.names == ["auth"]
    assert "state.not_written" in scene.log.getvalue()


# Serves until a file is there; then it lives on, and hangs.
HANGS = SERVES.replace(
    "connection.settimeout(2)",
    """connection.settimeout(2)
    while os.path.exists(path + ".hang"):
        import time; time.sleep(0.01)""",
)
WATCHFUL = Timing(
    first_delay_s=0.01, start_timeout_s=20, check_every_s=0.05, check_timeout_s=1.0, unresponsive_after_s=2.0
)


async def test_a_process_that_hangs_is_started_again_and_it_says_so(scene: Scene) -> None:
    hangs, well = scene.process("router", HANGS), scene.process("auth")
    async with scene.running(scene.supervisor([hangs], [well], timing=WATCHFUL)):
        first, beside = scene.pid("router"), scene.pid("auth")
        marker = scene.folder / "router.sock.hang"
        marker.touch()
        await until(lambda: scene.restarts("router") == 1, within_s=60)
        marker.unlink()
        await until(lambda: "router is ready again" in scene.said)
        assert scene.pid("router") not in (None, first)
        assert (scene.pid("auth"), scene.restarts("auth")) == (beside, 0)
    assert any(line.startswith("router has not answered for ") for line in scene.said)
    assert "process.unresponsive" in scene.log.getvalue()


# Answers nothing from then on, but its event loop turns.
OVERLOADED = """
import asyncio, os, sys
from services.chassis.process import lifeline, pulse
lifeline.hold()
path = sys.argv[2]
async def answer(reader, writer):
    await reader.read(1000)
    if not os.path.exists(path + ".overload"):
        writer.write(b"HTTP/1.1 200 OK\\r\\n\\r\\n")
        writer.close()
async def main():
    pulse.BEAT_EVERY_S = 0.1
    pulse.begin()
    await asyncio.start_unix_server(answer, path)
    while not os.path.exists(path + ".hang"):
        await asyncio.sleep(0.05)
    import time
    time.sleep(600)
asyncio.run(main())
"""


async def test_a_process_that_is_overloaded_is_left_alone_until_it_hangs(scene: Scene) -> None:
    async with scene.running(scene.supervisor([scene.process("edge", OVERLOADED)], timing=WATCHFUL)):
        pid = scene.pid("edge")
        (scene.folder / "edge.sock.overload").touch()
        await until(lambda: any("edge is overloaded" in line for line in scene.said), within_s=60)
        assert (scene.pid("edge"), scene.restarts("edge")) == (pid, 0)
        (scene.folder / "edge.sock.hang").touch()
        await until(lambda: scene.restarts("edge") == 1, within_s=60)
    assert "process.overloaded" in scene.log.getvalue()


async def test_a_process_that_is_stopped_is_started_again(scene: Scene) -> None:
    async with scene.running(scene.supervisor([scene.process("metering")], timing=WATCHFUL)):
        pid = scene.pid("metering")
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        await until(lambda: "metering is ready again" in scene.said, within_s=60)
        assert not lives(pid)


async def test_a_process_that_hangs_as_it_starts_again_is_not_waited_for_forever(scene: Scene) -> None:
    hangs_later = f"""
import sys, time
from pathlib import Path
runs = Path(sys.argv[3] + ".runs")
with runs.open("a") as file:
    file.write("x")
if len(runs.read_text()) == 2:
    time.sleep(600)
{SERVES}"""
    timing = Timing(
        first_delay_s=0.01, start_timeout_s=20, check_every_s=0.05, check_timeout_s=1.0, unresponsive_after_s=2.0
    )
    supervisor = scene.supervisor([scene.process("auth", hangs_later)], timing=timing)
    async with scene.running(supervisor):
        # The first start may have taken its time; the next is given little.
        supervisor.timing = Timing(
            first_delay_s=0.01, start_timeout_s=1.0, check_every_s=0.05, check_timeout_s=1.0, unresponsive_after_s=2.0
        )
        pid = scene.pid("auth")
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await until(lambda: scene.restarts("auth") >= 2 and "auth is ready again" in scene.said, within_s=60)


async def test_logs_make_room_while_processes_write_them(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_log, "LARGEST_BYTES", 1000)
    talks = (
        "import threading, time\ndef talk():\n    while True:\n        print('a line', flush=True); time.sleep(0.001)\n"
    )
    talks += "threading.Thread(target=talk, daemon=True).start()\n"
    supervisor = scene.supervisor(
        [scene.process("edge-1", talks + SERVES)], timing=Timing(first_delay_s=0.01, rotate_every_s=0.05)
    )
    async with scene.running(supervisor):
        oldest = scene.folder / f"edge-1.log.{process_log.KEPT_FILES}"
        await until(oldest.exists)
        assert not (scene.folder / f"edge-1.log.{process_log.KEPT_FILES + 1}").exists()
        assert scene.restarts("edge-1") == 0
    assert set(oldest.read_text().split("\n")) <= {"a line", ""}
