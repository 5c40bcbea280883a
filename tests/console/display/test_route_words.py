"""Changes of routes in words."""

import pytest

from console.display import language
from console.display.route_words import change_words
from legato_protos.router.v1 import route_files_pb2 as pb

ENGLISH = {
    pb.ROUTE_CHANGE_KIND_MODEL_ADDED: ("", "2", "forte: oak of maple is added, in tier 2."),
    pb.ROUTE_CHANGE_KIND_MODEL_REMOVED: ("1", "", "forte: oak of maple is removed from tier 1."),
    pb.ROUTE_CHANGE_KIND_TIER: ("1", "2", "forte: oak moves from tier 1 to tier 2."),
    pb.ROUTE_CHANGE_KIND_WEIGHT: ("3", "5", "forte: oak has weight 5 instead of 3."),
    pb.ROUTE_CHANGE_KIND_CANARY: ("5", "7.5", "forte: the canary oak gets 7.5 % of the accounts instead of 5 %."),
    pb.ROUTE_CHANGE_KIND_SHADOW: ("", "1", "forte: the shadow oak begins with copies of 1 % of the chats."),
    pb.ROUTE_CHANGE_KIND_CLASS_SETTING: ("", "9", "forte: idle_s is 9 instead of –."),
    pb.ROUTE_CHANGE_KIND_MODEL_SETTING: ("1", "9", "maple/oak: idle_s is 9 instead of 1."),
    pb.ROUTE_CHANGE_KIND_PROVIDER_SETTING: ("", "", "maple: idle_s changes."),
}


def words_of(kind: "pb.RouteChangeKind.ValueType", before: str, after: str) -> str:
    named = pb.RouteChange(class_id="forte", provider="maple", model_name="oak", field="idle_s")
    return change_words(pb.RouteChange(kind=kind, before=before, after=after, **_fields(named)))


def _fields(change: pb.RouteChange) -> dict[str, str]:
    return {field.name: value for field, value in change.ListFields()}


def test_each_kind_of_change_has_a_sentence() -> None:
    assert set(ENGLISH) == set(pb.RouteChangeKind.values()) - {pb.ROUTE_CHANGE_KIND_UNSPECIFIED}
    for kind, (before, after, words) in ENGLISH.items():
        assert words_of(kind, before, after) == words


@pytest.mark.parametrize("kind", [pb.ROUTE_CHANGE_KIND_CANARY, pb.ROUTE_CHANGE_KIND_SHADOW])
def test_new_models_begin_change_and_end_in_both_languages(kind: "pb.RouteChangeKind.ValueType") -> None:
    cases = (("", "5"), ("5", "7"), ("5", ""))
    english = [words_of(kind, *case) for case in cases]
    assert len(set(english)) == len(cases)
    language.speak("fr")
    french = [words_of(kind, *case) for case in cases]
    language.speak("en")
    assert not set(french) & set(english)
    assert all("5 %" in words or "7 %" in words or "5\N{NO-BREAK SPACE}%" in words for words in french)
