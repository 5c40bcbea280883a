"""Sentences as messages between processes; their English words travel beside them."""

from legato_protos.type.v1.sentence_pb2 import Sentence as SentenceMessage
from services.chassis.sentence import Sentence


def to_sentence_message(sentence: Sentence) -> SentenceMessage:
    return SentenceMessage(id=sentence.id, figures={name: str(figure) for name, figure in sentence.figures.items()})


def from_sentence_message(message: SentenceMessage, text: str) -> Sentence:
    """Returns the sentence with the words that the sender put it into; earlier releases sent nothing else."""
    return Sentence.received(message.id, dict(message.figures), text)
