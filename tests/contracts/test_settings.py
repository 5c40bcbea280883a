"""Whatever is set, a number that makes no sense is named at start."""

from typing import Any

import msgspec
import pytest

from edge.settings import EdgeSettings
from services.chassis.settings import SettingsError, load
from tests.contracts.all_settings import ALL_SETTINGS

NUMBERS = (msgspec.inspect.IntType, msgspec.inspect.FloatType)


def is_number(kind: msgspec.inspect.Type) -> bool:
    if isinstance(kind, msgspec.inspect.UnionType):
        return any(is_number(one) for one in kind.types)
    return isinstance(kind, NUMBERS)


def numbers_of(kind: type[msgspec.Struct]) -> list[str]:
    described = msgspec.inspect.type_info(kind)
    assert isinstance(described, msgspec.inspect.StructType)
    return [f"LEGATO_{field.name.upper()}" for field in described.fields if is_number(field.type)]


@pytest.mark.parametrize("kind", ALL_SETTINGS, ids=lambda kind: kind.__name__)
def test_no_number_is_taken_that_is_negative_or_not_finite(kind: type[Any]) -> None:
    for name in numbers_of(kind):
        for number in ("-1", "nan", "inf"):
            with pytest.raises(SettingsError, match=f"^{name}: "):
                load(kind, {name: number, "LEGATO_KEY_PEPPERS": "1:ab"})


def test_a_port_that_there_is_not_is_named_too() -> None:
    with pytest.raises(SettingsError, match="LEGATO_EDGE_PORT: "):
        load(EdgeSettings, {"LEGATO_EDGE_PORT": "65536"})
