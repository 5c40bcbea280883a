"""Services have one shape, and say what they share once."""

from tests.contracts.product import ROOT, product_modules


def modules_with(text: str) -> list[str]:
    return [str(path) for path in product_modules() if text in (ROOT / path).read_text()]


def test_servicers_are_registered_in_one_place() -> None:
    assert modules_with("_to_server") == ["services/chassis/rpc/server.py"]


def test_content_is_sealed_in_one_place() -> None:
    assert modules_with("AESGCM") == ["services/chassis/sealing.py"]
