"""A class with two models: who serves when one of them fails, and what the client is told of it."""

from collections.abc import Iterator

import pytest

from cli.connection import call_service
from legato_protos.router.v1.router_pb2 import ReloadRoutesRequest
from tests.e2e.chats import CHAT, QUESTION, RAIN
from tests.e2e.raw_http import OpenChat, post_chat
from tests.support.service import Service, UpstreamThread
from tests.support.upstreams.openai import Reply, Upstream
from tests.support.waiting import wait_until

CREDIT_NANOS = 5 * 10**9

PROVIDER = """
[providers.{name}]
kind = "openai"
base_url = "{base_url}"
zero_retention = true
[models.{name}]
provider = "{name}"
name = "{name}-model"
context_tokens = 100000
max_output_tokens = {max_output_tokens}
"""
CLASSES = """
[classes]
mezzo = { models = MODELS }
forte = { models = MODELS }
fortissimo = { models = MODELS }
"""
FIRST_CAP, SPARE_CAP = 3000, 2000


def routes_to(**upstreams: Upstream) -> str:
    caps = {"first": FIRST_CAP}
    providers = [
        PROVIDER.format(name=name, base_url=upstream.base_url, max_output_tokens=caps.get(name, SPARE_CAP))
        for name, upstream in upstreams.items()
    ]
    return "".join(providers) + CLASSES.replace("MODELS", str(list(upstreams)))


@pytest.fixture(scope="module")
def shared_spare() -> Iterator[Upstream]:
    with UpstreamThread() as upstream:
        yield upstream


@pytest.fixture
def spare(shared_spare: Upstream) -> Upstream:
    shared_spare.replies.clear()
    shared_spare.requests.clear()
    shared_spare.default_reply = Reply()
    return shared_spare


@pytest.fixture(scope="module")
def shared_pair(shared_upstream: Upstream, shared_spare: Upstream) -> Iterator[Service]:
    text = routes_to(first=shared_upstream, spare=shared_spare)
    with Service(shared_upstream, routes=text.replace("{", "{{").replace("}", "}}")) as service:
        yield service


@pytest.fixture
def pair(shared_pair: Service, upstream: Upstream, spare: Upstream) -> Service:
    """A service whose classes all have two models, both of them well and known from nothing before."""
    # Read anew: what is known of a model belongs to its entry in the routes.
    for routes in (routes_to(other=spare), routes_to(first=upstream, spare=spare)):
        shared_pair.write_routes(routes)
        for router in shared_pair.services.routers.values():
            call_service(router.ReloadRoutes, ReloadRoutesRequest())
    return shared_pair


def new_key(service: Service) -> str:
    return service.new_key(service.new_account())


@pytest.mark.parametrize("stream", [True, False])
def test_headers_tell_which_attempt_served_and_the_fitted_limit(
    pair: Service, upstream: Upstream, stream: bool
) -> None:
    api_key = new_key(pair)
    body = {"model": "mezzo", "messages": QUESTION, "stream": stream}
    served = post_chat(pair, api_key, body)
    assert (served.headers["x-legato-attempt"], served.headers["x-legato-max-tokens"]) == ("1", str(FIRST_CAP))
    upstream.replies.append(Reply(status=500))
    served = post_chat(pair, api_key, body)
    assert (served.headers["x-legato-attempt"], served.headers["x-legato-max-tokens"]) == ("2", str(SPARE_CAP))
    served = post_chat(pair, api_key, {**body, "max_tokens": 17})
    assert served.headers["x-legato-max-tokens"] == "17"


@pytest.mark.parametrize("status", [401, 403, 404])
def test_what_a_provider_has_against_us_is_never_held_against_the_client(
    pair: Service, upstream: Upstream, spare: Upstream, status: int
) -> None:
    api_key = new_key(pair)
    upstream.default_reply = Reply(status=status, body='{"error":{"message":"canary"}}')
    assert post_chat(pair, api_key, CHAT).status == 200
    spare.default_reply = upstream.default_reply
    answer = post_chat(pair, api_key, CHAT)
    assert (answer.status, answer.error["type"], answer.error["code"]) == (502, "api_error", "upstream_error")
    assert b"canary" not in answer.body
    assert "x-legato-attempt" not in answer.headers


def test_only_the_model_that_served_is_paid_for(pair: Service, upstream: Upstream) -> None:
    account = pair.new_account()
    upstream.default_reply = Reply(status=500)
    assert post_chat(pair, pair.new_key(account), CHAT).status == 200
    charged_nanos = CREDIT_NANOS - pair.settled_balance_nanos(account)
    [row] = pair.usage(account)
    assert (row.requests, charged_nanos) == (1, 100 * row.usage.prompt_tokens + 210 * row.usage.completion_tokens)
    assert pair.audit() == []


def test_client_that_leaves_is_noticed_at_the_attempt_that_is_under_way(
    pair: Service, upstream: Upstream, spare: Upstream
) -> None:
    upstream.default_reply = Reply(status=500)
    spare.default_reply = Reply(delay_s=600)
    chat = OpenChat(pair, new_key(pair), CHAT)
    wait_until(lambda: spare.requests)
    chat.leave()
    wait_until(lambda: spare.requests[0].aborted)
    assert len(upstream.requests) == 1


def test_routes_are_reloaded_and_shown_by_command(pair: Service, upstream: Upstream, spare: Upstream) -> None:
    api_key = new_key(pair)
    upstream.replies.append(Reply(contents=RAIN, event_delay_s=1))
    running = OpenChat(pair, api_key, CHAT)
    running.read_until(b'"It"')
    pair.write_routes(routes_to(spare=spare))
    [reloaded] = pair.legato("routes", "reload")
    assert (reloaded["reloaded"], reloaded["targets"]) == (True, 3)
    assert post_chat(pair, api_key, CHAT).headers["x-legato-attempt"] == "1"
    assert (len(upstream.requests), len(spare.requests)) == (1, 1)
    running.read_until(b"[DONE]")
    running.leave()
    [shown, *_] = pair.legato("routes", "show")
    assert (shown["class"], shown["provider"], shown["model"]) == ("mezzo", "spare", "spare-model")
    assert (shown["breaker"], shown["attempts"], shown["failures"]) == ("closed", 1, 0)
    assert shown["latency_ms"] > 0


def test_no_header_of_the_client_reaches_a_provider(pair: Service, upstream: Upstream) -> None:
    headers = {"X-Canary": "canary", "Cookie": "canary=1", "OpenAI-Organization": "canary", "User-Agent": "canary"}
    api_key = new_key(pair)
    assert post_chat(pair, api_key, CHAT, headers).status == 200
    [request] = upstream.requests
    told = " ".join([*request.headers, *request.headers.values()]).lower()
    assert "canary" not in told
    assert api_key.lower() not in told


def test_redirect_is_not_followed(pair: Service, upstream: Upstream, spare: Upstream) -> None:
    with UpstreamThread() as trap:
        upstream.default_reply = spare.default_reply = Reply(
            status=307, headers={"Location": f"{trap.base_url}/chat/completions"}
        )
        answer = post_chat(pair, new_key(pair), CHAT)
        assert (answer.status, answer.error["code"]) == (502, "upstream_error")
        assert not trap.requests
