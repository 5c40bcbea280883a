"""The metrics of Legato's processes, as the operators' page of models reads them."""

from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from tests.console.clock import NOW

PROCESSES: Final = ("edge-1", "edge-2", "auth", "router", "metering", "console")
AUDITED_AGO_S: Final = 120
STARTED_AGO_S: Final = 3 * 86_400


class Processes:
    """What each process says of itself: nothing yet."""

    def __init__(self) -> None:
        # The text of its metrics.
        self.metrics: dict[str, str] = dict.fromkeys(PROCESSES, "")
        # What it waits for before it is ready.
        self.missing: dict[str, list[str]] = {}

    def be_busy(self) -> None:
        started = f"process_start_time_seconds {NOW.timestamp() - STARTED_AGO_S}\n"
        self.metrics = {name: METRICS[name.partition("-")[0]]() + started for name in PROCESSES}


class ProcessMetrics:
    """The metrics of a process, in place of its registry."""

    def __init__(self, read: Callable[[], str]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        return text_string_to_metric_families(self._read())


def _edge() -> str:
    first_tokens = "\n".join(
        f'gen_ai_server_time_to_first_token_seconds_bucket{{class="forte",le="{bound}"}} {count}'
        for bound, count in (("0.1", 120.0), ("0.25", 5200.0), ("0.5", 7900.0), ("1.0", 8180.0), ("+Inf", 8200.0))
    )
    return f"""# HELP legato_live_streams Running chats.
legato_live_streams 43.0
legato_streams_limit 400.0
legato_chats_total{{class="forte",outcome="complete"}} 8012.0
legato_chats_total{{class="mezzo",outcome="client_gone"}} 188.0
legato_refusals_total{{reason="RATE_LIMITED"}} 91.0
legato_refusals_total{{reason="CREDITS_EXHAUSTED"}} 12.0
legato_refusals_total{{reason="SATURATED"}} 3.0
legato_settlements_pending 1.0
legato_connections 212.0
auth_revocation_lag_seconds 0.21
process_resident_memory_bytes 92274688.0
{first_tokens}
"""


def _auth() -> str:
    return "legato_watches 2.0\nprocess_resident_memory_bytes 83886080.0\n"


def _router() -> str:
    return """process_resident_memory_bytes 124780544.0
legato_upstream_running{gen_ai_provider_name="maple",gen_ai_request_model="maple-small"} 12.0
legato_upstream_running{gen_ai_provider_name="maple",gen_ai_request_model="maple-large"} 41.0
"""


def _metering() -> str:
    return f"""legato_audit_violations 0.0
legato_audit_last_run_timestamp_seconds {NOW.timestamp() - AUDITED_AGO_S}
legato_audit_interval_seconds 600.0
legato_holds_live 43.0
legato_holds_overdue 0.0
legato_operations_waiting 2.0
process_resident_memory_bytes 99614720.0
"""


def _console() -> str:
    return """legato_console_pages_total{page="/keys",status="200"} 3120.0
legato_console_pages_total{page="/usage",status="503"} 4.0
legato_console_replicas_usable{peer="auth"} 2.0
legato_console_replicas_usable{peer="metering"} 1.0
legato_console_replicas_usable{peer="router"} 2.0
process_resident_memory_bytes 67108864.0
"""


METRICS: dict[str, Callable[[], str]] = {
    "edge": _edge, "auth": _auth, "router": _router, "metering": _metering, "console": _console
}  # fmt: skip
