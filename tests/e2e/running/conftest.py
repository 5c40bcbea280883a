from collections.abc import Iterator

import pytest

from tests.e2e.running.deployment import Deployment
from tests.support.service import Service
from tests.support.upstreams.openai import Upstream


@pytest.fixture(scope="package")
def several(shared_upstream: Upstream) -> Iterator[Service]:
    """Two edges and two routers, which tests may kill as long as they are back at the end. They are no forks:
    those begin at once, and an edge that finds no router yet waits before it tries again."""
    with Service(shared_upstream, workers=2, routers=2, is_forked=False) as service:
        yield service


@pytest.fixture(scope="package")
def deployment(shared_upstream: Upstream) -> Iterator[Deployment]:
    """Every process on TCP, with certificates."""
    made = Deployment(shared_upstream.base_url)
    made.wait()
    yield made
    made.stop()
