"""Headers of pages."""

from services.chassis.http.security_headers import security_headers


def test_a_page_may_load_nothing_that_its_policy_does_not_name() -> None:
    headers = security_headers({"script-src": "'self'"})
    assert headers["content-security-policy"] == (
        "default-src 'none'; base-uri 'none'; frame-ancestors 'none'; script-src 'self'"
    )
    assert headers["x-content-type-options"] == "nosniff"
