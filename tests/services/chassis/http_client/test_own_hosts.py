"""Whose server it is, by its name or address."""

import pytest

from services.chassis.http_client.own_hosts import is_own_host


@pytest.mark.parametrize(
    "host",
    [
        "localhost", "models.localhost", "127.0.0.1", "127.1.2.3", "::1", "10.1.2.3", "172.16.0.9", "192.168.1.5",
        "169.254.10.10", "fe80::1", "fd12::9", "::ffff:10.0.0.1", "vllm", "vllm.internal", "gpu.local", "GPU.Local.",
        "model.team.svc", "model.team.svc.cluster.local", "host.test", "host.example", "host.invalid",
    ],
)  # fmt: skip
def test_host_is_the_operators_own(host: str) -> None:
    assert is_own_host(host)


@pytest.mark.parametrize(
    "host",
    ["api.vendor.com", "8.8.8.8", "172.32.0.1", "2607:f8b0::1", "::ffff:8.8.8.8", "local.vendor.com", "notlocal.dev"],
)
def test_host_is_not_the_operators_own(host: str) -> None:
    assert not is_own_host(host)
