"""What a reload of the routes would change, told without secrets."""

from dataclasses import MISSING
from pathlib import Path
from typing import Any, Final

import pytest

from services.router.routes.diff import find_changes
from services.router.routes.file import Table
from tests.services.router.routes.test_reload import read
from tests.services.router.routes.test_routes import GOOD

FORTISSIMO = 'models = ["big", "small"]'


def test_the_same_file_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "routes.toml"
    assert find_changes(read(path, GOOD), read(path, f"# A comment.\n{GOOD}")) == []


def test_models_that_come_and_go_are_told_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "routes.toml"
    wanted = GOOD.replace('models = ["big", "small"]', 'models = ["small"]').replace("= 500", "= 600")
    changes = find_changes(read(path, GOOD), read(path, wanted))
    terms = "max_output_tokens 50, has_tools False, continues last_message"
    assert [line for line in changes if "fortissimo" in line] == [
        "- fortissimo: 1. vendor/big of host, context_tokens 1000, max_output_tokens 100",
        f"- fortissimo: 2. small of bundled, context_tokens 500, {terms}",
        f"+ fortissimo: 1. small of bundled, context_tokens 600, {terms}",
    ]
    assert len(changes) == 3


def test_weights_are_told_of_members_that_share_a_tier(tmp_path: Path) -> None:
    path = tmp_path / "routes.toml"
    pool = GOOD.replace('models = ["big", "small"]', "tiers = [{ big = 3, small = 1 }]")
    changes = find_changes(read(path, pool), read(path, pool.replace("big = 3", "big = 2")))
    terms = "context_tokens 1000, max_output_tokens 100"
    assert changes == [
        f"- fortissimo: 1. vendor/big of host, weight 3, {terms}",
        f"+ fortissimo: 1. vendor/big of host, weight 2, {terms}",
    ]
    # A tier of one takes all chats, whatever its weight.
    alone = GOOD.replace('models = ["big", "small"]', "tiers = [{ big = 3 }, { small = 2 }]")
    assert find_changes(read(path, GOOD), read(path, alone)) == []


def test_canary_and_its_share_are_told(tmp_path: Path) -> None:
    path = tmp_path / "routes.toml"
    models = 'models = ["big", "small"]'
    tried = GOOD.replace(models, f'{models}\ncanary = {{ model = "small", percent = 5, accounts = ["b", "a"] }}')
    terms = "context_tokens 500, max_output_tokens 50, has_tools False, continues last_message"
    assert find_changes(read(path, GOOD), read(path, tried)) == [
        f"+ fortissimo: canary small of bundled, 5 %, a, b, {terms}"
    ]


def test_another_key_or_address_is_told_and_the_key_is_not(tmp_path: Path) -> None:
    path = tmp_path / "routes.toml"
    wanted = GOOD.replace("host.test", "elsewhere.test").replace("zdr = true", "zdr = false")
    changes = find_changes(read(path, GOOD), read(path, wanted, "secret-2"))
    assert changes[0].startswith("- provider host: openai, base_url https://host.test/v1")
    assert changes[1].startswith("+ provider host: openai, base_url https://elsewhere.test/v1")
    assert changes[2:] == ["+ provider host: another key", "+ provider host: another body"]
    assert "secret" not in str(changes)


def test_what_may_be_secret_in_an_address_is_not_told(tmp_path: Path) -> None:
    path = tmp_path / "routes.toml"
    wanted = GOOD.replace("https://host.test/v1", "https://host.test/v1?token=canary")
    changes = find_changes(read(path, GOOD), read(path, wanted))
    assert changes[1].startswith("+ provider host: openai, base_url https://host.test/v1?***")
    assert "canary" not in str(changes)


CANARY = f'{FORTISSIMO}\ncanary = {{ model = "small", percent = 5 }}'
# By each key that a class of the file may have, what the class says before and after a change of it.
KEYS_OF_A_CLASS: Final = {
    "models": (FORTISSIMO, 'models = ["small", "big"]'),
    "tiers": ("tiers = [{ big = 1 }, { small = 1 }]", "tiers = [{ big = 1, small = 1 }]"),
    "canary": (FORTISSIMO, CANARY),
    "canary.model": (CANARY, CANARY.replace('"small", percent', '"other", percent')),
    "canary.percent": (CANARY, CANARY.replace("5", "6")),
    "canary.accounts": (CANARY, CANARY.replace("5", '5, accounts = ["a"]')),
    "refuse_cut_prompts": (FORTISSIMO, f"{FORTISSIMO}\nrefuse_cut_prompts = true"),
    "show_reasoning": (FORTISSIMO, f"{FORTISSIMO}\nshow_reasoning = true"),
    "pad_streams": (FORTISSIMO, f"{FORTISSIMO}\npad_streams = true"),
    "first_token_s": (f"{FORTISSIMO}\nfirst_token_s = 8", f"{FORTISSIMO}\nfirst_token_s = 9"),
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


def test_the_keys_that_are_told_are_all_that_a_class_may_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: set[str] = set()
    read_key = Table.read

    def read_and_record(table: Table, key: str, kind: Any, default: Any = MISSING) -> Any:
        asked.add(table._path_of(key))
        return read_key(table, key, kind, default)

    monkeypatch.setattr(Table, "read", read_and_record)
    for lines in ("tiers = [{ big = 1 }]", CANARY):
        read(tmp_path / "routes.toml", GOOD.replace(FORTISSIMO, lines))
    of_class = {name.removeprefix("classes.fortissimo.") for name in asked if name.startswith("classes.fortissimo.")}
    assert {name for name in of_class if not name.startswith("tiers.")} == set(KEYS_OF_A_CLASS)
