"""Gives everything that people can name the longest name that it can have, without a place to break it."""

from typing import Final

from google.protobuf.message import Message

NAME: Final = "W" * 100
# By the name of the field, in whatever message.
LONG: Final = {
    **dict.fromkeys(("name", "account_name", "user_name", "created_by_name", "invited_by", "browser", "title"), NAME),
    "email": f"{'w' * 60}@{'W' * 180}.ca",
    "url": f"https://{'w' * 60}.ca/{'W' * 400}",
    "text": "W" * 2_000,
    "reason": "W" * 200,
    "model": NAME,
    "issuer": f"{'w' * 60}.{'w' * 60}.ca",
}


def lengthen(message: Message) -> None:
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for each in value if field.is_repeated else (value,):
                if isinstance(each, Message):
                    lengthen(each)
        elif field.type == field.TYPE_STRING and not field.is_repeated and field.name in LONG:
            setattr(message, field.name, LONG[field.name])
