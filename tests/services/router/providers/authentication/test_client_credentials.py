"""Access tokens for applications of Microsoft Entra."""

from dataclasses import replace
from pathlib import Path

import pytest

from services.router.providers.authentication.client_credentials import ClientCredentials
from services.router.providers.authentication.credentials import CredentialsUnavailable
from services.router.providers.authentication.secret import Secret
from tests.support.upstreams.token_server import CLIENT_ID, CLIENT_SECRET, SCOPE, SUBJECT_TOKEN, TokenServer


@pytest.fixture
def client(tokens: TokenServer) -> ClientCredentials:
    return ClientCredentials(tokens.entra_url, CLIENT_ID, SCOPE, client_secret=Secret(value=CLIENT_SECRET))


async def test_secret_of_a_client_brings_a_token(client: ClientCredentials, tokens: TokenServer) -> None:
    client.check()
    token, lifetime_s, _ = await client.obtain()
    assert tokens.is_valid(token)
    assert lifetime_s == 3600


async def test_token_of_kubernetes_brings_one_without_a_secret(
    client: ClientCredentials, tokens: TokenServer, tmp_path: Path
) -> None:
    path = tmp_path / "azure-identity-token"
    path.write_text(SUBJECT_TOKEN)
    federated = replace(client, client_secret=None, client_assertion_file=path)
    federated.check()
    assert tokens.is_valid((await federated.obtain()).value)


async def test_wrong_secret_is_refused_without_telling_it(client: ClientCredentials) -> None:
    wrong = replace(client, client_secret=Secret(value="canary-of-another"))
    with pytest.raises(CredentialsUnavailable) as refusal:
        await wrong.obtain()
    assert str(refusal.value) == "127.0.0.1 answered with status 401 (invalid_client)"


def test_secret_is_in_no_text_of_it(client: ClientCredentials) -> None:
    assert "canary" not in repr(client) + str(client)
    assert str(client) == "client_credentials 11111111-aaaa at 127.0.0.1"
