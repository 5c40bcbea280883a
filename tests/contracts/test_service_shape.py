"""Services have one shape: servicers are registered in one place."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
MODULES = [
    path
    for folder in ("cli", "console", "edge", "services")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if ".venv" not in path.parts
]


def test_servicers_are_registered_in_one_place() -> None:
    found = {str(path.relative_to(ROOT)) for path in MODULES if "_to_server" in path.read_text()}
    assert found == {"services/chassis/rpc/server.py"}
