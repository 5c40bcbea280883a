"""Reads which credentials that expire a provider has, in its table `credentials`."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from services.chassis.settings import SettingsError
from services.router.providers.authentication.aws_keys import AwsAccessKey, AwsProfile
from services.router.providers.authentication.aws_metadata import METADATA_URL, AwsContainer, AwsInstance
from services.router.providers.authentication.aws_web_identity import AwsWebIdentity
from services.router.providers.authentication.client_credentials import ClientCredentials
from services.router.providers.authentication.credentials import Credentials, CredentialsUnavailable
from services.router.providers.authentication.google_external_account import GoogleExternalAccount
from services.router.providers.authentication.google_metadata import METADATA_URL as GOOGLE_METADATA_URL
from services.router.providers.authentication.google_metadata import GoogleMetadata
from services.router.providers.authentication.google_service_account import CLOUD_PLATFORM, GoogleServiceAccount
from services.router.providers.authentication.secret import Secret
from services.router.providers.authentication.sigv4 import SigningScope
from services.router.providers.authentication.token_file import TokenFile
from services.router.routes import file as kinds
from services.router.routes.file import Table
from services.router.routes.keys.api_keys import KeySource

KEY: Final = "credentials"
# What ends the keys of secrets: the names of a file and of a variable.
FILE: Final = "_file"
VARIABLE: Final = "_env"
# Where containers of Amazon's cloud find what hands out their keys.
_CONTAINER: Final = "AWS_CONTAINER_CREDENTIALS"
_CONTAINER_ORIGIN: Final = "http://169.254.170.2"


class _Reader:
    def __init__(self, table: Table, keys: KeySource, region: str, host: str) -> None:
        self._table = table
        self._keys = keys
        self.environ = keys.environ
        self._region = region
        self._host = host

    def text(self, key: str, default: str | None = None) -> str:
        """Reads a text, which is missing if there is no default."""
        defaults = () if default is None else (default,)
        found: str = self._table.read(key, kinds.TEXT, *defaults)
        return found

    def path(self, key: str, default: str | None = None) -> Path:
        return self.at(self.text(key, default))

    def at(self, file: str) -> Path:
        return self._keys.folder / Path(file).expanduser()

    def secret(self, name: str, variable: str = "") -> Secret | None:
        """Reads the file or the variable that has a secret; without either, that variable if it is set."""
        file = self.text(f"{name}{FILE}", "")
        named = self.text(f"{name}{VARIABLE}", "")
        if file and named:
            self._table.mistake(f"{name}{FILE}", f"is given beside {name}{VARIABLE}: give only one of them")
        if self._table.read(name, Any, None) is not None:
            self._table.mistake(name, f"do not put secrets in this file: name a file in {name}{FILE}")
        if file:
            return Secret(self.at(file))
        if not self._keys.has_keys:
            return Secret()
        found = named or (variable if self.environ.get(variable) else "")
        try:
            return Secret(value=self._keys.read_variable(found)) if found else None
        except SettingsError as error:
            self._table.mistake(f"{name}{VARIABLE}", str(error))
            return Secret()

    def needed(self, name: str, variable: str = "") -> Secret:
        secret = self.secret(name, variable)
        if secret is None:
            self._table.mistake(f"{name}{FILE}", "is missing")
        return secret or Secret()

    def variable(self, key: str, variable: str) -> str:
        """Reads a text that Amazon's tools find in a variable."""
        return self.text(key, self.environ.get(variable) or (None if self._keys.has_keys else variable))

    def scope(self) -> SigningScope:
        if not self._region:
            self._table.mistake("region", "is missing: requests to this server are signed for its region")
        known = "bedrock-mantle" if self._host.startswith("bedrock-mantle") else "bedrock"
        return SigningScope(self._region, self.text("service", known))


def _client_credentials(reader: _Reader) -> Credentials:
    token_url, client_id = reader.text("token_url"), reader.text("client_id")
    scope, assertion = reader.text("scope", ""), reader.text("client_assertion_file", "")
    if assertion:
        return ClientCredentials(token_url, client_id, scope, client_assertion_file=reader.at(assertion))
    return ClientCredentials(token_url, client_id, scope, client_secret=reader.needed("client_secret"))


def _aws_access_key(reader: _Reader) -> Credentials:
    return AwsAccessKey(
        reader.scope(),
        reader.needed("access_key_id", "AWS_ACCESS_KEY_ID"),
        reader.needed("secret_access_key", "AWS_SECRET_ACCESS_KEY"),
        reader.secret("session_token", "AWS_SESSION_TOKEN"),
    )


def _aws_web_identity(reader: _Reader) -> Credentials:
    scope = reader.scope()
    role_arn = reader.variable("role_arn", "AWS_ROLE_ARN")
    token_file = reader.variable("token_file", "AWS_WEB_IDENTITY_TOKEN_FILE")
    sts_url = reader.text("sts_url", f"https://sts.{scope.region}.amazonaws.com")
    return AwsWebIdentity(scope, role_arn, reader.at(token_file), sts_url)


def _aws_container(reader: _Reader) -> Credentials:
    # Pods of EKS have both, containers of ECS a path alone.
    path, token_file = map(reader.environ.get, (f"{_CONTAINER}_RELATIVE_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"))
    url = reader.text("url", f"{_CONTAINER_ORIGIN}{path}") if path else reader.variable("url", f"{_CONTAINER}_FULL_URI")
    authorization = reader.text("authorization_file", token_file or "")
    return AwsContainer(reader.scope(), url, Secret(reader.at(authorization)) if authorization else None)


_READERS: Final[Mapping[str, Callable[[_Reader], Credentials]]] = {
    TokenFile.source: lambda reader: TokenFile(reader.path("file")),
    ClientCredentials.source: _client_credentials,
    GoogleServiceAccount.source: lambda reader: GoogleServiceAccount(
        reader.path("file"), reader.text("scope", CLOUD_PLATFORM)
    ),
    GoogleExternalAccount.source: lambda reader: GoogleExternalAccount(
        reader.path("file"), reader.text("scope", CLOUD_PLATFORM)
    ),
    GoogleMetadata.source: lambda reader: GoogleMetadata(
        reader.text("account", "default"), reader.text("metadata_url", GOOGLE_METADATA_URL)
    ),
    AwsAccessKey.source: _aws_access_key,
    AwsProfile.source: lambda reader: AwsProfile(
        reader.scope(), reader.path("file", "~/.aws/credentials"), reader.text("profile", "default")
    ),
    AwsWebIdentity.source: _aws_web_identity,
    AwsInstance.source: lambda reader: AwsInstance(reader.scope(), reader.text("metadata_url", METADATA_URL)),
    AwsContainer.source: _aws_container,
}


def read_credentials(provider: Table, keys: KeySource, region: str, host: str) -> Credentials | None:
    """Reads the credentials of a provider in this region, if it has any, and checks them without asking any server."""
    if not provider.has(KEY):
        return None
    table = provider.inner(KEY)
    source = table.choose("source", tuple(_READERS))
    if source not in _READERS:
        return None
    mistakes = table.mistakes_so_far
    credentials = _READERS[source](_Reader(table, keys, region, host))
    table.finish()
    if keys.has_keys and table.mistakes_so_far == mistakes:
        try:
            credentials.check()
        except CredentialsUnavailable as error:
            table.mistake("", str(error))
    return credentials
