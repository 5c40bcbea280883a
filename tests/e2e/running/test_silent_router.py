"""A router that stands still for some seconds: it keeps its chats, and others serve the new ones."""

from tests.support.frozen_router import freeze_router
from tests.support.service import Service
from tests.support.upstreams.openai import Upstream


def test_no_chat_of_a_router_that_stood_still_is_cut_or_called_twice(several: Service, upstream: Upstream) -> None:
    outcome = freeze_router(several, upstream, streams=12, frozen_s=4)
    assert outcome.violations == []
    assert several.audit() == []
