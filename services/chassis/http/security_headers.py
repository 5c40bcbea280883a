"""Headers that keep a browser from doing with a page what the page does not need."""

from collections.abc import Mapping


def security_headers(policy: Mapping[str, str]) -> dict[str, str]:
    """Returns the headers of every page, with its content security policy: what may be loaded, by directive. Whatever
    the policy does not name is not allowed."""
    directives = {"default-src": "'none'", "base-uri": "'none'", "frame-ancestors": "'none'", **policy}
    return {
        "content-security-policy": "; ".join(f"{name} {value}" for name, value in directives.items()),
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
    }
