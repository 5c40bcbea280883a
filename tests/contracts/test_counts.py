"""The largest count of tokens: services take what others send."""

from services.metering import messages as metering
from services.router.providers import base as provider


def test_no_count_that_the_router_believes_is_refused_by_metering() -> None:
    assert provider.LARGEST_TOKENS == metering.LARGEST_TOKENS
