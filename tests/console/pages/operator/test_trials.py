"""New models on the page of models: their outcomes beside those of the others, and what to do after a roll-back."""

from tests.console.harness import ConsoleHarness


def test_new_models_are_shown_with_their_outcomes_beside_those_that_serve(
    console: ConsoleHarness, session: str
) -> None:
    console.router.evaluate()
    text = console.get("/operator", session).text
    for words in (
        "canary, 5\u00a0% of accounts",
        "Rolled back",
        "New models of forte",
        "Canary: cedar/cedar-2-max fails more often: 25.0 % of 120 against 0.5 % of 2,900.",
    ):
        assert words in text, words
    assert "New models of mezzo" not in text
    # Its own, and not those of its other class.
    row = text[text.index("canary, 5") :].partition("</tr>")[0]
    assert "Failed since the start: " in row
    assert row.count("30 of 120 (25.0\u00a0%)") == 2


def test_command_that_resumes_a_canary_is_shown_where_it_was_rolled_back(console: ConsoleHarness, session: str) -> None:
    console.router.evaluate()
    assert "legato routes resume forte" in console.get("/operator", session).text
