"""The table of sentences against the code that refuses by their ids."""

import ast
import json
import re
from functools import cache
from string import Formatter
from typing import Any, Final

from services.chassis.sentence import Sentence
from tests.contracts.product import ROOT

FOLDERS: Final = ("services", "edge", "console")
TABLE: Final[dict[str, Any]] = json.loads((ROOT / "services" / "chassis" / "sentences.json").read_text())
SENTENCES: Final[dict[str, dict[str, str]]] = TABLE["sentences"]
# What knows no id before it runs, and the examples of a description, which raise nothing.
OTHERS: Final = {"services/chassis/sentence.py", "edge/api/description.py"}
# The reader of documents is another process, which tells the id.
BY_ANOTHER_PROCESS: Final = "Sentence(line.refused, **line.figures)"
# Functions that take one of a list of words.
OF_LISTS: Final = {"unavailable": "part", "Gate": "part", "FairBudget": "part", "not_found": "thing", "id_of": "thing"}


@cache
def calls() -> list[tuple[str, ast.Call, str]]:
    """Lists the calls of functions and classes by their last name, with where they stand."""
    return [
        (str(path.relative_to(ROOT)), node, last_name(node.func))
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
    ]


def last_name(function: ast.expr) -> str:
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def sentences_made() -> list[tuple[str, ast.Call]]:
    return [
        (path, call)
        for path, call, function in calls()
        if function == "Sentence" and path not in OTHERS and ast.unparse(call) != BY_ANOTHER_PROCESS
    ]


def placeholders(words: str) -> set[tuple[str, str]]:
    return {(name, kind or "") for _, name, kind, _ in Formatter().parse(words) if name is not None}


def id_of(call: ast.Call) -> str:
    first = call.args[0]
    assert isinstance(first, ast.Constant), ast.unparse(call)
    return str(first.value)


def test_every_id_that_is_raised_is_in_the_table_and_no_other() -> None:
    assert {id_of(call) for _, call in sentences_made()} == SENTENCES.keys()


def test_a_sentence_is_given_the_figures_of_its_words() -> None:
    for path, call in sentences_made():
        names = {name for name, _ in placeholders(SENTENCES[id_of(call)]["en"])}
        given = {keyword.arg for keyword in call.keywords if keyword.arg is not None}
        # Figures that several sentences share come as a dictionary.
        is_whole = len(given) == len(call.keywords)
        assert given == names if is_whole else given < names, (path, ast.unparse(call))


def test_both_languages_have_the_same_figures_of_kinds_that_there_are() -> None:
    kinds = {"", "number", "date", *TABLE["words"]}
    for name, words in SENTENCES.items():
        assert words.keys() == {"en", "fr"}, name
        assert placeholders(words["en"]) == placeholders(words["fr"]), name
        assert {kind for _, kind in placeholders(words["en"])} <= kinds, name


def test_no_two_ids_have_the_same_words() -> None:
    for language in ("en", "fr"):
        words = [each[language] for each in SENTENCES.values()]
        assert len(words) == len(set(words))


def test_the_table_is_in_order_and_names_each_id_once() -> None:
    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        assert [name for name, _ in found] == sorted({name for name, _ in found}) or dict(found).keys() == {"en", "fr"}
        return dict(found)

    json.loads((ROOT / "services" / "chassis" / "sentences.json").read_text(), object_pairs_hook=pairs)


def test_every_word_of_a_list_is_in_it() -> None:
    """Names of services are given where their clients are made, others where something refuses."""
    for path, call, function in calls():
        if function in OF_LISTS and call.args and isinstance(call.args[0], ast.Constant) and path != "edge/assembly.py":
            assert call.args[0].value in TABLE["words"][OF_LISTS[function]], (path, ast.unparse(call))
    titles = re.findall(r'service\("([^"]+)", "', (ROOT / "console" / "services.py").read_text())
    assert titles
    assert set(titles) <= TABLE["words"]["part"].keys()


def test_french_words_are_written_as_french_is() -> None:
    """A space that may break stands before no colon, semicolon or sign, and an apostrophe is no straight one."""
    for name, words in SENTENCES.items():
        assert not re.search(r" [:;?!%$]", words["fr"]), name
        assert not re.search(r"\w'\w", words["fr"]), name


def test_words_without_an_id_are_those_of_operators_files_and_forms() -> None:
    assert {path for path, _, function in calls() if function == "verbatim"} == {
        # An example of an operator's message.
        "edge/api/description.py",
        "edge/access/maintenance.py",
        # What a process ends with at its start, in words of the database's driver.
        "services/chassis/database/migrations.py",
        "services/chassis/database/outages.py",
        # Mistakes in the operator's routes file.
        "services/router/trials/servicer.py",
        # In the visitor's language already.
        "console/web/forms.py",
    }


def test_english_words_are_put_together_with_their_figures() -> None:
    told = Sentence("pdf_pages_most", count=12345, most=2000)
    assert str(told) == "The PDF has 12,345 pages; the limit is 2,000."
