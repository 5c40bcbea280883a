"""What differs between two versions of routes."""

from dataclasses import MISSING
from pathlib import Path
from typing import Any, Final

import pytest

from legato_protos.router.v1 import route_files_pb2 as pb
from services.router.routing.reload import find_changes
from services.router.routing.route_changes import find_route_changes
from services.router.routing.route_file import Table
from tests.services.router.routing.test_reload import read
from tests.services.router.routing.test_routes import GOOD

FORTISSIMO = 'models = ["big", "small"]'


def changes_of(path: Path, before: str, after: str, key: str = "secret-1") -> list[tuple[str, ...]]:
    """Returns the changes in short, each with its kind."""
    found = find_route_changes(read(path, before), read(path, after, key))
    return [
        (
            pb.RouteChangeKind.Name(change.kind).removeprefix("ROUTE_CHANGE_KIND_"),
            change.class_id or change.provider,
            change.field or change.model_name,
            change.before,
            change.after,
        )
        for change in found
    ]


def test_what_changes_in_a_class_is_told_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "routes.toml"
    tiers = GOOD.replace(FORTISSIMO, "tiers = [{ big = 3, small = 1 }]")
    canary = GOOD.replace(FORTISSIMO, f'{FORTISSIMO}\ncanary = {{ model = "small", percent = 5 }}')
    shadow = GOOD.replace("[classes.forte]", '[classes.forte]\nshadow = { model = "small", percent = 1 }')
    for before, after, told in (
        (GOOD, GOOD, []),
        (GOOD, GOOD.replace(FORTISSIMO, 'models = ["small"]'), [
            ("MODEL_REMOVED", "fortissimo", "vendor/big", "1", ""), ("TIER", "fortissimo", "small", "2", "1")
        ]),
        (tiers, tiers.replace("big = 3", "big = 2"), [("WEIGHT", "fortissimo", "vendor/big", "3", "2")]),
        (GOOD, canary, [("CANARY", "fortissimo", "small", "", "5")]),
        (canary, canary.replace("= 5 }", "= 7.5 }"), [("CANARY", "fortissimo", "small", "5", "7.5")]),
        (canary, GOOD, [("CANARY", "fortissimo", "small", "5", "")]),
        (GOOD, shadow, [("SHADOW", "forte", "small", "", "1")]),
        (canary, canary.replace("= 5 }", '= 5, accounts = ["b", "a"] }'), [
            ("CLASS_SETTING", "fortissimo", "canary.accounts", "", "a, b")
        ]),
        (GOOD, f"{GOOD}first_token_s = 9\n", [("CLASS_SETTING", "fortissimo", "first_token_s", "", "9.0")]),
    ):  # fmt: skip
        assert changes_of(path, before, after) == told


CANARY = f'{FORTISSIMO}\ncanary = {{ model = "small", percent = 5 }}'
SHADOW = 'models = ["big"]\nshadow = { model = "small", percent = 5 }'
# By each key that a class of the file may have, what the class says before and after a change of it.
KEYS_OF_A_CLASS: Final = {
    "models": (FORTISSIMO, 'models = ["small", "big"]'),
    "tiers": ("tiers = [{ big = 1 }, { small = 1 }]", "tiers = [{ big = 1, small = 1 }]"),
    "canary": (FORTISSIMO, CANARY),
    "canary.model": (CANARY, CANARY.replace('"small", percent', '"other", percent')),
    "canary.percent": (CANARY, CANARY.replace("5", "6")),
    "canary.accounts": (CANARY, CANARY.replace("5", '5, accounts = ["a"]')),
    "shadow": ('models = ["big"]', SHADOW),
    "shadow.model": (SHADOW, SHADOW.replace("small", "other")),
    "shadow.percent": (SHADOW, SHADOW.replace("5", "6")),
    "shadow.calls_per_minute": (SHADOW, SHADOW.replace("5", "5, calls_per_minute = 7")),
    "refuse_cut_prompts": (FORTISSIMO, f"{FORTISSIMO}\nrefuse_cut_prompts = true"),
    "first_token_s": (f"{FORTISSIMO}\nfirst_token_s = 8", f"{FORTISSIMO}\nfirst_token_s = 9"),
    "hedge": (FORTISSIMO, f"{FORTISSIMO}\nhedge = true"),
    "character": (FORTISSIMO, f'{FORTISSIMO}\ncharacter = "own.md"'),
}
SMALL = GOOD[GOOD.index("[models.small]") : GOOD.index("[classes.mezzo]")]


@pytest.mark.parametrize("key", KEYS_OF_A_CLASS)
def test_every_key_of_a_class_is_told_when_it_changes(tmp_path: Path, key: str) -> None:
    path = tmp_path / "routes.toml"
    (tmp_path / "own.md").write_text("Be brief.")
    text = GOOD.replace(SMALL, SMALL + SMALL.replace("small", "other"))
    before, after = (read(path, text.replace(FORTISSIMO, lines)) for lines in KEYS_OF_A_CLASS[key])
    assert find_changes(before, after) != []
    assert find_route_changes(before, after) != []


def test_the_keys_that_are_told_are_all_that_a_class_may_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: set[str] = set()
    read_key = Table.read

    def read_and_record(table: Table, key: str, kind: Any, default: Any = MISSING) -> Any:
        asked.add(table._path_of(key))
        return read_key(table, key, kind, default)

    monkeypatch.setattr(Table, "read", read_and_record)
    for lines in ("tiers = [{ big = 1 }]", CANARY, SHADOW):
        read(tmp_path / "routes.toml", GOOD.replace(FORTISSIMO, lines))
    of_class = {name.removeprefix("classes.fortissimo.") for name in asked if name.startswith("classes.fortissimo.")}
    assert {name for name in of_class if not name.startswith("tiers.")} == set(KEYS_OF_A_CLASS)


def test_settings_of_models_and_providers_are_told_without_secrets(tmp_path: Path) -> None:
    path = tmp_path / "routes.toml"
    priced = GOOD.replace("= 500", '= 600\nidle_s = 9\ncost = { input = "1.00", output = "2.00" }')
    told = changes_of(path, GOOD, priced)
    assert ("MODEL_SETTING", "bundled", "context_tokens", "500", "600") in told
    assert ("MODEL_SETTING", "bundled", "idle_s", "60.0", "9.0") in told
    assert ("MODEL_SETTING", "bundled", "cost.output", "", "2.00") in told
    hidden = GOOD.replace("host.test/v1", "host.test/v1?canary").replace("zdr = true", "zdr = false")
    told = changes_of(path, GOOD, hidden, "secret-2")
    assert told == [
        ("PROVIDER_SETTING", "host", "base_url", "https://host.test/v1", "https://host.test/v1?***"),
        ("PROVIDER_SETTING", "host", "api_key", "", ""),
        ("PROVIDER_SETTING", "host", "body", "", ""),
    ]
