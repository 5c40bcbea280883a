"""The OpenAPI document, against the running service."""

import re
from pathlib import Path
from typing import Any, cast

import pytest

from edge.api.app import EdgeApp
from tests.campaigns.openapi.campaign import run_schemathesis
from tests.e2e.raw_http import ask
from tests.support.service import Service


def test_the_document_is_served_without_a_key(service: Service) -> None:
    answer = ask(service, "GET", "/openapi.json")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json == EdgeApp(cast(Any, None)).openapi()


def test_a_wrong_method_is_refused_there_without_a_key_too(service: Service) -> None:
    refusal = ask(service, "DELETE", "/openapi.json")
    assert (refusal.status, refusal.headers["allow"]) == (405, "GET, OPTIONS")


def test_a_page_without_anything_from_elsewhere_lets_one_try_the_api(service: Service) -> None:
    page = ask(service, "GET", "/docs")
    assert page.status == 200
    addresses = re.findall(r'(?:src|href)="([^"]+)"', page.body.decode())
    assert addresses
    for address in addresses:
        assert address.startswith("/docs/assets/")
        assert ask(service, "GET", address).status == 200
    assert "default-src 'none'" in page.headers["content-security-policy"]


@pytest.mark.long
def test_the_service_answers_as_the_document_says(tmp_path: Path) -> None:
    outcome = run_schemathesis(examples=1, seed=1, folder=tmp_path)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
