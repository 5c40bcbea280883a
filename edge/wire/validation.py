"""What is wrong with a request, and where: with the place and the types, and never a quote of what was sent."""

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
# Of msgspec's sentences, those that speak of types, bounds and names of ours alone.
_SAFE = re.compile(
    r"(Expected `[^`]+`(, got `[^`]+`|( of length)? [<>]=? -?[0-9.]+)?|Object missing required field `[a-z_]+`)$"
)


def _mistake(sentence: str, name: str) -> LegatoError:
    place = _PLACE.search(sentence)
    # Where names are the client's own, the place is where they stand.
    path = (name + place["path"][1:] if place else name).lstrip(".").partition("[...]")[0]
    said = _PLACE.sub("", sentence)
    if not _SAFE.match(said):
        said = "This value is not one of those accepted here"
    return invalid(f"{path or 'body'}: {said}.".replace("`", "'"), path or None)


def invalid(message: str, param: str | None = None) -> LegatoError:
    return LegatoError(Reason.REQUEST_INVALID, message, param=param)
