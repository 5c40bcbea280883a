"""TensorZero's gateway as its package carries it. Runs in TensorZero's environment, where nothing of ours is.

Its standalone server comes as a container image only; this is the same one, started from its own module.
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
