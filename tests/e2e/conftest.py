"""One service for all tests that leave it as it was, and a client of each kind on an account of its own.

It ends with this folder: a service that waits for requests still uses two hundredths of a processor.
"""

from collections.abc import AsyncIterator, Iterator

import openai
import pytest

from tests.e2e.harness import ServiceHarness
from tests.e2e.operations import LISTENING
from tests.support.servers.collector import Collector
from tests.support.service import Service, UpstreamThread
from tests.support.upstreams.openai import Reply, Upstream

# For tests of what comes after it.
SHORT_WAIT = {"LEGATO_OUTAGE_WAIT_S": "3"}


@pytest.fixture(scope="package")
def shared_upstream() -> Iterator[Upstream]:
    with UpstreamThread() as upstream:
        yield upstream


@pytest.fixture
def upstream(shared_upstream: Upstream) -> Upstream:
    """Knows nothing of the tests before."""
    shared_upstream.replies.clear()
    shared_upstream.requests.clear()
    shared_upstream.most_running = 0
    shared_upstream.default_reply = Reply()
    return shared_upstream


@pytest.fixture(scope="package")
def collector() -> Iterator[Collector]:
    """Collects all service traces."""
    with Collector() as collector:
        yield collector


@pytest.fixture(scope="package")
def service(shared_upstream: Upstream, collector: Collector) -> Iterator[Service]:
    """Runs at debug level and with traces, so all that could be told of a chat is told."""
    tracing = {"LEGATO_OTLP_ENDPOINT": collector.endpoint, "OTEL_BSP_SCHEDULE_DELAY": "200"}
    watched = {"LEGATO_DEBUG": "1", **tracing, **LISTENING}
    watched |= SHORT_WAIT
    watched |= {"LEGATO_WEBHOOK_PRIVATE_NETWORKS": "true", "LEGATO_NOTICE_INTERVAL_S": "1"}
    with Service(shared_upstream, watched) as service:
        yield service


@pytest.fixture(scope="package")
def shared_harness(shared_upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceHarness]:
    failpoints = tmp_path_factory.mktemp("failpoints")
    environ = {"LEGATO_FAILPOINTS": str(failpoints), "LEGATO_DRAIN_S": "1", "LEGATO_SWEEP_INTERVAL_S": "0.2"}
    environ |= SHORT_WAIT
    with Service(shared_upstream, environ) as service:
        yield ServiceHarness(service, shared_upstream, failpoints)


@pytest.fixture
def harness(shared_harness: ServiceHarness, upstream: Upstream) -> Iterator[ServiceHarness]:
    """A service whose processes may be killed, as long as they are back at the end."""
    yield shared_harness
    assert shared_harness.service.audit() == []


@pytest.fixture
def account(service: Service) -> str:
    return service.new_account()


@pytest.fixture
def api_key(service: Service, account: str) -> str:
    return service.new_key(account)


def plain_http() -> openai.DefaultHttpxClient:
    """Makes a client for addresses without TLS: loading the certificates of all authorities takes too long."""
    return openai.DefaultHttpxClient(verify=False)


@pytest.fixture
def client(service: Service, upstream: Upstream, api_key: str) -> Iterator[openai.OpenAI]:
    """Tells of the first failure: what it would try again is not what a test is about."""
    with openai.OpenAI(base_url=service.base_url, api_key=api_key, max_retries=0, http_client=plain_http()) as client:
        yield client


@pytest.fixture
async def async_client(service: Service, upstream: Upstream, api_key: str) -> AsyncIterator[openai.AsyncOpenAI]:
    # Not the certificates of all authorities: see plain_http().
    http = openai.DefaultAsyncHttpxClient(verify=False)
    async with openai.AsyncOpenAI(
        base_url=service.base_url, api_key=api_key, max_retries=0, http_client=http
    ) as client:
        yield client
