"""Starts processes, keeps them running, and ends them in order."""

import asyncio
import os
import signal
import subprocess
import time
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from cli.supervision.health import HealthProbe, Responsiveness
from cli.supervision.process_log import ProcessLog
from cli.supervision.progress import Pulse, starved_s
from services.chassis.process import lifeline, pulse
from services.chassis.telemetry.log import Log

POLL_S = 0.05


@dataclass(frozen=True)
class ProcessSpec:
    name: str
    argv: Sequence[str]
    environ: Mapping[str, str]
    health: HealthProbe
    # Descriptors that the process inherits under the same number.
    pass_fds: tuple[int, ...] = ()
    # The service is ready without it.
    is_awaited: bool = True


@dataclass(frozen=True)
class Timing:
    first_delay_s: float = 0.1
    longest_delay_s: float = 5.0
    # A process that ran this long was healthy: the backoff is reset.
    steady_after_s: float = 30.0
    start_timeout_s: float = 180.0
    # Time between SIGTERM and SIGKILL.
    grace_s: float = 10.0
    # The same after a second signal, which ends running requests: the time that they have to send their error.
    farewell_s: float = 5.0
    # Interval and timeout of health checks.
    check_every_s: float = 3.0
    check_timeout_s: float = 3.0
    # A process that has not answered for this long hangs, and is restarted; 0 disables this.
    unresponsive_after_s: float = 20.0
    # Interval of checks of the logs' sizes.
    rotate_every_s: float = 5.0


# Exit code of our processes for a wrong setting; they print a line for each mistake.
MISUSE = 2


class StartFailed(Exception):
    """Says in one line which process did not start, and its last output."""

    def __init__(self, message: str, *, is_misuse: bool = False) -> None:
        super().__init__(message)
        self.is_misuse = is_misuse


@dataclass(eq=False)
class _Kept:
    spec: ProcessSpec
    log: ProcessLog
    process: Process | None = None
    pulse: Pulse = field(default_factory=Pulse)
    started_at: float = 0.0
    # True if the current run has served.
    has_served: bool = False
    restarts: int = 0

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process is not None and self.process.returncode is None else None

    @property
    def exit_code(self) -> int | None:
        return self.process.returncode if self.process is not None else None


@dataclass
class Supervisor:
    """Runs `groups`, started all at once; they end last group first, the processes of a group together."""

    groups: Sequence[Sequence[ProcessSpec]]
    logs: Path
    log: Log
    # Prints a message for the user.
    report: Callable[[str], None]
    # Called with the state of every process, as JSON takes it, whenever one changes.
    on_change: Callable[[list[dict[str, object]]], None]
    timing: Timing = field(default_factory=Timing)

    def __post_init__(self) -> None:
        self._groups = [[_Kept(spec, ProcessLog(self.logs, spec.name)) for spec in group] for group in self.groups]
        self._all = [kept for group in self._groups for kept in group]
        # The supervisor's own log, and those of processes.
        self._logs = [ProcessLog(self.logs, "up"), *(kept.log for kept in self._all)]
        # A separate thread pool: a check that had to wait for a thread would look like a missed one.
        self._checks = ThreadPoolExecutor(len(self._all) or 1, thread_name_prefix="health")
        # Only this process has the write end, so that the children get end of file when it ends.
        self._lifeline, self._lifeline_write_end = os.pipe()

    @property
    def names(self) -> list[str]:
        return [kept.spec.name for kept in self._all]

    async def run(self, stop: asyncio.Event, hurry: asyncio.Event, on_ready: Callable[[], Awaitable[None]]) -> None:
        """Returns when `stop` is set and every process has ended; `hurry` shortens the time they have for that."""
        keepers: list[asyncio.Task[None]] = []
        try:
            if await _done_before(stop, asyncio.create_task(self._start_all())):
                keepers = [asyncio.create_task(self._keep(kept)) for kept in self._all]
                if self.timing.unresponsive_after_s:
                    keepers += [asyncio.create_task(self._watch(kept)) for kept in self._all]
                keepers.append(asyncio.create_task(self._keep_logs_small()))
                await on_ready()
                await stop.wait()
        finally:
            await _cancel(keepers)
            await self._end_all(hurry)
            self._checks.shutdown(wait=False)
            os.close(self._lifeline)
            os.close(self._lifeline_write_end)
            for kept in self._all:
                kept.pulse.close()

    async def _start_all(self) -> None:
        began_at = time.monotonic()
        for kept in self._all:
            await self._spawn(kept)
        awaited = [kept for kept in self._all if kept.spec.is_awaited]
        waiting = [asyncio.create_task(self._first_start(kept, began_at)) for kept in awaited]
        try:
            await asyncio.gather(*waiting)
        finally:
            await _cancel(waiting)

    async def _first_start(self, kept: _Kept, began_at: float) -> None:
        name = kept.spec.name
        try:
            async with asyncio.timeout(self.timing.start_timeout_s):
                serves = await self._until_serving(kept)
        except TimeoutError:
            raise StartFailed(
                f"{name} was not ready within {self.timing.start_timeout_s:.0f} s: see {kept.log.path}"
            ) from None
        if not serves:
            last_words = kept.log.last_words() or _how_it_ended(kept)
            raise StartFailed(
                f"{name} did not start: {last_words} (see {kept.log.path})", is_misuse=kept.exit_code == MISUSE
            )
        self.report(f"{name} is ready ({time.monotonic() - began_at:.1f} s)")

    async def _spawn(self, kept: _Kept) -> None:
        spec = kept.spec
        with kept.log.open() as output:
            kept.process = await asyncio.create_subprocess_exec(
                *spec.argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**spec.environ, lifeline.VARIABLE: str(self._lifeline), pulse.VARIABLE: str(kept.pulse.beating)},
                pass_fds=(self._lifeline, kept.pulse.beating, *spec.pass_fds),
                umask=0o077,
                # Ctrl-C reaches the terminal's whole process group; the processes should end in our order.
                process_group=0,
            )
        kept.started_at, kept.has_served = time.monotonic(), False
        self.log.info("process.started", name=spec.name, pid=kept.process.pid, restarts=kept.restarts)
        self._record_states()

    async def _until_serving(self, kept: _Kept) -> bool:
        """Waits until it serves; returns False if it ended."""
        while kept.pid is not None:
            if await asyncio.to_thread(kept.spec.health.is_serving):
                kept.has_served = True
                return True
            await asyncio.sleep(POLL_S)
        return False

    async def _keep(self, kept: _Kept) -> None:
        name = kept.spec.name
        delay_s = self.timing.first_delay_s
        while True:
            if kept.process is not None:
                await kept.process.wait()
            if time.monotonic() - kept.started_at >= self.timing.steady_after_s:
                delay_s = self.timing.first_delay_s
            kept.restarts += 1
            self.report(f"{name} ended ({_how_it_ended(kept)}{_why(kept)}); restarting it in {delay_s:g} s")
            self.log.warning("process.ended", name=name, reason=_how_it_ended(kept), restarts=kept.restarts)
            self._record_states()
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, self.timing.longest_delay_s)
            try:
                await self._spawn(kept)
            except OSError as error:
                # No memory, descriptors or disk space for the log: handled as if the process had ended at once.
                self.log.failure("process.not_started", error, name=name)
                kept.process, kept.started_at = None, time.monotonic()
            if await self._until_serving(kept):
                self.report(f"{name} is ready again")

    async def _watch(self, kept: _Kept) -> None:
        """Kills a process that hangs, so that `_keep` restarts it. This loses no more than a crash would."""
        while True:
            process = kept.process
            if process is None or process.returncode is not None:
                await asyncio.sleep(POLL_S)
                continue
            silent_s = await self._until_unresponsive(kept, process)
            if silent_s is not None:
                self.report(f"{kept.spec.name} has not answered for {silent_s:.0f} s; killing it")
                self.log.warning("process.unresponsive", name=kept.spec.name, pid=process.pid, reason="no answer")
                _send(process, signal.SIGKILL)
                await process.wait()

    async def _until_unresponsive(self, kept: _Kept, process: Process) -> float | None:
        """Returns how long it has been silent; None if it ended first."""
        timing = self.timing
        judged = Responsiveness(
            kept.started_at,
            start_timeout_s=timing.start_timeout_s,
            unresponsive_after_s=timing.unresponsive_after_s,
        )
        if kept.has_served:
            judged.record_answer(time.monotonic())
        loop = asyncio.get_running_loop()
        while process.returncode is None:
            due_at = time.monotonic() + timing.check_every_s
            await asyncio.sleep(timing.check_every_s)
            began_at = time.monotonic()
            answers = await loop.run_in_executor(self._checks, kept.spec.health.answers, timing.check_timeout_s)
            ended_at = time.monotonic()
            works, waited_s = kept.pulse.has_beaten(), starved_s(process.pid)
            if answers:
                judged.record_answer(ended_at, waited_s)
            elif works:
                if judged.record_work(ended_at, waited_s):
                    self.report(f"{kept.spec.name} is overloaded: it works, but answers no health check in time")
                    self.log.warning("process.overloaded", name=kept.spec.name, pid=process.pid)
            elif (
                judged.record_miss(due_at, began_at, ended_at, timing.check_timeout_s, waited_s)
                and process.returncode is None
            ):
                return judged.silent_s(ended_at)
        return None

    async def _keep_logs_small(self) -> None:
        while True:
            await asyncio.sleep(self.timing.rotate_every_s)
            for log in self._logs:
                try:
                    await asyncio.to_thread(log.rotate)
                except OSError as error:
                    self.log.failure("log.not_rotated", error, name=log.path.name)

    async def _end_all(self, hurry: asyncio.Event) -> None:
        for group in reversed(self._groups):
            running = [kept.process for kept in group if kept.process is not None and kept.process.returncode is None]
            if not running:
                continue
            for process in running:
                _send(process, signal.SIGTERM)
            ends: asyncio.Future[Any] = asyncio.gather(*(process.wait() for process in running))
            hurried = asyncio.create_task(hurry.wait())
            await asyncio.wait([ends, hurried], timeout=self.timing.grace_s, return_when=asyncio.FIRST_COMPLETED)
            await _cancel([hurried])
            if hurry.is_set():
                for process in running:
                    _send(process, signal.SIGTERM)
                await asyncio.wait([ends], timeout=self.timing.farewell_s)
            for process in running:
                _send(process, signal.SIGKILL)
            await ends
        self.log.info("processes.ended")

    def _record_states(self) -> None:
        states = [
            {
                "name": kept.spec.name,
                "pid": kept.pid,
                "restarts": kept.restarts,
                "health": msgspec.to_builtins(kept.spec.health),
            }
            for kept in self._all
        ]
        try:
            self.on_change(states)
        except OSError as error:
            # A full disk must not end running processes.
            self.log.failure("state.not_written", error)


def _send(process: Process, number: signal.Signals) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.send_signal(number)


def _how_it_ended(kept: _Kept) -> str:
    code = kept.exit_code
    if code is None:
        return "could not be started"
    if code < 0:
        return signal.Signals(-code).name if -code in list(signal.Signals) else f"signal {-code}"
    return f"exit code {code}"


def _why(kept: _Kept) -> str:
    """Returns the process's own words for a wrong setting; otherwise a reference to its log."""
    if kept.exit_code is None or kept.exit_code <= 0:
        return ""
    # A missing log must not prevent the restart.
    with suppress(OSError):
        if kept.exit_code == MISUSE and (last_words := kept.log.last_words()):
            return f": {last_words}"
    return f", see {kept.log.path}"


async def _done_before(event: asyncio.Event, task: asyncio.Task[None]) -> bool:
    """Returns whether the task ended before the event; else cancels it. Raises its exception."""
    waiting = asyncio.create_task(event.wait())
    await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
    has_ended = task.done()
    await _cancel([waiting, task])
    if has_ended:
        await task
    return has_ended


async def _cancel(tasks: Sequence[asyncio.Task[object]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
