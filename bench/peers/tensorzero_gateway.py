"""Starts TensorZero's gateway from its Python package. Runs in TensorZero's environment, without our modules.

The standalone server is published only as a container image; this is the same code.
"""

import sys
import time

import tensorzero  # type: ignore[import-not-found]

if __name__ == "__main__":
    gateway = tensorzero._start_http_gateway(
        config_file=sys.argv[1], clickhouse_url=None, postgres_url=None, valkey_url=None, async_setup=False
    )
    print(gateway.base_url, flush=True)
    while True:
        time.sleep(3600)
