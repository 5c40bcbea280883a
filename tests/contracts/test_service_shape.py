"""Services have one shape, and say what they share once."""

import re

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


def test_messages_are_not_repeated_under_the_name_of_a_service() -> None:
    contracts = "".join(path.read_text() for path in sorted((ROOT / "protos").rglob("*.proto")))
    services = re.findall(r"^service (\w+)", contracts, re.MULTILINE)
    messages = re.findall(r"^message (\w+)", contracts, re.MULTILINE)
    assert len(services) > 10
    assert [name for name in messages if name.startswith(tuple(services))] == []


def test_auth_creates_keys_in_one_place() -> None:
    assert modules_with("key_format.mint()") == ["services/auth/keys/rules/keys.py", "services/auth/keys/store/keys.py"]
