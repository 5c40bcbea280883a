import pytest

from services.router.reasoning.sealed_ids import LONGEST_ID_CHARACTERS, ReasoningSeals, open_seals
from services.router.schema.thoughts import MARK, Carried, ReasoningText, ThinkingBlock

THOUGHTS = (ThinkingBlock("naïve", "c2ln", at=3), ReasoningText("so ✓ it is", "reasoning"))
KEYS = {1: b"a" * 32, 2: b"b" * 32}


@pytest.fixture
def seals() -> ReasoningSeals:
    return ReasoningSeals(KEYS)


def seal(seals: ReasoningSeals, call_id: str = "call_toolu_1", own_id: str = "toolu_1") -> str:
    return seals.seal_id(call_id, own_id, "family", THOUGHTS, "acct_1")


def test_id_begins_as_ever_and_has_the_thoughts(seals: ReasoningSeals) -> None:
    call_id = seal(seals)
    assert call_id.startswith(f"call_toolu_1{MARK}2_")
    assert call_id.replace("_", "").isalnum()
    assert seals.open_id(call_id, "acct_1") == ("call_toolu_1", Carried("family", "toolu_1", list(THOUGHTS)))


@pytest.mark.parametrize("call_id", ["call_functions.get:0", "call_" + "x" * 5000])
def test_id_that_not_all_vendors_take_begins_with_one_that_they_take(call_id: str, seals: ReasoningSeals) -> None:
    sealed = seal(seals, call_id, call_id.removeprefix("call_"))
    short, carried = seals.open_id(sealed, "acct_1")
    assert len(short) <= 40
    assert short.replace("_", "").isalnum()
    assert carried is not None
    assert carried.call_id == call_id.removeprefix("call_")


@pytest.mark.parametrize(
    "change",
    [
        lambda call_id: call_id[:-1],
        lambda call_id: call_id[: len(call_id) // 2],
        lambda call_id: f"{call_id}a",
        lambda call_id: call_id.replace(f"{MARK}2_", f"{MARK}1_"),
        lambda call_id: call_id.replace(f"{MARK}2_", f"{MARK}99999999999999999999_"),
        lambda call_id: call_id.replace(f"{MARK}2_", MARK),
        lambda call_id: call_id.partition(MARK)[0] + MARK,
        lambda call_id: call_id.partition(MARK)[0] + f"{MARK}2_" + "é" * 100,
        lambda call_id: call_id.partition(MARK)[0] + f"{MARK}2_" + "_" * 100,
        lambda call_id: call_id.partition(MARK)[0] + f"{MARK}2_" + "A" * 2 * LONGEST_ID_CHARACTERS,
        lambda call_id: call_id.partition(MARK)[0] + MARK * 100_000,
    ],
)
def test_changed_id_is_an_id_and_no_more(change, seals: ReasoningSeals) -> None:  # type: ignore[no-untyped-def]
    assert seals.open_id(change(seal(seals)), "acct_1") == ("call_toolu_1", None)


def test_id_without_its_beginning_is_another_that_is_always_the_same(seals: ReasoningSeals) -> None:
    sealed = seal(seals).removeprefix("call_toolu_1")
    short, carried = seals.open_id(sealed, "acct_1")
    assert short == seals.open_id(sealed, "acct_1")[0]
    assert short.startswith("call_")
    assert carried is not None


def test_only_the_account_that_it_was_made_for_opens_it(seals: ReasoningSeals) -> None:
    assert seals.open_id(seal(seals), "acct_2")[1] is None
    data = seals.seal_data("family", THOUGHTS, "acct_1")
    assert seals.open_data(data, "acct_2") is None
    assert seals.open_data(data, "acct_1") == Carried("family", "", list(THOUGHTS))


@pytest.mark.parametrize("data", ["", "2", "2_", "x_abc", "²_abc", "2_ab c", "9" * 50 + "_a"])
def test_data_that_is_none_opens_to_nothing(data: str, seals: ReasoningSeals) -> None:
    assert seals.open_data(data, "acct_1") is None


def test_keys_are_rotated(seals: ReasoningSeals) -> None:
    older = ReasoningSeals({1: KEYS[1]})
    assert seals.open_id(seal(older), "acct_1")[1] is not None
    assert older.open_id(seal(seals), "acct_1")[1] is None


def test_without_a_key_each_router_has_its_own() -> None:
    one, other = open_seals(""), open_seals("")
    assert one.open_id(seal(one), "acct_1")[1] is not None
    assert other.open_id(seal(one), "acct_1")[1] is None
    assert open_seals("1:" + "61" * 32).open_id(seal(ReasoningSeals({1: b"a" * 32})), "acct_1")[1] is not None


def test_thoughts_that_do_not_fit_leave_the_id_as_it_was(seals: ReasoningSeals) -> None:
    noise = "".join(chr(0x4E00 + number * 7919 % 20_000) for number in range(60_000))
    assert seals.seal_id("call_1", "call_1", "family", [ReasoningText(noise, "reasoning")], "acct_1") == "call_1"
    assert seals.seal_id("call_1", "call_1", "f", [ReasoningText("x" * 10**7, "reasoning")], "acct_1") == "call_1"
    prose = "the model thinks about the weather in Paris, and then about that in Rome; " * 1_500
    sealed = seals.seal_id("call_1", "call_1", "family", [ReasoningText(prose, "reasoning")], "acct_1")
    assert len("call_1") < len(sealed) <= LONGEST_ID_CHARACTERS


def test_content_is_not_printed() -> None:
    assert "so it is" not in repr(Carried("family", "", [ReasoningText("so it is", "reasoning")]))
