"""Services have one shape, and say what they share once."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from tests.contracts.product import ROOT, product_modules


class Shape(NamedTuple):
    """What stands at the top of a service."""

    # A folder for each domain; a service with a single one has none.
    slices: frozenset[str] = frozenset()
    # What all slices use, beside the modules that every service has.
    shared: frozenset[str] = frozenset()


SHAPES: Final = {
    "auth": Shape(
        frozenset({"accounts", "audit", "keys", "notices", "people", "sign_in"}), shared=frozenset({"core", "origins"})
    ),
    "metering": Shape(
        frozenset({"audit", "credit", "limits", "months", "reports", "statements"}),
        shared=frozenset({"messages", "servicers", "store"}),
    ),
    "payments": Shape(shared=frozenset({"rules", "servicer", "stripe_client"})),
    "router": Shape(
        frozenset(
            {
                "answers",
                "calls",
                "chat",
                "grounding",
                "models",
                "prompts",
                "providers",
                "reasoning",
                "routes",
                "schema",
                "trials",
            },
        ),
        shared=frozenset({"compiled", "local_model", "native_source"}),
    ),
}
OF_EVERY_SERVICE: Final = frozenset({"__main__", "metrics", "migrations", "service", "settings"})
# Inside a slice, as a module or, where it would be long, a folder of several.
FOLDERS: Final = {
    "messages": "messages",
    "records": "records",
    "rules": "rules",
    "servicer": "servicers",
    "store": "store",
}
# With more, a folder is a hall: what belongs together in it is a folder of its own, or another slice.
MODULES_MOST: Final = 15


def modules_with(text: str) -> list[str]:
    return [str(path) for path in product_modules() if text in (ROOT / path).read_text()]


def test_servicers_are_registered_in_one_place() -> None:
    assert modules_with("_to_server") == ["services/chassis/rpc/methods.py"]


def test_mains_have_only_what_is_their_own() -> None:
    mains = [path for path in product_modules() if path.name == "__main__.py" and path.parts[0] != "cli"]
    assert len(mains) == 6
    for path in mains:
        text = (ROOT / path).read_text()
        assert "async with serving(" in text, path
        assert len(text.splitlines()) <= 60, path


def test_content_is_sealed_in_one_place() -> None:
    assert modules_with("AESGCM") == ["services/chassis/sealing.py"]


def test_pieces_of_answers_are_counted_in_one_place() -> None:
    # The journal itself writes the first record of a slot.
    assert modules_with("slot.count(") == ["edge/billing/journal.py", "edge/chat/delivery.py"]
    assert modules_with("slot.mark(") == ["edge/chat/delivery.py"]


def test_messages_are_not_repeated_under_the_name_of_a_service() -> None:
    contracts = "".join(path.read_text() for path in sorted((ROOT / "protos").rglob("*.proto")))
    services = re.findall(r"^service (\w+)", contracts, re.MULTILINE)
    messages = re.findall(r"^message (\w+)", contracts, re.MULTILINE)
    assert len(services) > 10
    assert [name for name in messages if name.startswith(tuple(services))] == []


def test_auth_has_one_grpc_service_for_each_kind_of_caller_and_thing() -> None:
    contracts = "".join(path.read_text() for path in sorted((ROOT / "protos/legato/auth").rglob("*.proto")))
    assert re.findall(r"^service (\w+)", contracts, re.MULTILINE) == [
        "AccountAdminService",
        "AuthService",
        "KeyAdminService",
        "SignInService",
        "UserService",
        "NoticeService",
        "AuditService",
        "UserAdminService",
    ]


def test_auth_creates_keys_in_one_place() -> None:
    assert modules_with("key_format.mint()") == ["services/auth/keys/rules/keys.py", "services/auth/keys/store/keys.py"]


def _import_contracts() -> list[dict[str, Any]]:
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    found: list[dict[str, Any]] = tools["importlinter"]["contracts"]
    return found


def _names_in(folder: Path) -> set[str]:
    """Returns the names of its modules, and of its folders that have code."""
    modules = {path.stem for path in folder.glob("*.py") if path.stem != "__init__"}
    return modules | {path.name for path in folder.iterdir() if any(path.glob("*.py")) or any(path.glob("*.c"))}


def _implements_rpcs(module: Path) -> bool:
    classes = (node for node in ast.walk(ast.parse(module.read_text())) if isinstance(node, ast.ClassDef))
    bases = {ast.unparse(base) for each in classes for base in each.bases}
    return any("_pb2_grpc." in base and base.endswith("Servicer") for base in bases)


def _faults_of_slice(home: Path) -> Iterator[str]:
    names = _names_in(ROOT / home)
    if len(names) > MODULES_MOST:
        yield f"{home} has {len(names)} modules"
    for kind, folder_name in FOLDERS.items():
        folder = home / folder_name
        if (ROOT / folder).is_dir():
            if (ROOT / home / f"{kind}.py").exists():
                yield f"{folder} is a module, too"
            if len(_names_in(ROOT / folder)) < 2:
                yield f"{folder} has a single module"
    if (ROOT / home / "servicers.py").exists() or (ROOT / home / "servicer").exists():
        yield f"{home}: one module is servicer.py, several are in servicers/"


def _faults_of_service(name: str) -> Iterator[str]:
    home, shape = Path("services") / name, SHAPES[name]
    expected = OF_EVERY_SERVICE | shape.slices | shape.shared
    found = _names_in(ROOT / home)
    yield from (f"{home}/{each} is neither a slice nor shared" for each in sorted(found - expected))
    yield from (f"{home}/{each} is missing" for each in sorted((shape.slices | shape.shared) - found))
    for module in product_modules():
        is_servicer = module.name == "servicer.py" or module.parent.name == "servicers"
        if module.is_relative_to(home) and not is_servicer and _implements_rpcs(ROOT / module):
            yield f"{module} implements RPCs"
    contracts = _import_contracts()
    layers = [layer for contract in contracts for layer in contract.get("layers", [])]
    ordered = {part for layer in layers for part in re.split(r"[ |:()]+", layer)}
    containers = {each for contract in contracts for each in contract.get("containers", [])}
    for each in sorted(shape.slices & found):
        yield from _faults_of_slice(home / each)
        dotted = f"services.{name}.{each}"
        if dotted not in ordered:
            yield f"no contract says which slices {dotted} may see"
        if dotted not in containers:
            yield f"no contract says what stands above what in {dotted}"
        if not (ROOT / "tests" / home / each).is_dir():
            yield f"{dotted} has no folder of tests"


def test_every_service_has_a_shape() -> None:
    services = {path.parent.name for path in (ROOT / "services").glob("*/__main__.py")}
    assert services == SHAPES.keys()


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_a_service_is_made_of_slices_of_one_shape(name: str) -> None:
    assert list(_faults_of_service(name)) == []
