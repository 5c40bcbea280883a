"""A server that hands out credentials as Microsoft, Google and Amazon do, and refuses what they refuse."""

import asyncio
import time
from collections import deque
from typing import Any, NamedTuple, Self
from urllib.parse import parse_qsl

import msgspec
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.support.upstreams.rules import RuleBroken, require

CLIENT_ID = "11111111-aaaa"
CLIENT_SECRET = "canary-of-a-client-secret"
SCOPE = "https://cognitiveservices.azure.com/.default"
CLOUD_PLATFORM = "https://www.googleapis.com/auth/cloud-platform"
EMAIL = "legato@project.iam.gserviceaccount.com"
KEY_ID = "key-7"
AUDIENCE = "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/pool/providers/kube"
SUBJECT_TOKEN = "canary-of-a-subject-token"
ROLE = "arn:aws:iam::123456789012:role/legato"
_SKEW_S = 300.0


class TokenReply(NamedTuple):
    """An answer in place of credentials."""

    status: int = 200
    body: str = ""
    delay_s: float = 0
    # Never answers.
    hangs: bool = False


class IssuedKeys(NamedTuple):
    secret_access_key: str
    session_token: str


class TokenServer:
    def __init__(self) -> None:
        # Each takes the place of one answer.
        self.replies: deque[TokenReply] = deque()
        self.requests: list[str] = []
        self.lifetime_s = 3600.0
        # The server's own clock, compared with ours.
        self.ahead_s = 0.0
        # Tokens and access keys, with their ends.
        self.issued: dict[str, float] = {}
        self.keys: dict[str, IssuedKeys] = {}
        self._private_key = rsa.generate_private_key(65537, 2048)
        self._runner: web.AppRunner | None = None
        self.port = 0

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def entra_url(self) -> str:
        return f"{self.base_url}/tenant/oauth2/v2.0/token"

    def now_s(self) -> float:
        return time.time() + self.ahead_s

    def is_valid(self, token: str) -> bool:
        return self.issued.get(token, 0) > self.now_s()

    def revoke_all(self) -> None:
        self.issued.clear()

    def service_account(self) -> bytes:
        """Returns a key file as Google's console writes it."""
        pem = self._private_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        return msgspec.json.encode(
            {
                "type": "service_account",
                "project_id": "project",
                "private_key_id": KEY_ID,
                "private_key": pem,
                "client_email": EMAIL,
                "token_uri": f"{self.base_url}/token",
            }
        )

    def external_account(self, source: dict[str, Any], *, impersonates: bool = False) -> bytes:
        """Returns a configuration of workload identity federation as gcloud writes it."""
        configured = {
            "type": "external_account",
            "audience": AUDIENCE,
            "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
            "token_url": f"{self.base_url}/v1/token",
            "credential_source": source,
        }
        if impersonates:
            url = f"{self.base_url}/v1/projects/-/serviceAccounts/{EMAIL}:generateAccessToken"
            configured["service_account_impersonation_url"] = url
        return msgspec.json.encode(configured)

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *failure: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _serve(self, request: web.Request) -> web.Response:
        self.requests.append(f"{request.method} {request.path}")
        reply = self.replies.popleft() if self.replies else TokenReply()
        if reply.hangs:
            await asyncio.Event().wait()
        await asyncio.sleep(reply.delay_s)
        date = {"Date": time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(self.now_s()))}
        if reply.body or reply.status != 200:
            return web.Response(status=reply.status, text=reply.body, headers=date)
        try:
            told = await self._answer(request)
        except RuleBroken as broken:
            body = msgspec.json.encode({"error": str(broken), "error_description": "canary of a description"})
            return web.Response(status=broken.status, body=body, headers=date)
        if isinstance(told, str):
            return web.Response(text=told, headers=date)
        return web.Response(body=msgspec.json.encode(told), content_type="application/json", headers=date)

    async def _answer(self, request: web.Request) -> dict[str, Any] | str:
        path, form = request.path, {}
        if request.content_type == "application/x-www-form-urlencoded":
            form = dict(parse_qsl((await request.read()).decode()))
        if path == "/tenant/oauth2/v2.0/token":
            return self._answer_client(form)
        if path == "/token":
            return self._answer_service_account(form)
        if path == "/v1/token":
            return self._answer_exchange(form)
        if path.endswith(":generateAccessToken"):
            bearer = request.headers.get("Authorization", "").removeprefix("Bearer ")
            require(self.is_valid(bearer), "unauthenticated", 401)
            require((await request.json())["scope"] == [CLOUD_PLATFORM], "invalid_scope")
            return {"accessToken": self._issue("impersonated"), "expireTime": self._end()}
        if path.startswith("/computeMetadata/v1/instance/service-accounts/"):
            require(request.headers.get("Metadata-Flavor") == "Google", "missing_header", 403)
            return {"access_token": self._issue("metadata"), "expires_in": self.lifetime_s, "token_type": "Bearer"}
        return self._answer_amazon(request, form)

    def _answer_client(self, form: dict[str, str]) -> dict[str, Any]:
        require(form.get("grant_type") == "client_credentials", "unsupported_grant_type")
        require(form.get("client_id") == CLIENT_ID, "unauthorized_client")
        is_asserted = form.get("client_assertion_type") == "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
        is_proven = is_asserted and form.get("client_assertion") == SUBJECT_TOKEN
        require(is_proven or form.get("client_secret") == CLIENT_SECRET, "invalid_client", 401)
        require(form.get("scope") == SCOPE, "invalid_scope")
        return {"access_token": self._issue("entra"), "expires_in": int(self.lifetime_s), "token_type": "Bearer"}

    def _answer_service_account(self, form: dict[str, str]) -> dict[str, Any]:
        from joserfc import jwt
        from joserfc.errors import JoseError
        from joserfc.jwk import RSAKey

        require(form.get("grant_type") == "urn:ietf:params:oauth:grant-type:jwt-bearer", "unsupported_grant_type")
        try:
            signed = jwt.decode(form["assertion"], RSAKey.import_key(self._private_key.public_key()), ["RS256"])
        except (JoseError, KeyError):
            raise RuleBroken("invalid_grant") from None
        claims = signed.claims
        require(signed.header["kid"] == KEY_ID and claims["iss"] == EMAIL, "invalid_grant")
        require(claims["aud"] == f"{self.base_url}/token", "invalid_grant")
        require(claims["scope"] == CLOUD_PLATFORM, "invalid_scope")
        require(claims["iat"] <= self.now_s() + _SKEW_S and self.now_s() < claims["exp"], "invalid_grant")
        require(claims["exp"] - claims["iat"] <= 3600, "invalid_grant")
        return {"access_token": self._issue("service"), "expires_in": int(self.lifetime_s), "token_type": "Bearer"}

    def _answer_exchange(self, form: dict[str, str]) -> dict[str, Any]:
        exchange = "urn:ietf:params:oauth:grant-type:token-exchange"
        require(form.get("grant_type") == exchange, "unsupported_grant_type")
        require(form.get("audience") == AUDIENCE and form.get("scope") == CLOUD_PLATFORM, "invalid_target")
        require(form.get("subject_token") == SUBJECT_TOKEN, "invalid_grant")
        return {"access_token": self._issue("federated"), "expires_in": int(self.lifetime_s), "token_type": "Bearer"}

    def _answer_amazon(self, request: web.Request, form: dict[str, str]) -> dict[str, Any] | str:
        if form.get("Action") == "AssumeRoleWithWebIdentity":
            require(form["RoleArn"] == ROLE and form["WebIdentityToken"] == SUBJECT_TOKEN, "access_denied", 403)
            require(form["RoleSessionName"] and form["Version"] == "2011-06-15", "validation_error")
            keys = self._issue_keys("SessionToken")
            elements = "".join(f"<{name}>{value}</{name}>" for name, value in keys.items())
            name = "AssumeRoleWithWebIdentityResponse"
            return f"<{name}><Credentials>{elements}</Credentials></{name}>"
        if request.path == "/latest/api/token":
            is_put = request.method == "PUT" and request.headers.get("X-aws-ec2-metadata-token-ttl-seconds")
            require(is_put, "bad_request")
            return self._issue("imds")
        if request.path.startswith("/latest/meta-data/iam/security-credentials/"):
            require(self.is_valid(request.headers.get("X-aws-ec2-metadata-token", "")), "unauthorized", 401)
            role = request.path.rpartition("/")[2]
            return {"Code": "Success", **self._issue_keys("Token")} if role else "legato-role"
        require(request.path == "/v1/credentials", "not_found", 404)
        require(request.headers.get("Authorization") == SUBJECT_TOKEN, "unauthorized", 401)
        return self._issue_keys("Token")

    def _issue(self, name: str) -> str:
        token = f"canary-{name}-{len(self.issued)}-{len(self.requests)}"
        self.issued[token] = self.now_s() + self.lifetime_s
        return token

    def _issue_keys(self, token: str) -> dict[str, Any]:
        key_id = f"ASIA{len(self.keys):04}"
        self.keys[key_id] = IssuedKeys(f"canary/secret+{key_id}", self._issue("session"))
        secret, session = self.keys[key_id]
        return {"AccessKeyId": key_id, "SecretAccessKey": secret, token: session, "Expiration": self._end()}

    def _end(self) -> str:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.now_s() + self.lifetime_s))
