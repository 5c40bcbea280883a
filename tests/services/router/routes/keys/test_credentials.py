"""Credentials that expire, as the routes file describes them."""

from pathlib import Path
from typing import Any

import pytest

from services.chassis.settings import SettingsError
from services.router.providers.base import ProviderRoute
from services.router.routes.routes import Routes, load_routes
from tests.services.router.routes.test_routes import GOOD as GOOD_WITH_KEY
from tests.support.upstreams.token_server import TokenServer

GOOD = GOOD_WITH_KEY.replace('api_key_env = "HOST_KEY"\n', "")
ENTRA = 'token_url = "https://login.test/token", client_id = "legato"'
PROMISE = 'evidence = "contract"\nuntil = 2999-01-01\n'


def load(
    folder: Path, table: str, *, others: str = "", environ: dict[str, str] | None = None, has_keys: bool = True
) -> Routes:
    path = folder / "routes.toml"
    lines = f"zero_retention = true\ncredentials = {{ {table} }}\n{others}"
    path.write_text(GOOD.replace("zero_retention = true\n", lines, 1))
    return load_routes(path, {"HOST_KEY": "secret", **(environ or {})}, has_keys=has_keys)


def read(folder: Path, table: str, **of: Any) -> ProviderRoute:
    return load(folder, table, **of).providers["host"]


def mistake_of(folder: Path, table: str, **of: Any) -> str:
    with pytest.raises(SettingsError) as refusal:
        read(folder, table, **of)
    return str(refusal.value).partition("routes.toml: ")[2]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    server = TokenServer()
    server.port = 8080
    (tmp_path / "token").write_text("canary-token\n")
    (tmp_path / "secret").write_text("canary-secret\n")
    (tmp_path / "account.json").write_bytes(server.service_account())
    (tmp_path / "external.json").write_bytes(server.external_account({"file": "token"}))
    (tmp_path / "profiles").write_text("[default]\naws_access_key_id=AKIA\naws_secret_access_key=canary\n")
    return tmp_path


REGION = 'region = "ca-central-1"\n'
GOOD_ONES = {
    'source = "token_file", file = "token"': "token_file",
    f'source = "client_credentials", {ENTRA}, client_secret_file = "secret"': "client_credentials legato at login.test",
    f'source = "client_credentials", {ENTRA}, client_assertion_file = "token"': "client_credentials legato",
    'source = "google_service_account", file = "account.json"': "google_service_account",
    'source = "google_external_account", file = "external.json"': "google_external_account",
    'source = "google_metadata"': "google_metadata default",
    'source = "aws_access_key", access_key_id_file = "token", secret_access_key_file = "secret"': "aws_access_key",
    'source = "aws_profile", file = "profiles"': "aws_profile default of",
    'source = "aws_web_identity", role_arn = "arn:aws:iam::1:role/x", token_file = "token"': "aws_web_identity arn:",
    'source = "aws_instance"': "aws_instance bedrock in ca-central-1",
    'source = "aws_container", url = "http://169.254.170.23/v1/credentials"': "aws_container",
}


@pytest.mark.parametrize(("table", "told"), GOOD_ONES.items())
def test_source_is_read_and_told_without_secrets(files: Path, table: str, told: str) -> None:
    route = read(files, table, others=REGION)
    assert str(route.credentials).startswith(told)
    assert "canary" not in str(route.credentials) + repr(route)


@pytest.mark.parametrize(
    ("table", "mistake"),
    [
        ('source = "magic"', 'credentials.source: is "magic", but must be one of token_file, client_credentials'),
        ("", "credentials.source: is missing"),
        ('source = "token_file"', "credentials.file: is missing"),
        ('source = "token_file", file = "none"', "credentials: cannot read"),
        ('source = "token_file", file = "token", x = 1', "credentials.x: is not a known key"),
        (f'source = "client_credentials", {ENTRA}', "credentials.client_secret_file: is missing"),
        (
            f'source = "client_credentials", {ENTRA}, client_secret = "canary"',
            "credentials.client_secret: do not put secrets in this file: name a file in client_secret_file",
        ),
        (
            f'source = "client_credentials", {ENTRA}, client_secret_file = "secret", client_secret_env = "HOST_KEY"',
            "credentials.client_secret_file: is given beside client_secret_env: give only one of them",
        ),
        (
            f'source = "client_credentials", {ENTRA}, client_secret_env = "NO_SECRET"',
            "credentials.client_secret_env: the variable NO_SECRET is not set",
        ),
        (
            'source = "client_credentials", token_url = "http://a.com", client_id = "x", client_secret_file = "secret"',
            "credentials: a.com hands out credentials without TLS",
        ),
        ('source = "google_service_account", file = "token"', "credentials: "),
        ('source = "aws_instance"', "region: is missing: requests to this server are signed for its region"),
        ('source = "aws_profile", file = "profiles", profile = "x"', "region: is missing"),
        ('source = "aws_web_identity"', "region: is missing"),
    ],
)
def test_mistake_is_told_with_its_key(files: Path, table: str, mistake: str) -> None:
    told = mistake_of(files, table)
    assert mistake in told
    assert "canary" not in told


def test_key_is_not_given_beside_credentials(files: Path) -> None:
    table = 'source = "token_file", file = "token"'
    assert "credentials: are given beside an API key" in mistake_of(files, table, others='api_key_env = "HOST_KEY"\n')


def test_files_are_not_looked_for_on_machines_that_have_none(tmp_path: Path) -> None:
    for table in GOOD_ONES:
        load(tmp_path, table, others=REGION, has_keys=False)
    load(tmp_path, 'source = "aws_access_key"', others=REGION, has_keys=False)


def test_variables_that_amazons_tools_read_are_read(files: Path) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "AKIA", "AWS_SECRET_ACCESS_KEY": "canary"}
    assert read(files, 'source = "aws_access_key"', others=REGION, environ=keys).credentials is not None
    pod = {"AWS_ROLE_ARN": "arn:aws:iam::1:role/pod", "AWS_WEB_IDENTITY_TOKEN_FILE": str(files / "token")}
    identity = read(files, 'source = "aws_web_identity"', others=REGION, environ=pod).credentials
    assert str(identity) == "aws_web_identity arn:aws:iam::1:role/pod"
    full = {
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://169.254.170.23/v1/credentials",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(files / "token"),
    }
    assert read(files, 'source = "aws_container"', others=REGION, environ=full).credentials is not None
    part = {"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/v2/credentials/x"}
    container: Any = read(files, 'source = "aws_container"', others=REGION, environ=part).credentials
    assert container.url == "http://169.254.170.2/v2/credentials/x"


@pytest.mark.parametrize(
    ("host", "region", "service"),
    [
        ("bedrock-runtime.ca-central-1.amazonaws.com", "ca-central-1", "bedrock"),
        ("bedrock-mantle.us-east-1.api.aws", "us-east-1", "bedrock-mantle"),
    ],
)
def test_region_and_service_are_those_of_the_host(tmp_path: Path, host: str, region: str, service: str) -> None:
    path = tmp_path / "routes.toml"
    table = f'credentials = {{ source = "aws_instance" }}\n{PROMISE}'
    text = GOOD.replace("https://host.test/v1", f"https://{host}/openai/v1")
    path.write_text(text.replace("zero_retention = true\n", f"zero_retention = true\n{table}", 1))
    credentials: Any = load_routes(path, {"HOST_KEY": "secret"}).providers["host"].credentials
    assert (credentials.scope.region, credentials.scope.service) == (region, service)
