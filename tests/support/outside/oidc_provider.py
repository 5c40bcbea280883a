"""A real OpenID Connect provider, run as a process: `python -m tests.support.outside.oidc_provider` prints its port."""

import contextlib
import http.client
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import parse_qs, urlencode, urlsplit

import msgspec


@dataclass(frozen=True)
class OidcProvider:
    port: int

    @property
    def issuer(self) -> str:
        return f"http://localhost:{self.port}"

    def set_user(self, subject: str, **claims: object) -> None:
        status, _ = self._ask("PUT", f"/users/{subject}", msgspec.json.encode(claims), "application/json")
        assert status == 204

    def approve(self, authorization_url: str, subject: str) -> dict[str, str]:
        """Signs a user in, as the page of the provider does; returns the parameters that the browser goes back with."""
        parts = urlsplit(authorization_url)
        form = urlencode({"sub": subject}).encode()
        status, location = self._ask("POST", f"{parts.path}?{parts.query}", form, "application/x-www-form-urlencoded")
        assert status == 302
        return {name: values[0] for name, values in parse_qs(urlsplit(location).query).items()}

    def _ask(self, method: str, target: str, body: bytes, content_type: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("localhost", self.port, timeout=60)
        try:
            connection.request(method, target, body, {"Content-Type": content_type})
            response = connection.getresponse()
            response.read()
            return response.status, response.headers.get("location", "")
        finally:
            connection.close()


@contextlib.contextmanager
def running_provider() -> Iterator[OidcProvider]:
    # Its library would otherwise insist on HTTPS.
    environ = {**os.environ, "AUTHLIB_INSECURE_TRANSPORT": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", __name__], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environ
    )
    assert process.stdout is not None
    try:
        yield OidcProvider(int(process.stdout.readline()))
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def main() -> None:
    warnings.simplefilter("ignore")
    import oidc_provider_mock
    import werkzeug.serving

    app = oidc_provider_mock.app(require_nonce=True)
    server = werkzeug.serving.make_server("localhost", 0, app, threaded=True)
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main()
