"""The operators' pages with real services behind them, on one machine: status, credit, whose key, audits."""

import json
import re
from pathlib import Path

from tests.e2e.running.test_console import Visitor
from tests.support.service import make_data_folder
from tests.support.up import Up
from tests.support.waiting import wait_until

PAGES = ["/operator", "/operator/accounts", "/operator/users", "/operator/keys", "/operator/ledger"]


def test_the_first_user_is_an_operator_and_books_credit_once(socket_folder: Path) -> None:
    up = Up(make_data_folder(socket_folder / "data"), "--welcome", "--console-port", "0", "--json", is_forked=True)
    try:
        assert "ready" in json.loads(up.line())
        origin, _, code = json.loads(up.line())["console"].partition("/sign-in#")
        visitor = Visitor(origin)
        assert visitor.ask("POST", "/sign-in", {"code": code})[0] == 303
        for path in PAGES:
            assert visitor.ask("GET", path)[0] == 200, path
        _, page = visitor.ask("GET", "/operator/accounts")
        [account] = set(re.findall(r"/operator/accounts/(acct_\w+)", page))
        path = f"/operator/accounts/{account}"
        _, page = visitor.ask("GET", path)
        [operation_id] = re.findall(r'name="operation_id" value="(\w+)"', page)
        fields = {"kind": "grant", "amount": "7.25", "amount_again": "7.25", "operation_id": operation_id}
        for _ in range(2):
            assert visitor.ask("POST", f"{path}/credit", fields)[0] == 303
        assert "$12.25" in visitor.ask("GET", path)[1]
        _, page = visitor.ask("GET", f"/operator/audit-log?account={account}&action=credit")
        assert f"-{operation_id}" in page
        assert "The chain is whole" in visitor.ask("POST", "/operator/audit-log/verify")[1]
        assert "The ledger is consistent" in visitor.ask("POST", "/operator/ledger/audit")[1]
        assert "Reloaded" in visitor.ask("POST", "/operator")[1]

        def every_process_is_ready() -> bool:
            figures = json.loads(visitor.ask("GET", "/operator/models.json")[1])["figures"]
            states = {name.split()[0]: figure[0] for name, figure in figures.items() if name.endswith(".sock state")}
            return set(states) >= {"edge-1", "auth", "router", "metering"} and set(states.values()) == {"Ready"}

        wait_until(every_process_is_ready)
        # A user who is no operator finds none of it.
        _, page = visitor.make("/operator/users", {"name": "Grace", "account_id": account, "role": "owner"})
        [link] = set(re.findall(r"/sign-in#([0-9A-Z-]+)", page))
        other = Visitor(origin)
        assert other.ask("POST", "/sign-in", {"code": link})[0] == 303
        assert other.ask("GET", "/keys")[0] == 200
        assert [other.ask("GET", each)[0] for each in [*PAGES, path]] == [404] * (len(PAGES) + 1)
        assert other.ask("POST", f"{path}/credit", fields | {"operation_id": "0af3"})[0] == 404
        assert "$12.25" in visitor.ask("GET", path)[1]
    finally:
        up.stop()
        up.close()
    logs = "".join(each.read_text() for each in (socket_folder / "data" / "logs").iterdir())
    for secret in (code, link, *filter(None, visitor.cookies.values())):
        assert secret not in logs
