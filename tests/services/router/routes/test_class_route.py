"""The models of a class in the routes file: a list, or tiers of weighted members."""

from pathlib import Path

import pytest

from services.router.routes.routes import load_routes
from tests.services.router.routes.test_routes import GOOD, mistakes_of

FORTISSIMO = 'models = ["big", "small"]'


@pytest.fixture
def routes_file(tmp_path: Path) -> Path:
    return tmp_path / "routes.toml"


def tiers_of(path: Path, models: str) -> list[dict[str, int]]:
    path.write_text(GOOD.replace(FORTISSIMO, models))
    route = load_routes(path, {"HOST_KEY": "secret"}).classes["fortissimo"]
    return [{member.target.model_name: member.weight for member in tier} for tier in route.tiers]


def test_tiers_give_their_members_weights(routes_file: Path) -> None:
    assert tiers_of(routes_file, "tiers = [{ big = 70, small = 30 }]") == [{"vendor/big": 70, "small": 30}]
    assert tiers_of(routes_file, "tiers = [{ big = 7 }, { small = 1 }]") == [{"vendor/big": 7}, {"small": 1}]


def test_listed_models_are_tiers_of_one(routes_file: Path) -> None:
    assert tiers_of(routes_file, FORTISSIMO) == [{"vendor/big": 1}, {"small": 1}]


def test_first_token_is_of_a_class_that_says_so(routes_file: Path) -> None:
    routes_file.write_text(GOOD + "first_token_s = 2.5\n")
    classes = load_routes(routes_file, {"HOST_KEY": "secret"}).classes
    assert (classes["fortissimo"].first_token_s, classes["forte"].first_token_s) == (2.5, None)


@pytest.mark.parametrize(
    ("line", "mistake"),
    [
        (
            'shadow = { model = "small", percent = 1 }',
            "shadow: was removed: copies of chats are no longer sent (a canary tries a new model); delete it",
        ),
        (
            "hedge = true",
            "hedge: was removed: no second model is asked at the same time (see first_token_s); delete it",
        ),
    ],
    ids=["shadow", "hedge"],
)
def test_key_of_an_earlier_release_is_told_with_what_became_of_it(routes_file: Path, line: str, mistake: str) -> None:
    assert mistakes_of(routes_file, f"{GOOD}{line}\n") == [f"classes.fortissimo.{mistake}"]


@pytest.mark.parametrize(
    ("models", "mistakes"),
    [
        ("", ["models: is missing; a class has models or tiers"]),
        (f"{FORTISSIMO}\ntiers = [{{ big = 1 }}]", ["tiers: cannot stand beside models"]),
        (f"{FORTISSIMO}\nfirst_token_s = 0", ["first_token_s: must be a number of seconds above zero"]),
        ("tiers = []", ["tiers: must be a non-empty list of tables"]),
        ('tiers = ["big"]', ["tiers: must be a non-empty list of tables"]),
        ("tiers = [{ big = 1 }, {}]", ["tiers: has a tier without a model"]),
        ("tiers = [{ big = 1 }, { huge = 1 }]", ['tiers: no model named "huge"']),
        ("tiers = [{ big = 1 }, { big = 1 }]", ["tiers: names a model twice"]),
        (
            'tiers = [{ big = 0 }, { small = "2" }]',
            [
                "tiers.1.big: must be a whole number above zero",
                "tiers.2.small: must be a whole number above zero",
            ],
        ),
    ],
)
def test_mistakes_in_tiers_are_named(models: str, mistakes: list[str], routes_file: Path) -> None:
    found = mistakes_of(routes_file, GOOD.replace(FORTISSIMO, models))
    assert found == [f"classes.fortissimo.{mistake}" for mistake in mistakes]


def test_canary_has_a_percentage_and_may_name_accounts(routes_file: Path) -> None:
    canary = 'canary = { model = "small", percent = 2.5, accounts = ["acct_1"] }'
    routes_file.write_text(GOOD.replace(FORTISSIMO, f'models = ["big"]\n{canary}'))
    route = load_routes(routes_file, {"HOST_KEY": "secret"}).classes["fortissimo"]
    assert [target.model_name for target in route.targets] == ["vendor/big", "small"]
    assert route.canary is not None
    assert (route.canary.target.model_name, route.canary.percent) == ("small", 2.5)
    assert route.canary.accounts == frozenset({"acct_1"})


@pytest.mark.parametrize(
    ("canary", "mistakes"),
    [
        ("{}", ["canary.model: is missing", "canary.percent: is missing"]),
        ('{ model = "huge", percent = 5 }', ['canary.model: no model named "huge"']),
        ('{ model = "big", percent = 5 }', ["canary.model: is the first model of the class already"]),
        ('{ model = "small", percent = 0 }', ["canary.percent: must be a number above zero, up to 100"]),
        ('{ model = "small", percent = 101 }', ["canary.percent: must be a number above zero, up to 100"]),
        ('{ model = "small", percent = 5, account = "a" }', ["canary.account: is not a known key"]),
    ],
)
def test_mistakes_in_a_canary_are_named(canary: str, mistakes: list[str], routes_file: Path) -> None:
    found = mistakes_of(routes_file, GOOD.replace(FORTISSIMO, f"{FORTISSIMO}\ncanary = {canary}"))
    assert found == [f"classes.fortissimo.{mistake}" for mistake in mistakes]
