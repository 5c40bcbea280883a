"""The console with real services behind it, from the link that `legato up` prints to what is left on the disk."""

import http.client
import json
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest

from tests.support.service import make_data_folder
from tests.support.up import Up
from tests.support.waiting import wait_until

SESSION = "__Host-legato"
EMAIL = "grace.hopper@navy.example"
KEY = re.compile(r"(?:sk|pt)-legato-[0-9A-Za-z]+")
CODE = re.compile(r"\b(?:[0-9A-HJKMNP-TV-Z]{4}-){4}[0-9A-HJKMNP-TV-Z]{4}\b")


def new_key(name: str, form_id: str) -> dict[str, str]:
    """The fields of the form that creates a key."""
    return {"name": name, "expires": "30", "scope": "inference", "allowed": "mezzo", "form_id": form_id}


class Visitor:
    """Sends forms as a browser would, with its cookies."""

    def __init__(self, origin: str) -> None:
        self._address = urlsplit(origin).netloc
        self.cookies: dict[str, str] = {}
        # Session tokens that it has had, and keys and codes that it was shown.
        self.secrets: set[str] = set()

    def ask(
        self,
        method: str,
        path: str,
        fields: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
        cookies: dict[str, str] | None = None,
    ) -> tuple[int, str]:
        """Asks again while a service does not answer within a page's second: the machine may be busy."""
        answers: list[tuple[int, str]] = []

        def is_answered() -> bool:
            answers.append(self._ask_once(method, path, fields, headers, cookies))
            return answers[-1][0] != 503

        wait_until(is_answered)
        return answers[-1]

    def _ask_once(
        self,
        method: str,
        path: str,
        fields: dict[str, str] | None,
        headers: dict[str, str] | None,
        cookies: dict[str, str] | None,
    ) -> tuple[int, str]:
        connection = http.client.HTTPConnection(self._address, timeout=60)
        sent = {
            **(headers or {"Sec-Fetch-Site": "same-origin"}),
            "Content-Type": "application/x-www-form-urlencoded",
            "Cookie": "; ".join(f"{name}={value}" for name, value in (cookies or self.cookies).items()),
        }
        try:
            connection.request(method, path, urlencode(fields or {}) if method == "POST" else None, sent)
            response = connection.getresponse()
            text = response.read().decode()
        finally:
            connection.close()
        if cookies is None:
            for cookie in response.headers.get_all("set-cookie") or ():
                name, _, value = cookie.split(";")[0].partition("=")
                self.cookies[name] = value.strip('"')
        if self.cookies.get(SESSION):
            self.secrets.add(self.cookies[SESSION])
        self.secrets.update(KEY.findall(text), CODE.findall(text))
        self._location = response.headers.get("location", "")
        return response.status, text

    def make(self, path: str, fields: dict[str, str] | None = None) -> tuple[int, str]:
        """Sends a form, and follows to the page that shows what it made."""
        status, text = self.ask("POST", path, fields)
        return self.ask("GET", self._location) if status == 303 else (status, text)

    def is_signed_in(self, cookies: dict[str, str] | None = None) -> bool:
        return self.ask("GET", "/keys", cookies=cookies or dict(self.cookies))[0] == 200


@dataclass
class Running:
    up: Up
    origin: str
    code: str
    api: str
    visitors: list[Visitor] = field(default_factory=list)

    def visitor(self) -> Visitor:
        made = Visitor(self.origin)
        self.visitors.append(made)
        return made

    def operator(self) -> Visitor:
        """Signs the first user in, by a new link: they own the account."""
        visitor = self.visitor()
        code = self.up.json("console", "sign-in-link")["link"].partition("#")[2]
        visitor.secrets.add(code)
        assert visitor.ask("POST", "/sign-in", {"code": code})[0] == 303
        return visitor

    def secrets(self) -> set[str]:
        return {self.code}.union(*(visitor.secrets for visitor in self.visitors))


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    folder = Path(tempfile.mkdtemp(prefix="lg-", dir="/tmp"))
    up = Up(make_data_folder(folder / "data"), "--welcome", "--console-port", "0", "--json", is_forked=True)
    api = json.loads(up.line())["ready"]
    origin, _, code = json.loads(up.line())["console"].partition("/sign-in#")
    yield Running(up, origin, code, api)
    up.close()
    shutil.rmtree(folder, ignore_errors=True)


def test_an_owner_signs_in_creates_a_key_and_revokes_it(running: Running) -> None:
    visitor = running.visitor()
    assert visitor.ask("GET", "/keys")[0] == 303
    assert visitor.ask("POST", "/sign-in", {"code": running.code})[0] == 303
    # A link works once.
    assert running.visitor().ask("POST", "/sign-in", {"code": running.code})[0] == 401
    status, page = visitor.ask("GET", "/")
    assert status == 200
    assert "$5.00" in page
    status, page = visitor.make("/first-key", {"form_id": "a1"})
    assert status == 200
    [key] = set(re.findall(r"sk-legato-[0-9A-Za-z]{55}", page))
    key_id = f"key_{key[10:26]}"
    assert visitor.ask("POST", f"/keys/{key_id}/revoke")[0] == 303
    status, page = visitor.ask("GET", f"/keys/{key_id}")
    assert re.search(r"It took effect on every edge \d+\.\d s after", page)
    for path in ("/keys", "/security", "/security/audit-log", "/settings", "/settings/audit-log", "/playground"):
        assert visitor.ask("GET", path)[0] == 200


def test_a_form_that_is_sent_again_shows_no_key(running: Running) -> None:
    """Reload and back send the form once more; the browser's cache has nothing to show."""
    visitor = running.operator()
    pages = [visitor.make("/keys", new_key("once", "b2")) for _ in range(2)]
    assert [(status, len(KEY.findall(page)) > 0) for status, page in pages] == [(200, True), (200, False)]
    assert visitor.ask("GET", "/keys")[1].count(">once<") == 1


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"},
        # Another port of the same host: the browser sends the cookie along.
        {"Sec-Fetch-Site": "same-site", "Origin": "http://localhost:1"},
        {"Origin": "http://localhost:1"},
        {"Origin": "null"},
        {"Accept": "*/*"},
    ],
)
def test_a_form_of_another_origin_or_port_does_nothing(running: Running, headers: dict[str, str]) -> None:
    visitor = running.operator()
    for path, fields in (("/first-key", {"form_id": "c3"}), ("/sign-out", {}), ("/settings/name", {"name": "Mine"})):
        assert visitor.ask("POST", path, fields, headers)[0] == 403
    assert visitor.is_signed_in()
    assert "Mine" not in visitor.ask("GET", "/settings")[1]


def test_a_session_ends_with_sign_out_step_up_and_a_disabled_user(running: Running) -> None:
    visitor = running.operator()
    codes = CODE.findall(visitor.make("/security/recovery-codes")[1])
    before = dict(visitor.cookies)
    pending = json.dumps({"method": "GET", "path": "/keys", "fields": []})
    status, _ = visitor.ask("POST", "/confirm", {"pending": pending, "kind": "recovery", "code": codes[0]})
    assert status == 303
    # The proof gave the session a new token; the old one is worth nothing.
    assert visitor.cookies[SESSION] != before[SESSION]
    assert visitor.is_signed_in()
    assert not visitor.is_signed_in(before)

    before = dict(visitor.cookies)
    assert visitor.ask("POST", "/sign-out")[0] == 303
    assert not visitor.is_signed_in(before)


def test_a_member_who_was_removed_sees_nothing_of_the_account(running: Running) -> None:
    owner, member = running.operator(), running.visitor()
    page = owner.make("/settings/members/invite", {"email": EMAIL, "role": "member"})[1]
    [code] = set(CODE.findall(page))
    assert EMAIL in owner.ask("GET", "/settings")[1]
    assert member.ask("POST", "/invitation/accept", {"code": code, "name": "Grace"})[0] == 303
    assert member.is_signed_in()
    status, page = member.make("/keys", new_key("hers", "d4"))
    assert status == 200
    [key] = {found for found in KEY.findall(page) if len(found) > 50}

    def status_of_key() -> int:
        address = urlsplit(running.api)
        connection = http.client.HTTPConnection(address.netloc, timeout=60)
        try:
            connection.request("GET", f"{address.path}/usage", headers={"authorization": f"Bearer {key}"})
            return connection.getresponse().status
        finally:
            connection.close()

    # It may do nothing but chats; whether it is known is what counts.
    assert status_of_key() == 403
    [grace] = [user for user in running.up.json("users", "list") if user["name"] == "Grace"]
    assert "hers" in owner.ask("GET", f"/settings/members/{grace['user_id']}/remove")[1]
    assert owner.ask("POST", "/settings/members/remove", {"user_id": grace["user_id"]})[0] == 303
    assert status_of_key() == 401
    for path in ("/keys", "/settings", "/"):
        assert "hers" not in member.ask("GET", path)[1]
    assert member.make("/keys", new_key("more", "e5"))[0] != 200

    assert running.up.legato("users", "disable", grace["user_id"]).exit_code == 0
    assert not member.is_signed_in()


def test_nothing_secret_is_left_in_logs_events_and_database_files(running: Running) -> None:
    """Runs last: what the others did must be nowhere but in the pages that they were shown."""
    if len(running.visitors) < 3:
        owner = running.operator()
        owner.make("/first-key", {"form_id": "f6"})
        owner.make("/settings/members/invite", {"email": EMAIL, "role": "member"})
    audited = running.up.json("audit")
    assert audited["ok"], audited
    assert audited["audit_events"] > 3
    assert running.up.stop() == 0
    files = {path.name: path.read_bytes() for path in running.up.data.rglob("*") if path.is_file()}
    assert {"auth.db", "auth.log", "console.log"} <= files.keys()
    assert b"key.created" in files["auth.db"]
    told = running.secrets()
    assert len(told) > 4
    # The public part of a key is its id, and stays.
    tails = {secret[-20:] for secret in told}
    wanted = [*sorted(tails), EMAIL, EMAIL.partition("@")[2], "sk-legato-", "pt-legato-"]
    found = [(name, text) for name, data in files.items() for text in wanted if text.encode() in data]
    assert found == []
