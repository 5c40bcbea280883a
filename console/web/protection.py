"""Headers of every response, and which requests are accepted at all."""

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

from services.chassis.http.security_headers import security_headers

LOOPBACK_HOSTS: Final = frozenset({"127.0.0.1", "::1", "localhost"})
UNSAFE_METHODS: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})


class Protection:
    def __init__(self, origins: Sequence[str], api_url: str) -> None:
        """Takes the console's own origins, the first of which links have, and the base address of the API."""
        self.origins = tuple(origins)
        self._hosts = {urlsplit(origin).netloc for origin in origins}
        self.is_https = origins[0].startswith("https:")
        self.is_localhost = urlsplit(origins[0]).hostname == "localhost"
        self.headers = _headers(api_url, is_https=self.is_https)

    def origin_of(self, headers: Mapping[str, str]) -> str:
        """Returns the one of our origins that a request is for."""
        host = headers.get("host", "").lower()
        return next((origin for origin in self.origins if urlsplit(origin).netloc == host), self.origins[0])

    def is_our_host(self, headers: Mapping[str, str]) -> bool:
        """Returns whether the request names one of our hosts: other names that lead here may be an attacker's."""
        return headers.get("host", "").lower() in self._hosts

    def names_loopback(self, headers: Mapping[str, str]) -> bool:
        """Returns whether the request came by an address of this machine, where the page itself has a name."""
        return urlsplit(f"//{headers.get('host', '')}").hostname in LOOPBACK_HOSTS and self.is_localhost

    def is_from_us(self, method: str, headers: Mapping[str, str]) -> bool:
        """Returns whether a request that may change something was made by a page of ours. All ports of a host are one
        site to a browser, so its cookies come along from there too: only `same-origin` is us."""
        if method not in UNSAFE_METHODS:
            return True
        site = headers.get("sec-fetch-site")
        if site is not None:
            return site == "same-origin"
        return headers.get("origin", "").lower() in self.origins


def _headers(api_url: str, *, is_https: bool) -> dict[str, str]:
    api = urlsplit(api_url)
    headers = {
        **security_headers(
            {
                "script-src": "'self'",
                "style-src": "'self'",
                "img-src": "'self' data:",
                "connect-src": f"'self' {api.scheme}://{api.netloc}",
                "form-action": "'self'",
                "require-trusted-types-for": "'script'",
                "trusted-types": "'none'",
            }
        ),
        "cache-control": "no-store",
        "permissions-policy": (
            "camera=(), geolocation=(), microphone=(), payment=(), usb=(), "
            "publickey-credentials-get=(self), publickey-credentials-create=(self)"
        ),
    }
    if is_https:
        headers["strict-transport-security"] = "max-age=31536000"
    return headers
