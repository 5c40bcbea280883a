"""What is sent to a webhook, and what never is."""

import ssl

import pytest

from services.auth.notices.rules.webhook_client import DeliveryFailed, WebhookClient, checked_url, sign
from services.chassis.errors import LegatoError
from tests.services.auth.core.test_outbound_http import found_at
from tests.services.auth.notices.receiver import Behaviour, Receiver

SECRET = "whsec_a secret of the tests"
BODY = b'{"kind":"test"}'


@pytest.fixture
def receiver(receiver: Receiver) -> Receiver:
    receiver.secrets = {"/hook?a=1": SECRET, "/": SECRET}
    return receiver


async def failure(client: WebhookClient, url: str, secret: str = SECRET) -> str:
    with pytest.raises(DeliveryFailed) as failed:
        await client.send(url, secret, "ntc_a", BODY, 1_700_000_000)
    return str(failed.value)


async def test_a_notice_arrives_signed(receiver: Receiver, webhook_client: WebhookClient) -> None:
    await webhook_client.send(f"{receiver.url}/hook?a=1", SECRET, "ntc_a", BODY, 1_700_000_000)
    [headers] = receiver.headers
    assert receiver.bodies == [{"kind": "test"}]
    assert headers["legato-signature"] == sign(SECRET, BODY, 1_700_000_000)
    assert headers["legato-notice-id"] == "ntc_a"
    assert headers["content-type"] == "application/json"
    assert headers["host"] == receiver.url.removeprefix("https://")
    assert await failure(webhook_client, receiver.url, "another secret") == "HTTP 401"


@pytest.mark.parametrize(
    ("behaviour", "told"),
    [
        (500, "HTTP 500"),
        (404, "HTTP 404"),
        (307, "HTTP 307: redirects are not followed"),
        ("garbage", "the answer is not HTTP"),
        ("close", "the connection failed"),
    ],
)
async def test_any_other_answer_is_a_failure(
    receiver: Receiver, webhook_client: WebhookClient, behaviour: Behaviour, told: str
) -> None:
    receiver.behaviours = [behaviour]
    assert await failure(webhook_client, receiver.url) == told
    assert receiver.bodies == []


@pytest.mark.parametrize("behaviour", ["hang", "drip"])
async def test_a_receiver_that_does_not_come_to_an_end_is_left(
    receiver: Receiver, tls: ssl.SSLContext, behaviour: Behaviour
) -> None:
    receiver.behaviours = [behaviour]
    client = WebhookClient(allows_private=True, tls=tls, timeout_s=0.3)
    assert await failure(client, receiver.url) == "no answer in time"
    client.close()


async def test_nothing_listens(webhook_client: WebhookClient) -> None:
    assert await failure(webhook_client, "https://127.0.0.1:1/") == "the connection failed"
    for host in ("does-not-exist.invalid", "a" * 64 + ".invalid", "a..invalid"):
        assert await failure(webhook_client, f"https://{host}/") == "the host name is not known"


async def test_a_certificate_of_another_host_is_refused(receiver: Receiver) -> None:
    client = WebhookClient(allows_private=True)
    assert await failure(client, receiver.url) == "TLS failed"
    client.close()


@pytest.mark.parametrize("addresses", [["127.0.0.1"], ["10.0.0.7"], ["203.0.114.1", "127.0.0.1"], ["::ffff:127.0.0.1"]])
async def test_a_name_that_leads_to_a_private_address_is_not_connected_to(
    receiver: Receiver, tls: ssl.SSLContext, addresses: list[str]
) -> None:
    client = WebhookClient(tls=tls)
    url = receiver.url.replace("127.0.0.1", "hooks.example.ca")
    with found_at(*addresses):
        assert await failure(client, url) == "the address is not on the internet"
    client.close()


@pytest.mark.parametrize(
    "url",
    [
        "", "example.ca", "http://example.ca/", "ftp://example.ca/", "https://", "https://a:b@example.ca/",
        "https://example.ca/#a", "https://example.ca:0/", "https://example.ca:x/", "https://10.0.0.1/",
        "https://[::1]/", "https://example.ca/a b", "https://example.ca/é", "https://example.ca/" + "a" * 2_000,
        "https://example.ca/\r\nx: y",
    ],
)  # fmt: skip
def test_an_address_where_nothing_can_be_sent_is_refused(url: str) -> None:
    with pytest.raises(LegatoError) as refused:
        checked_url(url, allows_private=False)
    assert refused.value.param == "url"


def test_an_address_is_kept_as_it_is() -> None:
    url = "https://example.ca:8443/hooks?team=1"
    assert checked_url(f" {url} ", allows_private=False) == url
    assert checked_url("http://10.0.0.1/", allows_private=True) == "http://10.0.0.1/"


@pytest.mark.parametrize("host", ["169.254.169.254", "[fe80::1]", "[::ffff:169.254.169.254]", "[fd00:ec2::254]"])
def test_link_local_addresses_are_refused_where_private_networks_are_allowed(host: str) -> None:
    with pytest.raises(LegatoError) as refused:
        checked_url(f"http://{host}/latest/meta-data", allows_private=True)
    assert refused.value.param == "url"
