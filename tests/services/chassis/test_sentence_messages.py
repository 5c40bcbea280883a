"""Sentences between processes."""

from legato_protos.type.v1.sentence_pb2 import Sentence as SentenceMessage
from services.chassis.sentence import Sentence
from services.chassis.sentence_messages import from_sentence_message, to_sentence_message


def test_it_arrives_with_its_id_its_figures_and_the_words_that_came_with_it() -> None:
    sent = Sentence("note_length", most=4000)
    arrived = from_sentence_message(to_sentence_message(sent), "Words of another release.")
    assert (arrived.id, arrived.figures) == ("note_length", {"most": "4000"})
    assert str(arrived) == "Words of another release."
    assert arrived.written("en", {"number": lambda figure: figure}) == "A note must have 1 to 4000 characters."


def test_words_alone_arrive_without_an_id() -> None:
    arrived = from_sentence_message(SentenceMessage(), "Closed until noon.")
    assert (arrived.id, str(arrived)) == ("", "Closed until noon.")
