"""Efforts that are near to others."""

import pytest

from services.router.providers.abilities import Abilities


@pytest.mark.parametrize(
    ("efforts", "wanted", "nearest"),
    [
        (("low", "medium", "high"), "medium", "medium"),
        (("low", "medium", "high"), "max", "high"),
        (("low", "medium", "high"), "none", "low"),
        # Of two, the higher one.
        (("low", "high"), "medium", "high"),
        (("low", "medium", "high", "max"), "xhigh", "max"),
        # A model that is to think does.
        (("none", "low"), "minimal", "low"),
        (("none",), "high", None),
        ((), "low", None),
        (("low",), "ultra", None),
        (None, "ultra", "ultra"),
    ],
)
def test_nearest_effort(efforts: tuple[str, ...] | None, wanted: str, nearest: str | None) -> None:
    assert Abilities(efforts=efforts).nearest_effort(wanted) == nearest


def test_differences_name_what_differs_and_how() -> None:
    learned = Abilities(efforts=(), forced_tools=False, refused=frozenset(("seed", "logit_bias")))
    assert learned.differences(Abilities()) == ["efforts none", "forced_tools no", "refused logit_bias/seed"]
    assert str(learned) == "efforts none, forced_tools no, refused logit_bias/seed"
    assert learned.differences(learned) == []
