"""One service for all measurements that do not need one of their own: starting it takes longer than most of them."""

import io
from collections.abc import Iterator

import pytest

from bench.measurements.cancellation import SETTINGS
from bench.report import Progress
from tests.e2e.operations import LISTENING
from tests.support.service import ROUTES, Addressed, Service, UpstreamThread
from tests.support.upstreams.openai import Upstream


@pytest.fixture(scope="package")
def shared_service() -> Iterator[tuple[Service, Upstream]]:
    with UpstreamThread() as upstream, Service(upstream, {**SETTINGS, **LISTENING}, is_forked=False) as service:
        yield service, upstream


@pytest.fixture
def service(shared_service: tuple[Service, Upstream]) -> Service:
    return shared_service[0]


@pytest.fixture
def upstream(shared_service: tuple[Service, Upstream]) -> Upstream:
    service, upstream = shared_service
    send_to(service, upstream)
    return upstream


@pytest.fixture
def progress() -> Progress:
    """Returns a progress display whose output is dropped."""
    return Progress(io.StringIO(), steps=1)


def send_to(service: Service, provider: Addressed) -> None:
    service.follow_routes(ROUTES.format(base_url=provider.base_url))
