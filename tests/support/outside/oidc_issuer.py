"""An OpenID Connect issuer that says whatever a test wants, right or wrong, over a socket."""

import base64
import hashlib
import hmac
import html
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import msgspec
from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT_ID = "legato-console"
CLIENT_SECRET = "between us & the issuer: 100%"


class FakeIssuer:
    """Issues a token for the last authorization request: `claims` and `header` replace parts of it."""

    def __init__(self) -> None:
        self.key = RSAKey.generate_key(2048, {"kid": "key-1", "use": "sig"})
        self.published = [self.key]
        self.claims: dict[str, Any] = {}
        self.header: dict[str, Any] = {}
        # Takes the place of the signed token.
        self.token = ""
        self.metadata: dict[str, Any] = {}
        self.key_requests = 0
        self.asked: dict[str, str] = {}
        self.now_s = 0.0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.issuer = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(60)

    def begin(self, authorization_url: str) -> dict[str, str]:
        """Takes an authorization request; returns the parameters that the browser goes back with."""
        self.asked = {name: values[0] for name, values in parse_qs(urlsplit(authorization_url).query).items()}
        return {"state": self.asked["state"], "code": "code-1"}

    def rotate(self, *, publish: bool = True) -> None:
        self.key = RSAKey.generate_key(2048, {"kid": f"key-{len(self.published) + 1}", "use": "sig"})
        if publish:
            self.published = [self.key]

    def id_token(self) -> str:
        if self.token:
            return self.token
        claims = {
            "iss": self.issuer,
            "sub": "subject-1",
            "aud": CLIENT_ID,
            "iat": int(self.now_s),
            "exp": int(self.now_s) + 300,
            "nonce": self.asked["nonce"],
            **self.claims,
        }
        header = {"alg": "RS256", "kid": self.key.kid, **self.header}
        if header["alg"] == "none":
            return _unsigned(header, claims)
        if header["alg"] == "HS256":
            # What everybody knows, taken for a secret.
            signed = _unsigned(header, claims).rstrip(".")
            return f"{signed}.{_base64(hmac.digest(self.key.as_pem(private=False), signed.encode(), 'sha256'))}"
        return jwt.encode(header, claims, self.key)

    def answer(self, method: str, path: str, form: dict[str, str], authorization: str) -> tuple[int, Any]:
        if path == "/.well-known/openid-configuration":
            return 200, {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "jwks_uri": f"{self.issuer}/keys",
                **self.metadata,
            }
        if path == "/keys":
            self.key_requests += 1
            return 200, {"keys": [key.as_dict(private=False) for key in self.published]}
        challenge = _base64(hashlib.sha256(form["code_verifier"].encode()).digest())
        is_right = (
            method == "POST"
            and form["code"] == "code-1"
            and challenge == self.asked["code_challenge"]
            and form["redirect_uri"] == self.asked["redirect_uri"]
            and authorization.startswith("Basic ")
        )
        return (200, {"id_token": self.id_token(), "token_type": "Bearer"}) if is_right else (400, {"error": "no"})

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                length = int(self.headers.get("content-length") or 0)
                form = {name: values[0] for name, values in parse_qs(self.rfile.read(length).decode()).items()}
                if urlsplit(self.path).path == "/authorize":
                    self._show(issuer.begin(self.path))
                    return
                told = self.headers.get("authorization", "")
                status, content = issuer.answer(self.command, urlsplit(self.path).path, form, told)
                self._send(status, "application/json", msgspec.json.encode(content))

            do_POST = do_GET  # noqa: N815

            def _show(self, parameters: dict[str, str]) -> None:
                """Shows a browser a page that leads back."""
                back = f"{issuer.asked['redirect_uri']}?{urlencode(parameters)}"
                page = f'<!doctype html><title>Issuer</title><a href="{html.escape(back)}">Approve</a>'
                self._send(200, "text/html", page.encode())

            def _send(self, status: int, kind: str, body: bytes) -> None:
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        return Handler


def _unsigned(header: dict[str, Any], claims: dict[str, Any]) -> str:
    return ".".join([*(_base64(msgspec.json.encode(part)) for part in (header, claims)), ""])


def _base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")
