"""Services have one shape, and say what they share once."""

from tests.contracts.product import ROOT, product_modules


def modules_with(text: str) -> list[str]:
    return [str(path) for path in product_modules() if text in (ROOT / path).read_text()]


def test_servicers_are_registered_in_one_place() -> None:
    assert modules_with("_to_server") == ["services/chassis/rpc/server.py"]


def test_mains_have_only_what_is_their_own() -> None:
    mains = [path for path in product_modules() if path.name == "__main__.py" and path.parts[0] != "cli"]
    assert len(mains) == 6
    for path in mains:
        text = (ROOT / path).read_text()
        assert "async with serving(" in text, path
        assert len(text.splitlines()) <= 60, path


def test_content_is_sealed_in_one_place() -> None:
    assert modules_with("AESGCM") == ["services/chassis/sealing.py"]
