"""Sentences of services in the language of a visit."""

from datetime import date
from typing import Final

from console.display.language import EnglishText, in_figures, spoken
from console.display.words import short_day
from services.chassis.sentence import Sentence, Writers, english_number


def in_words(sentence: Sentence) -> str:
    """Puts a sentence into words; one that is not in the table stays English, and pages mark it as that."""
    words = sentence.written(spoken(), _WRITERS)
    return EnglishText(sentence) if words is None else words


_WRITERS: Final[Writers] = {
    "number": lambda figure: in_figures(english_number(figure)),
    "date": lambda figure: short_day(date.fromisoformat(figure), year=True),
}
