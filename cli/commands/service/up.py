"""`legato up`: the whole service in one command."""

import asyncio
import shlex
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

import click

from cli.command import HelpLine, Invocation, command
from cli.output import ignoring_closed, open_closed_ones, show_json
from cli.settings import SettingsWrong, read_settings
from cli.supervision import completeness, data_folder
from cli.supervision.audit_copy_place import same_disk_warning
from cli.supervision.data_folder import AlreadyLocked
from cli.supervision.kept_secrets import secrets_for
from cli.supervision.processes import CONSOLE_PORT, ConsoleStart, Installation, process_groups, rpc_addresses
from cli.supervision.public_socket import CannotListen, base_url, listen, listen_for_console, listen_for_programs
from cli.supervision.scale import Scale, count_processors, default_scale
from cli.supervision.settings import FileSettings, UpSettings
from cli.supervision.settings_check import mistakes_in_files, mistakes_in_settings, strange_names
from cli.supervision.supervisor import StartFailed, Supervisor, Timing
from services.chassis.process import lifeline
from services.chassis.settings import PREFIX
from services.chassis.telemetry.log import Log

# The time that processes of a killed supervisor need to end, with a margin.
LEFTOVERS_TIMEOUT_S = lifeline.GRACE_S + lifeline.FAREWELL_S + 5

PORT: Final = click.IntRange(0, 65535)
# Processes of one kind.
COUNT: Final = click.IntRange(1, 64)
BY_PROCESSORS: Final = "[default: by the number of processors]"

# The time that an edge needs to close, once running answers have ended.
CLOSING_S = 2.0


class CannotStart(click.ClickException):
    pass


HELP = HelpLine(10, "Start the whole service and keep it running.")


@command()
@click.option("--port", type=PORT, help="The port; 0 selects a free one.  [default: $LEGATO_EDGE_PORT, or 8080]")
@click.option("--host", help="The address to listen on.  [default: $LEGATO_EDGE_HOST, or 127.0.0.1]")
@click.option(
    "--routes",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The routes file: the models of each class.  [default: $LEGATO_ROUTES, or the local model for all]",
)
@click.option("--workers", type=COUNT, help=f"Number of edges (HTTP processes).  {BY_PROCESSORS}")
@click.option("--routers", type=COUNT, help=f"Number of routers.  {BY_PROCESSORS}")
@click.option("--metering", type=COUNT, help=f"Number of metering processes; several need PostgreSQL.  {BY_PROCESSORS}")
@click.option(
    "--welcome", "welcomes", is_flag=True, help="On the first start create an account and a key, and print them."
)
@click.option(
    "--console-port",
    type=PORT,
    help="The port of the web console; 0 selects a free one.  [default: $LEGATO_CONSOLE_PORT, or 8081]",
)
@click.option("--no-console", is_flag=True, help="Start without the web console.")
@click.option(
    "--begin-anew",
    type=click.Choice(completeness.PARTS),
    multiple=True,
    help="Create this part again if it is missing while others are in use. Its data is lost.",
)
def up(
    invocation: Invocation,
    port: int | None,
    host: str | None,
    routes: Path | None,
    workers: int | None,
    routers: int | None,
    metering: int | None,
    welcomes: bool,
    console_port: int | None,
    no_console: bool,
    begin_anew: tuple[str, ...],
) -> None:
    """Start the whole service and keep it running.

    Writes `ready http://HOST:PORT/v1` when it serves, and logs to DIR/logs. Ends everything on Ctrl-C or SIGTERM. Exits
    with 2 if a setting, the routes or the prices are wrong, and with 1 if it cannot start for another reason.
    """
    from services.router.routes.routes import load_routes

    open_closed_ones()
    data = invocation.data.absolute()
    files = read_settings(FileSettings)
    routes, prices = (routes or files.routes).absolute(), files.prices.absolute()
    if mistakes := [*mistakes_in_settings(UpSettings), *mistakes_in_files(routes, prices)]:
        raise SettingsWrong("\n".join(mistakes))
    for strange in strange_names(UpSettings, routes):
        _report(strange)
    settings = read_settings(UpSettings)
    scale = _scale(settings, workers, routers, metering)
    data_folder.prepare(data)
    processes_lock_fd = _lock(data)
    completeness.require_complete(
        data, settings.database_url, peppers_given=bool(settings.key_peppers), begin_anew=begin_anew
    )
    host = settings.edge_host if host is None else host
    listener = listen(host, settings.edge_port if port is None else port)
    address = base_url(listener, host)
    console_sockets = [] if no_console else _listen_for_console(settings, console_port)
    console = _console_start(settings, console_sockets, address) if console_sockets else None
    # Who tries the service out keeps nothing yet.
    if not welcomes and (warning := same_disk_warning(data, settings.audit_copy, settings.database_url)):
        _report(f"warning: {warning}")
    program_sockets = [listen_for_programs(each) for each in rpc_addresses(settings, data, scale)]
    loaded = load_routes(routes)
    installation = Installation(
        data=data,
        routes=routes,
        prices=prices,
        settings=settings,
        uses_local_model=loaded.uses_local_model,
        scale=scale,
        secrets=secrets_for(settings, data),
        edge_fd=listener.fileno(),
        edge_rpc_fds=tuple(each.fileno() for each in program_sockets),
        lock_fd=processes_lock_fd,
        console=console,
    )

    def announce() -> None:
        with suppress(OSError):
            # A full disk must not end a running service.
            completeness.record_parts(data, settings.database_url)
        with ignoring_closed(sys.stdout):
            invocation.report(f"ready {address}", {"ready": address})
            if welcomes:
                url = console.url if console else ""
                _greet(invocation, address, url, is_bundled=loaded.bundled_classes >= loaded.classes.keys())

    def stop_listening() -> None:
        for each in (listener, *program_sockets, *console_sockets):
            each.close()

    with (data / "logs" / "up.log").open("a") as log_file:
        supervisor = Supervisor(
            groups=process_groups(installation),
            logs=data / "logs",
            log=Log("up", log_file),
            report=_report,
            timing=Timing(
                grace_s=settings.drain_delay_s + settings.drain_s + CLOSING_S,
                longest_delay_s=settings.longest_restart_delay_s,
                unresponsive_after_s=settings.unresponsive_after_s,
            ),
            on_change=lambda states: data_folder.write_processes(
                data, {"base_url": address, "console_url": console.url if console else "", "processes": states}
            ),
        )
        try:
            asyncio.run(_supervise(supervisor, announce, stop_listening))
        except StartFailed as error:
            raise (SettingsWrong if error.is_misuse else CannotStart)(str(error)) from None


def _listen_for_console(settings: UpSettings, asked_port: int | None) -> list[socket.socket]:
    port = settings.console_port if asked_port is None else asked_port
    try:
        return listen_for_console(settings.console_host, CONSOLE_PORT if port is None else port)
    except CannotListen as error:
        if port is not None:
            raise
        # The port was not asked for, and the service does not need the console.
        _report(f"starting without the web console: {error.message}")
        return []


def _console_start(settings: UpSettings, sockets: list[socket.socket], api_url: str) -> ConsoleStart:
    # A wildcard address is reached on loopback.
    api_url = api_url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")
    return ConsoleStart(
        fds=tuple(each.fileno() for each in sockets),
        # Passkeys belong to a name, not to an address.
        url=settings.console_url or f"http://localhost:{sockets[0].getsockname()[1]}",
        api_url=settings.console_api_url or api_url,
    )


def _scale(settings: UpSettings, workers: int | None, routers: int | None, meterings: int | None) -> Scale:
    """Returns the number of processes: as configured, otherwise by the number of CPUs."""
    default = default_scale(count_processors(), has_postgresql=bool(settings.database_url))
    scale = Scale(workers or default.edges, routers or default.routers, meterings or default.meterings)
    if scale.meterings > 1 and not settings.database_url:
        raise SettingsWrong(
            f"--metering {scale.meterings} needs PostgreSQL (LEGATO_DATABASE_URL): SQLite has a single writer"
        )
    for variable, address in settings.further_listens.items():
        service = variable.removeprefix(PREFIX).partition("_")[0].lower()
        if len(scale.names_of(service)) > 1 and address.startswith("unix:"):
            raise SettingsWrong(f"{variable}: must be HOST:PORT if there are several: each has the next port")
    return scale


def _report(text: str) -> None:
    with ignoring_closed(sys.stderr):
        click.echo(text, err=True)


def _lock(data: Path) -> int:
    """Locks the folder until this process ends; returns the lock that all processes hold."""
    try:
        data_folder.lock_for_supervisor(data)
    except AlreadyLocked:
        raise CannotStart(
            f"Legato is already running on {data}: see `legato status`, or choose another folder with --data"
        ) from None
    except OSError as error:
        raise data_folder.unusable(data, error) from None
    try:
        return data_folder.lock_for_processes(data, timeout_s=0)
    except AlreadyLocked:
        # Those of a killed supervisor end by themselves, but not at once.
        _report("waiting for the processes of an earlier start to end ...")
    try:
        return data_folder.lock_for_processes(data, LEFTOVERS_TIMEOUT_S)
    except AlreadyLocked:
        raise CannotStart(f"processes of an earlier start on {data} are still running: stop them by hand") from None


def _greet(invocation: Invocation, address: str, console_url: str, *, is_bundled: bool) -> None:
    from cli.commands.service.welcome import show_welcome, welcome
    from cli.connection import running_services

    try:
        with closing(running_services(invocation.data, environ={})) as services:
            greeting = welcome(services, address, console_url.partition(",")[0])
        folder_option = "" if invocation.data == Path(".legato") else f" --data {shlex.quote(str(invocation.data))}"
        if invocation.json:
            show_json(greeting)
        else:
            show_welcome(greeting, folder_option, is_bundled=is_bundled)
    except click.ClickException as error:
        _report(f"the service is running, but the first account or key could not be created: {error.format_message()}")


async def _supervise(
    supervisor: Supervisor, announce: Callable[[], None], stop_listening: Callable[[], object]
) -> None:
    stop, hurry = asyncio.Event(), asyncio.Event()

    def begin_to_end() -> None:
        if not stop.is_set():
            stop.set()
            # The edges have their own descriptors of the socket, and close them when they end.
            stop_listening()
            supervisor.report("stopping ...")

    def on_signal() -> None:
        if stop.is_set():
            hurry.set()
        begin_to_end()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    # `nohup` ignores SIGHUP. Otherwise both the kernel and the shell may send it: a second one is no request to hurry.
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        loop.add_signal_handler(signal.SIGHUP, begin_to_end)
    supervisor.report(f"starting {', '.join(supervisor.names)} ...")
    await supervisor.run(stop, hurry, lambda: asyncio.to_thread(announce))
