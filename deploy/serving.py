"""Ends with 0 if the process at an address serves: what a container's health check runs.

python deploy/serving.py auth:7001                              gRPC's health service
python deploy/serving.py http+unix:/run/legato/model.sock       GET /health
"""

import sys

from cli.health import Health, grpc_is_serving

HTTP_ON_A_SOCKET = "http+unix:"


def is_serving(address: str) -> bool:
    if address.startswith(HTTP_ON_A_SOCKET):
        return Health("http", address.removeprefix(HTTP_ON_A_SOCKET)).is_serving()
    return grpc_is_serving(address)


if __name__ == "__main__":
    sys.exit(not is_serving(sys.argv[1]))
