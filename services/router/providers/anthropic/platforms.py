"""The addresses at which Claude is asked, and what else differs between Anthropic's API and those of the clouds."""

from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import quote

# The versions differ in the key's header, and in whether sampling parameters are accepted.
VERSION_2023: Final = "2023-06-01"
VERSION_2026: Final = "2026-10-21"


class Platform(NamedTuple):
    # The clouds have the newer one by Anthropic's name, and the older one by their own.
    versions: tuple[str, ...]
    # Where a model is asked whole, and where for a stream.
    whole_path: str
    stream_path: str
    # Whether the address names the model, and the body the version.
    is_model_outside: bool = False
    # Whether the address decides if the answer is streamed, and the body has what other APIs have in headers.
    has_all_inside: bool = False

    def path(self, model_name: str, *, streams: bool) -> str:
        path = self.stream_path if streams else self.whole_path
        return path.format(quote(model_name, safe=":@")) if self.is_model_outside else path

    def adapt(self, request: Mapping[str, object], version: str, betas: str) -> Mapping[str, object]:
        """Returns a request in the form that is sent here."""
        if not self.is_model_outside:
            return request
        outside = {"model", "stream"} if self.has_all_inside else {"model"}
        inside = {name: value for name, value in request.items() if name not in outside}
        if betas and self.has_all_inside:
            inside["anthropic_beta"] = betas.split(",")
        return {"anthropic_version": version, **inside}


OWN: Final = Platform((VERSION_2026, VERSION_2023), "/v1/messages", "/v1/messages")
PLATFORMS: Final[Mapping[str, Platform]] = {
    "vertex": Platform(
        (VERSION_2026, "vertex-2023-10-16"),
        "/publishers/anthropic/models/{}:rawPredict",
        "/publishers/anthropic/models/{}:streamRawPredict",
        is_model_outside=True,
    ),
    "bedrock": Platform(
        (VERSION_2026, "bedrock-2023-05-31"),
        "/model/{}/invoke",
        "/model/{}/invoke-with-response-stream",
        is_model_outside=True,
        has_all_inside=True,
    ),
}
