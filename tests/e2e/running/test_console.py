"""The console with real services behind it, from the link that `legato up` prints to a revoked key."""

import http.client
import json
import re
from pathlib import Path
from urllib.parse import urlencode, urlsplit

from tests.cli.service import Up


class Visitor:
    """Sends forms as a browser would, with its cookies."""

    def __init__(self, origin: str) -> None:
        self._address = urlsplit(origin).netloc
        self.cookies: dict[str, str] = {}

    def ask(self, method: str, path: str, fields: dict[str, str] | None = None) -> tuple[int, str]:
        connection = http.client.HTTPConnection(self._address, timeout=60)
        headers = {
            "Sec-Fetch-Site": "same-origin",
            "Content-Type": "application/x-www-form-urlencoded",
            "Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items()),
        }
        try:
            connection.request(method, path, urlencode(fields or {}) if method == "POST" else None, headers)
            response = connection.getresponse()
            text = response.read().decode()
        finally:
            connection.close()
        for cookie in response.headers.get_all("set-cookie") or ():
            name, _, value = cookie.split(";")[0].partition("=")
            self.cookies[name] = value.strip('"')
        return response.status, text


def test_an_owner_signs_in_creates_a_key_and_revokes_it(socket_folder: Path) -> None:
    up = Up(socket_folder / "data", "--welcome", "--console-port", "0", "--json")
    try:
        assert "ready" in json.loads(up.line())
        link = json.loads(up.line())["console"]
        origin, _, code = link.partition("/sign-in#")
        visitor = Visitor(origin)
        assert visitor.ask("GET", "/keys")[0] == 303
        assert visitor.ask("POST", "/sign-in", {"code": code})[0] == 303
        # A link works once.
        assert Visitor(origin).ask("POST", "/sign-in", {"code": code})[0] == 401
        status, page = visitor.ask("GET", "/")
        assert status == 200
        assert "$5.00" in page
        status, page = visitor.ask("POST", "/first-key", {"form_id": "a1"})
        assert status == 200
        [key] = set(re.findall(r"sk-legato-[0-9A-Za-z]{55}", page))
        key_id = f"key_{key[10:26]}"
        assert visitor.ask("POST", f"/keys/{key_id}/revoke")[0] == 303
        status, page = visitor.ask("GET", f"/keys/{key_id}")
        assert re.search(r"Every edge refuses the key since \d+\.\d s", page)
        for path in ("/keys", "/security", "/security/audit-log", "/settings", "/settings/audit-log", "/playground"):
            assert visitor.ask("GET", path)[0] == 200
        assert "pt-legato-" in visitor.ask("POST", "/playground/token")[1]
        session = dict(visitor.cookies)
        assert visitor.ask("POST", "/sign-out")[0] == 303
        visitor.cookies = session
        assert visitor.ask("GET", "/keys")[0] == 303
    finally:
        up.stop()
        up.close()
    logs = "".join(path.read_text() for path in (socket_folder / "data" / "logs").iterdir())
    for secret in ("sk-legato-", "pt-legato-", code, *filter(None, session.values())):
        assert secret not in logs
