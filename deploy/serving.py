"""Ends with 0 if the process at an address serves: what a container's health check runs.

python deploy/serving.py auth:7001                              gRPC's health service
python deploy/serving.py http+unix:/run/legato/model.sock       GET /health
"""

import sys
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from cli.health import Health
from services.chassis.channel import open_sync_channel

TIMEOUT_S = 3.0


def is_serving(address: str) -> bool:
    if address.startswith("http+unix:"):
        return Health("http", address.removeprefix("http+unix:")).is_serving()
    with open_sync_channel(address) as channel:
        # The published types leave the stub's methods out.
        stub: Any = health_pb2_grpc.HealthStub(channel)
        try:
            answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=TIMEOUT_S)
        except grpc.RpcError:
            return False
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


if __name__ == "__main__":
    sys.exit(not is_serving(sys.argv[1]))
