from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from services.chassis.rpc.certificates import open_certificates
from services.chassis.settings import SettingsError
from services.chassis.telemetry.log import Log
from tests.support.certificates import DAYS, Authority


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def test_replaced_files_are_read_again(authority: Authority, log: Log, log_text: Callable[[], str]) -> None:
    certificates = authority.certificates("edge", log)
    before = certificates.current()
    assert certificates.current() is before
    authority.issue("edge")
    after = certificates.current()
    assert after.certificate == (authority.folder / "edge.pem").read_bytes() != before.certificate
    assert after.key == (authority.folder / "edge.key").read_bytes() != before.key
    assert log_text().count("certificates.replaced") == 1


def test_files_that_do_not_belong_together_yet_are_passed_over(authority: Authority, log: Log) -> None:
    certificates = authority.certificates("edge", log)
    before = certificates.current()
    other_certificate, other_key = authority.files("admin")
    other_certificate.rename(authority.folder / "edge.pem")
    assert certificates.current() is before
    other_key.rename(authority.folder / "edge.key")
    assert certificates.current() is not before


def test_files_that_vanish_for_a_moment_are_passed_over(authority: Authority, log: Log) -> None:
    certificates = authority.certificates("edge", log)
    before = certificates.current()
    (authority.folder / "ca.pem").unlink()
    assert certificates.current() is before


def test_key_is_never_printed(authority: Authority, log: Log, log_text: Callable[[], str]) -> None:
    pem = authority.certificates("edge", log).current()
    assert "PRIVATE KEY" in pem.key.decode()
    assert "PRIVATE KEY" not in repr(pem)
    assert "PRIVATE KEY" not in log_text()


def test_certificate_that_callers_of_the_edge_would_refuse_is_told_of(
    authority: Authority, log: Log, log_text: Callable[[], str]
) -> None:
    authority.certificates("edge", log).warn_unless_server("edge")
    assert log_text() == ""
    # As those of edges were before they had callers: an identity alone.
    authority.certificates("admin", log).warn_unless_server("edge")
    assert "certificates.not_for_a_server" in log_text()
    assert "the DNS name edge" in log_text()


def test_only_all_three_files_make_sense(authority: Authority, log: Log) -> None:
    certificate, key = authority.files("edge")
    assert open_certificates(None, None, None, log) is None
    with pytest.raises(SettingsError, match="must be set together"):
        open_certificates(None, certificate, key, log)


@pytest.mark.parametrize(
    ("file", "content"), [("ca.pem", None), ("edge.pem", None), ("edge.key", b"not a key"), ("ca.pem", b"not PEM")]
)
def test_what_cannot_be_used_is_named_at_start(
    authority: Authority, log: Log, file: str, content: bytes | None
) -> None:
    certificate, key = authority.files("edge")
    path = authority.folder / file
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(SettingsError, match=r"cannot use the certificates of \S*edge\.pem: \w+"):
        open_certificates(authority.folder / "ca.pem", certificate, key, log)


def test_end_of_a_certificate_is_told_and_moves_when_it_is_replaced(authority: Authority, log: Log) -> None:
    long_ago = datetime.now(UTC) - timedelta(days=1)
    authority.issue("edge", long_ago)
    certificates = authority.certificates("edge", log)
    before_s = certificates.expires_at_s()
    assert before_s == pytest.approx((long_ago + timedelta(days=DAYS)).timestamp(), abs=1)
    authority.issue("edge")
    assert certificates.expires_at_s() > before_s
