"""`python -m bench.python_calls`: counts the calls of Python functions that one short chat takes in each process.

Unlike time, the count hardly depends on what else the machine does, so a change of one call is seen. Each process
counts by a profiler, which a `sitecustomize` installs at its start; what it does while nothing is asked is subtracted.
"""

import os
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Final

import click
import msgspec
from openai import OpenAI

from tests.support.service import Service, UpstreamThread
from tests.support.waiting import wait_until

PROCESSES: Final = ("edge", "router", "metering")
# The paths and the first calls are over by then.
FIRST_CHATS: Final = 20
_COUNTER: Final = """
import collections, json, os, signal, sys, threading

counts = collections.Counter()

def count(frame, event, argument):
    if event == "call":
        counts[frame.f_code] += 1

def write(number, frame):
    named = collections.Counter()
    for code, calls in list(counts.items()):
        named[f"{code.co_filename}:{code.co_firstlineno} {code.co_name}"] += calls
    path = os.path.join(os.environ["PYTHON_COUNTED_CALLS"], str(os.getpid()))
    with open(path + ".part", "w") as file:
        json.dump(named, file)
    os.rename(path + ".part", path)

signal.signal(signal.SIGUSR2, write)
threading.setprofile(count)
sys.setprofile(count)
"""


class CallsCounter:
    """Reads what the processes of a service have counted."""

    def __init__(self, service: Service, folder: Path) -> None:
        states = service.states()
        self._process_ids = {
            name: next(state["pid"] for key, state in states.items() if key.partition("-")[0] == name)
            for name in PROCESSES
        }
        self._folder = folder

    def read(self) -> dict[str, Counter[str]]:
        return {name: self._read(process_id) for name, process_id in self._process_ids.items()}

    def _read(self, process_id: int) -> Counter[str]:
        path = self._folder / str(process_id)
        path.unlink(missing_ok=True)
        os.kill(process_id, signal.SIGUSR2)
        wait_until(path.exists)
        return Counter(msgspec.json.decode(path.read_bytes(), type=dict[str, int]))


def counted(chats: int, *, stream: bool) -> dict[str, Counter[str]]:
    """Returns the calls that so many chats took, one after the other, by process and function."""
    with tempfile.TemporaryDirectory() as name, UpstreamThread() as upstream:
        folder = Path(name)
        (folder / "sitecustomize.py").write_text(_COUNTER)
        paths = os.pathsep.join(filter(None, (name, os.environ.get("PYTHONPATH"))))
        settings = {"PYTHONPATH": paths, "PYTHON_COUNTED_CALLS": name}
        with Service(upstream, settings, is_forked=False) as service:
            client = OpenAI(base_url=service.base_url, api_key=service.new_key(service.new_account("100")))
            counter = CallsCounter(service, folder)

            def ask(times: int) -> None:
                for _ in range(times):
                    answer = client.chat.completions.create(
                        model="forte", messages=[{"role": "user", "content": "Hello"}], stream=stream
                    )
                    if stream:
                        for _ in answer:
                            pass

            ask(FIRST_CHATS)
            before, began_at_s = counter.read(), time.monotonic()
            ask(chats)
            between, took_s = counter.read(), time.monotonic() - began_at_s
            time.sleep(took_s)
            after = counter.read()
    return {
        name: Counter(
            {call: 2 * between[name][call] - before[name][call] - after[name][call] for call in between[name]}
        )
        for name in PROCESSES
    }


@click.command()
@click.option("--chats", default=200, show_default=True)
@click.option("--functions", is_flag=True, help="Also list the functions of each process.")
def main(chats: int, functions: bool) -> None:
    for stream in (True, False):
        calls = counted(chats, stream=stream)
        by_process = {name: sum(counts.values()) / chats for name, counts in calls.items()}
        said = ", ".join(f"{name} {count:.0f}" for name, count in by_process.items())
        click.echo(f"{'streamed' if stream else 'whole':9} {sum(by_process.values()):.0f} ({said})")
        if functions:
            for name, counts in calls.items():
                for call, count in counts.most_common():
                    if count / chats >= 0.1:
                        click.echo(f"  {name} {count / chats:6.1f} {call}")


if __name__ == "__main__":
    main()
