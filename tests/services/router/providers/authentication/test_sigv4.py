"""Amazon's signatures, compared with those of its own library."""

from hypothesis import given
from hypothesis import strategies as st

from services.chassis.http_client.origin import quote_path
from services.router.providers.authentication.sigv4 import AwsKeys, SigningScope, sign

NOW_S = 1_795_089_600.0
SCOPE = SigningScope("ca-central-1", "bedrock")
KEYS = AwsKeys("AKIAEXAMPLE", "canary/of+a/secret=key", "a/session=token+")
HEADERS = {"content-type": "application/json", "host": "bedrock-runtime.ca-central-1.amazonaws.com"}


def signature_of_amazon(keys: AwsKeys, path: str, body: bytes) -> str:
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    headers = {**HEADERS, "x-amz-date": "20261119T120000Z"}
    if keys.session_token:
        headers["x-amz-security-token"] = keys.session_token
    request = AWSRequest("POST", f"https://{HEADERS['host']}{path}", headers, body)
    request.context["timestamp"] = headers["x-amz-date"]
    credentials = Credentials(keys.access_key_id, keys.secret_access_key, keys.session_token or None)
    signer = SigV4Auth(credentials, SCOPE.service, SCOPE.region)
    return str(signer.signature(signer.string_to_sign(request, signer.canonical_request(request)), request))


@given(
    st.text("abcXYZ019-._~:@/%20 é+=&;,!", max_size=30),
    st.dictionaries(st.text("abc-_ ", min_size=1, max_size=4), st.text("abc /+=", max_size=5), max_size=3),
    st.binary(max_size=64),
    st.booleans(),
)
def test_signature_is_that_of_amazons_library(path: str, query: dict[str, str], body: bytes, has_token: bool) -> None:
    from urllib.parse import urlencode

    keys = KEYS if has_token else AwsKeys(KEYS.access_key_id, KEYS.secret_access_key)
    # Amazon resolves what no address of ours has.
    parts = [part for part in path.split("/") if part not in ("", ".", "..")]
    whole = "/".join(["/model", *parts]) + (f"?{urlencode(query)}" if query else "")
    sent = quote_path(whole).decode()
    signed = sign(keys, SCOPE, NOW_S, HEADERS, sent, body)
    assert signed["authorization"].rpartition("Signature=")[2] == signature_of_amazon(keys, sent, body)


def test_headers_tell_what_was_signed_and_no_secret() -> None:
    signed = sign(KEYS, SCOPE, NOW_S, HEADERS, "/model/m/invoke", b"{}")
    assert signed["x-amz-date"] == "20261119T120000Z"
    assert signed["x-amz-security-token"] == KEYS.session_token
    begin = "AWS4-HMAC-SHA256 Credential=AKIAEXAMPLE/20261119/ca-central-1/bedrock/aws4_request, "
    names = "SignedHeaders=content-type;host;x-amz-date;x-amz-security-token, Signature="
    assert signed["authorization"].startswith(begin + names)
    assert KEYS.secret_access_key not in str(signed) + repr(KEYS)
