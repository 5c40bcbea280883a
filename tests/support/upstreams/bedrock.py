"""Servers that speak as Amazon Bedrock does: Claude by InvokeModel, and its endpoint for clients of OpenAI's.

Signatures are checked with Amazon's own library, from the request as it came.
"""

import re
import struct
import time
import zlib
from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote

import msgspec
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.support.upstreams.anthropic import AnthropicReply, AnthropicUpstream, check_message_request
from tests.support.upstreams.openai import Recorded, Reply, Upstream
from tests.support.upstreams.rules import RuleBroken, require
from tests.support.upstreams.token_server import IssuedKeys, TokenServer

REGION = "ca-central-1"
API_KEY = "canary-of-a-bedrock-key"
KEY_ID = "AKIAEXAMPLE"
SECRET_KEY = "canary/of+a/secret=key"
_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<key_id>\w+)/(?P<day>\d{8})/(?P<region>[\w-]+)/(?P<service>[\w-]+)/aws4_request, "
    r"SignedHeaders=(?P<names>[a-z0-9;-]+), Signature=(?P<signature>[0-9a-f]{64})"
)
_SKEW_S = 300.0
EVENT_STREAM = "application/vnd.amazon.eventstream"


class AwsRefusal(RuleBroken):
    def __init__(self, status: int, error_type: str, message: str) -> None:
        super().__init__(message, status)
        self.error_type = error_type


class Signatures:
    """The keys that are valid at a server of Amazon's."""

    def __init__(self, service: str = "bedrock", tokens: TokenServer | None = None) -> None:
        self._service = service
        self._tokens = tokens
        self.keys = {KEY_ID: IssuedKeys(SECRET_KEY, "")}
        # The server's own clock, compared with ours.
        self.ahead_s = 0.0

    def check(self, recorded: Recorded) -> None:
        authorization = recorded.headers.get("authorization") or recorded.headers.get("Authorization", "")
        if authorization.startswith("Bearer "):
            if authorization != f"Bearer {API_KEY}":
                raise AwsRefusal(403, "AccessDeniedException", "Authentication failed")
            return
        found = _AUTHORIZATION.fullmatch(authorization)
        if found is None:
            raise AwsRefusal(403, "MissingAuthenticationTokenException", "Missing Authentication Token")
        if found["region"] != REGION or found["service"] != self._service:
            what = f"Credential should be scoped to a valid region and correct service: '{self._service}'."
            raise AwsRefusal(403, "InvalidSignatureException", what)
        headers = {name.lower(): value for name, value in recorded.headers.items()}
        issued = {**self.keys, **(self._tokens.keys if self._tokens else {})}.get(found["key_id"])
        if issued is None:
            raise AwsRefusal(
                403, "UnrecognizedClientException", "The security token included in the request is invalid."
            )
        if issued.session_token:
            assert self._tokens is not None
            if not self._tokens.is_valid(headers.get("x-amz-security-token", "")):
                raise AwsRefusal(403, "ExpiredTokenException", "The security token included in the request is expired")
        signed_s = time.mktime(time.strptime(headers["x-amz-date"], "%Y%m%dT%H%M%SZ")) - time.timezone
        if abs(signed_s - self.now_s()) > _SKEW_S:
            raise AwsRefusal(403, "InvalidSignatureException", "Signature expired: it is now another time")
        if found["signature"] != self._signature_of(recorded, headers, found, issued):
            what = "The request signature we calculated does not match the signature you provided."
            raise AwsRefusal(403, "InvalidSignatureException", what)

    def now_s(self) -> float:
        return time.time() + self.ahead_s

    def _signature_of(
        self, recorded: Recorded, headers: dict[str, str], found: re.Match[str], issued: IssuedKeys
    ) -> str:
        names = found["names"].split(";")
        assert {"host", "x-amz-date", "content-type"} <= set(names)
        request = AWSRequest(
            "POST",
            f"http://{headers['host']}{recorded.target}",
            {name: headers[name] for name in names},
            recorded.body,
        )
        request.context["timestamp"] = headers["x-amz-date"]
        keys = Credentials(found["key_id"], issued.secret_access_key, issued.session_token or None)
        signer = SigV4Auth(keys, self._service, REGION)
        return str(signer.signature(signer.string_to_sign(request, signer.canonical_request(request)), request))


class BedrockUpstream(AnthropicUpstream):
    path = "/model/{model}/{method:invoke|invoke-with-response-stream}"
    stream_type = EVENT_STREAM

    def __init__(self, tokens: TokenServer | None = None) -> None:
        super().__init__()
        self.signatures = Signatures(tokens=tokens)

    def wants_stream(self, recorded: Recorded) -> bool:
        return recorded.path.endswith("-stream")

    def refusal_of(self, recorded: Recorded) -> Reply | None:
        try:
            self.signatures.check(recorded)
            _check(recorded)
        except RuleBroken as broken:
            return refusal(broken, self.signatures.now_s())
        return None

    def write_stream(self, reply: Reply, recorded: Recorded) -> list[bytes]:
        datas = [write.partition(b"data: ")[2].strip() for write in super().write_stream(reply, recorded)]
        return [chunk(data) for data in datas]


class BedrockOpenAIUpstream(Upstream):
    path = "/openai/v1/chat/completions"

    def __init__(self, tokens: TokenServer | None = None) -> None:
        super().__init__()
        self.signatures = Signatures(tokens=tokens)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/openai/v1"

    def refusal_of(self, recorded: Recorded) -> Reply | None:
        try:
            self.signatures.check(recorded)
        except RuleBroken as broken:
            return refusal(broken, self.signatures.now_s())
        return None


def refusal(broken: RuleBroken, now_s: float) -> AnthropicReply:
    error_type = broken.error_type if isinstance(broken, AwsRefusal) else "ValidationException"
    date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(now_s))
    headers = {"x-amzn-ErrorType": f"{error_type}:http://internal.amazon.com/coral/", "Date": date}
    body = msgspec.json.encode({"message": str(broken)}).decode()
    return AnthropicReply(status=broken.status, body=body, headers=headers)


def reply_of(events: Iterable[bytes], **fields: Any) -> AnthropicReply:
    """Returns a reply with these messages of an event stream, or whatever bytes."""
    return AnthropicReply(writes=[event.decode("latin-1") for event in events], content_type=EVENT_STREAM, **fields)


def chunk(event: bytes) -> bytes:
    payload = msgspec.json.encode({"bytes": event, "p": "abcdefgh"})
    return message({":event-type": "chunk", ":content-type": "application/json", ":message-type": "event"}, payload)


def exception(name: str, said: str) -> bytes:
    headers = {":exception-type": name, ":content-type": "application/json", ":message-type": "exception"}
    return message(headers, msgspec.json.encode({"message": said}))


def message(headers: dict[str, str], payload: bytes) -> bytes:
    packed = b"".join(
        struct.pack(">B", len(name)) + name.encode() + struct.pack(">BH", 7, len(value)) + value.encode()
        for name, value in headers.items()
    )
    prelude = struct.pack(">II", 16 + len(packed) + len(payload), len(packed))
    begun = prelude + struct.pack(">I", zlib.crc32(prelude)) + packed + payload
    return begun + struct.pack(">I", zlib.crc32(begun))


def _check(recorded: Recorded) -> None:
    request = recorded.json
    version = request.pop("anthropic_version", None)
    require(version in ("bedrock-2023-05-31", "2026-10-21"), "anthropic_version: Field required")
    betas = request.pop("anthropic_beta", [])
    require(isinstance(betas, list), "anthropic_beta: Input should be a valid list")
    for field in ("model", "stream"):
        require(field not in request, f"{field}: Extra inputs are not permitted")
    # The last part of an id such as us.anthropic.claude-opus-4-6-v1:0, or of an ARN.
    model = unquote(recorded.target).split("/")[-2].rpartition("anthropic.")[2]
    require(model, "The provided model identifier is invalid.")
    check_message_request({**request, "model": model, "stream": recorded.path.endswith("-stream")}, version)
