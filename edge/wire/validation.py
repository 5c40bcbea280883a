"""Decodes JSON; errors name the place and the types, and never quote what was sent."""

import re
from typing import Any

import msgspec
from msgspec import Raw

from services.chassis.errors import LegatoError, Reason


def decode(decoder: msgspec.json.Decoder[Any], given: bytes | Raw, name: str) -> Any:
    try:
        return decoder.decode(given)
    except msgspec.ValidationError as error:
        raise _mistake(str(error), name) from None
    except msgspec.DecodeError:
        raise invalid("The body is not valid JSON.", name or None) from None
    except RecursionError:
        raise invalid("The body is nested too deeply.", name or None) from None


_PLACE = re.compile(r" - at `(?P<path>\$.*)`$")
# The messages of msgspec that contain only types, bounds and names of ours.
_SAFE = re.compile(
    r"(Expected `[^`]+`(, got `[^`]+`|( of length)? [<>]=? -?[0-9.]+)?|Object missing required field `[a-z_]+`)$"
)


def _mistake(sentence: str, name: str) -> LegatoError:
    place = _PLACE.search(sentence)
    # Keys of a dict are the client's own words, so the path stops before them.
    path = (name + place["path"][1:] if place else name).lstrip(".").partition("[...]")[0]
    said = _PLACE.sub("", sentence)
    if not _SAFE.match(said):
        said = "This value is not one of those accepted here"
    return invalid(f"{path or 'body'}: {said}.".replace("`", "'"), path or None)


def invalid(message: str, param: str | None = None) -> LegatoError:
    return LegatoError(Reason.REQUEST_INVALID, message, param=param)
