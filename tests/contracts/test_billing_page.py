"""The page about billing names every way in which a request can end, and every way to count it."""

import re
from pathlib import Path
from typing import get_args

from google.protobuf.descriptor import EnumDescriptor

from legato_protos.metering.v1 import metering_pb2 as pb
from services.metering.credit.records import Basis, End
from tests.e2e.rules import read_rules

TESTS = Path(__file__).parents[1] / "e2e"
PAGE = (Path(__file__).parents[2] / "docs" / "billing.md").read_text()


def test_page_explains_each_end_and_basis() -> None:
    assert [word for word in (*get_args(End), *get_args(Basis)) if not re.search(rf"`{word}`", PAGE)] == []


def test_every_rule_is_tested_by_its_name() -> None:
    tests = [path.read_text() for path in TESTS.rglob("test_*.py")]
    rules = [*read_rules("What happened"), *read_rules("What failed of ours")]
    assert rules
    assert [what for what in rules if not any(f'"{what}"' in text for text in tests)] == []


def test_messages_have_the_same_ends_and_counts_as_the_books() -> None:
    assert _words(pb.End.DESCRIPTOR) == set(get_args(End))
    assert _words(pb.Basis.DESCRIPTOR) == set(get_args(Basis))


def _words(enum: EnumDescriptor) -> set[str]:
    names = (value.name for value in enum.values if value.number)
    return {name.removeprefix(f"{enum.name.upper()}_").lower() for name in names}
