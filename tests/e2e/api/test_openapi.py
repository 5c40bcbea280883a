"""The OpenAPI document, against the running service."""

from pathlib import Path

from edge.api.app import FILE
from tests.campaigns.openapi.campaign import run_schemathesis
from tests.e2e.raw_http import ask
from tests.support.service import Service


def test_the_document_is_served_without_a_key(service: Service) -> None:
    answer = ask(service, "GET", "/openapi.json")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert answer.body == FILE.read_bytes()


def test_a_wrong_method_is_refused_there_without_a_key_too(service: Service) -> None:
    refusal = ask(service, "DELETE", "/openapi.json")
    assert (refusal.status, refusal.headers["allow"]) == (405, "GET, OPTIONS")


def test_the_service_answers_as_the_document_says(tmp_path: Path) -> None:
    outcome = run_schemathesis(examples=1, seed=1, folder=tmp_path)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
