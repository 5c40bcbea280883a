"""The settings of `legato up`."""

from pathlib import Path
from typing import Annotated, Final

import msgspec

from cli.supervision.supervisor import Timing
from services.chassis.settings import (
    PREFIX,
    ConsoleRole,
    HttpAddress,
    OperationsListen,
    Port,
    PostgresAddress,
    SecondsOrZero,
)
from services.router.local_model import LOCAL_MODEL_PARALLEL, LOCAL_MODEL_QUEUE

HERE: Final = Path(__file__).resolve().parents[2]


class FileSettings(msgspec.Struct, frozen=True, kw_only=True):
    routes: Path = HERE / "routes.toml"
    prices: Path = HERE / "prices.toml"


class UpSettings(FileSettings, frozen=True, kw_only=True):
    # The public address.
    edge_host: str = "127.0.0.1"
    edge_port: Port = 8080
    # Empty: generated on the first start and kept in the folder.
    key_peppers: str = ""
    # The database of accounts and the ledger; empty: in the folder.
    database_url: PostgresAddress = ""
    # Of the copy of the audit log, only to tell where it is.
    audit_copy: str = ""
    # If one of them is on, the key is generated like the peppers.
    memory: bool = False
    attachments: bool = False
    grounding_key: str = ""
    # Empty: generated and kept like the peppers.
    reasoning_key: str = ""
    # The console; on loopback, unless something in front of it ends TLS.
    console_host: str = "127.0.0.1"
    console_port: Port | None = None
    # Its origin and the API's base address, where browsers use others than those of this machine.
    console_url: str = ""
    console_api_url: HttpAddress = ""
    console_role: ConsoleRole = "operator-console"
    # HOST:PORT of its health and metrics.
    console_operations_listen: OperationsListen = ""
    # Empty: generated and kept like the peppers, with its public key.
    access_token_signing_key: str = ""
    access_token_public_keys: str = ""
    # Empty: generated and kept like the peppers.
    credential_encryption_key: str = ""
    # If it is set, credit can be bought in the console.
    stripe_secret_key: str = ""
    # HOST:PORT of the first edge's health and metrics; each further edge has the next port.
    edge_operations_listen: OperationsListen = ""
    # The same for the gRPC service for programs, or one edge's unix:PATH.
    edge_rpc_listen: str = ""
    # The same for the services' processes.
    auth_metrics_listen: OperationsListen = ""
    router_metrics_listen: OperationsListen = ""
    router_health_listen: str = ""
    metering_metrics_listen: OperationsListen = ""
    metering_health_listen: str = ""
    payments_metrics_listen: OperationsListen = ""
    payments_health_listen: str = ""
    # The routers share the places at the bundled model.
    local_model_parallel: Annotated[int, msgspec.Meta(ge=1)] = LOCAL_MODEL_PARALLEL
    local_model_queue: Annotated[int, msgspec.Meta(ge=0)] = LOCAL_MODEL_QUEUE
    # How long running answers may continue at shutdown: Ctrl-C should not take half a minute.
    drain_s: SecondsOrZero = 8.0
    drain_delay_s: SecondsOrZero = 0.0
    # The upper bound of the backoff between restarts of a process that crashes repeatedly.
    longest_restart_delay_s: SecondsOrZero = Timing.longest_delay_s
    # A process that fails its health check for this long is restarted; 0 disables this.
    unresponsive_after_s: SecondsOrZero = Timing.unresponsive_after_s

    @property
    def further_listens(self) -> dict[str, str]:
        """Returns the addresses that are set, by variable."""
        suffixes = ("_metrics_listen", "_health_listen", "_rpc_listen")
        fields = [name for name in self.__struct_fields__ if name.endswith(suffixes)]
        return {PREFIX + field.upper(): listen for field in fields if (listen := getattr(self, field))}
