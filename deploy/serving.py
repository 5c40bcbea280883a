"""Exits with 0 if the process at an address is serving, for the health check of a container.

python deploy/serving.py auth:7001                              gRPC's health service
python deploy/serving.py http+unix:/run/legato/model.sock       GET /health, and whether the model works
"""

import sys

from cli.supervision.health import HealthProbe, grpc_is_serving
from services.router.local_model import WORK_PATH

# A long prompt may keep the model busy for some seconds. Shorter than the timeout of the health check.
WORK_TIMEOUT_S = 3.0
HTTP_ON_A_SOCKET = "http+unix:"


def is_serving(address: str) -> bool:
    if address.startswith(HTTP_ON_A_SOCKET):
        health = HealthProbe("http", address.removeprefix(HTTP_ON_A_SOCKET), WORK_PATH)
        return health.is_serving() and health.answers(WORK_TIMEOUT_S)
    return grpc_is_serving(address)


if __name__ == "__main__":
    sys.exit(not is_serving(sys.argv[1]))
