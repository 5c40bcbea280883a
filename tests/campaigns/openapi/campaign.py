"""Runs Schemathesis against the whole service, with the document that the service itself serves."""

import subprocess
import sys
from pathlib import Path
from urllib.parse import urljoin

from tests.support.service import Service, UpstreamThread
from tests.support.waiting import WAIT_TIMEOUT_S

SCHEMATHESIS = Path(sys.executable).with_name("st")
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "unsupported_method",
    "allow_header_conformance",
    "ignored_auth",
)
# Neither wrong keys nor the number of requests are what this is about.
UNLIMITED = {
    "LEGATO_WRONG_KEYS_PER_MINUTE": "1000000",
    "LEGATO_REQUESTS_PER_MINUTE": "1000000",
    "LEGATO_REQUEST_BURST": "100000",
}

# A busy machine may have to say that something of it is away, and says so as the document describes.
CONFIG = """
[checks.not_a_server_error]
expected-statuses = ["2xx", "3xx", "4xx", "502", "503"]
"""


def run_schemathesis(examples: int, seed: int, folder: Path) -> subprocess.CompletedProcess[str]:
    """Exits with 1 where the service and its document differ. `examples` are those of each operation, made up by chance
    beside the systematic ones."""
    config = folder / "schemathesis.toml"
    config.write_text(CONFIG)
    with UpstreamThread() as upstream, Service(upstream, UNLIMITED) as service:
        api_key = service.new_key(service.new_account(credits="1000.00"))
        command = [
            str(SCHEMATHESIS),
            f"--config-file={config}",
            "run",
            urljoin(service.base_url, "/openapi.json"),
            f"--checks={','.join(CHECKS)}",
            "--phases=examples,coverage,fuzzing",
            f"--max-examples={examples}",
            f"--seed={seed}",
            f"--request-timeout={WAIT_TIMEOUT_S}",
            f"--header=Authorization: Bearer {api_key}",
            "--generation-database=none",
            "--suppress-health-check=all",
            "--no-color",
        ]
        return subprocess.run(command, cwd=folder, text=True, capture_output=True, check=False)
