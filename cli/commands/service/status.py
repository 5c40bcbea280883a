"""`legato status`."""

from concurrent.futures import ThreadPoolExecutor

import msgspec

from cli.command import HelpLine, Invocation, command
from cli.connection import NotRunning
from cli.supervision.data_folder import is_supervised, read_processes
from cli.supervision.health import HealthProbe

COLUMNS = ["name", "pid", "restarts", "health"]

HELP = HelpLine(20, "List the service's processes.")


@command()
def status(invocation: Invocation) -> None:
    """List the service's processes: name, pid, restarts, health."""
    if not is_supervised(invocation.data):
        raise NotRunning(f"Legato is not running on {invocation.data}: start it with `legato up`")
    try:
        states = read_processes(invocation.data)["processes"]
    except FileNotFoundError:
        # The supervisor runs, and has started no process yet.
        states = []
    with ThreadPoolExecutor(max_workers=8) as pool:
        invocation.show_list(list(pool.map(describe, states)), COLUMNS)


def describe(state: dict[str, object]) -> dict[str, object]:
    return {"name": state["name"], "pid": state["pid"], "restarts": state["restarts"], "health": _health(state)}


def _health(state: dict[str, object]) -> str:
    if state["pid"] is None:
        return "down"
    health = msgspec.convert(state["health"], HealthProbe)
    if not health.is_serving():
        return "not serving"
    # A process with an HTTP check may be busy for long, or hang: `up` restarts it then.
    return "serving" if health.protocol == "grpc" or health.answers() else "busy"
