"""Loads the TLS certificates for TCP between processes, and reloads them when the files change."""

import ssl
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from services.chassis.file_stamp import Stamp, stamp_of
from services.chassis.settings import SettingsError
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.metrics import Registry


@dataclass(frozen=True, slots=True)
class Pem:
    """The trusted authority, and the process's own certificate and key."""

    authority: bytes
    certificate: bytes
    key: bytes = field(repr=False)


class Certificates:
    def __init__(self, authority: Path, certificate: Path, key: Path, log: Log) -> None:
        self._paths = (authority, certificate, key)
        self._log = log
        try:
            self._seen = self._stamps()
            self._pem = self._read()
        except (OSError, ValueError) as error:
            raise SettingsError(f"cannot use the certificates of {certificate}: {_reason(error)}") from None

    def current(self) -> Pem:
        """Returns the current files' content. While they do not match (one is replaced, the other not yet), the
        previous one."""
        try:
            stamps = self._stamps()
            if stamps != self._seen:
                self._pem = self._read()
                self._seen = stamps
                self._log.info("certificates.replaced")
        except (OSError, ValueError) as error:
            self._log.warning("certificates.unusable", reason=_reason(error))
        return self._pem

    def expires_at_s(self) -> float:
        """Returns the expiry, in seconds since 1970."""
        # A heavy import, needed only where there are certificates.
        from cryptography.x509 import load_pem_x509_certificate

        return load_pem_x509_certificate(self.current().certificate).not_valid_after_utc.timestamp()

    def warn_unless_server(self, name: str) -> None:
        """Logs a warning if clients that look for a server of this name would refuse the certificate."""
        from cryptography import x509
        from cryptography.x509.oid import ExtendedKeyUsageOID

        extensions = x509.load_pem_x509_certificate(self.current().certificate).extensions
        hosts, usages = [], [ExtendedKeyUsageOID.SERVER_AUTH]
        with suppress(x509.ExtensionNotFound):
            names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            hosts = names.get_values_for_type(x509.DNSName)
        with suppress(x509.ExtensionNotFound):
            usages = [*extensions.get_extension_for_class(x509.ExtendedKeyUsage).value]
        if name not in hosts or ExtendedKeyUsageOID.SERVER_AUTH not in usages:
            reason = f"its callers expect the DNS name {name}, and a server's: issue it again"
            self._log.warning("certificates.not_for_a_server", reason=reason)

    def _stamps(self) -> list[Stamp]:
        return [stamp_of(path) for path in self._paths]

    def _read(self) -> Pem:
        authority, certificate, key = (path.read_bytes() for path in self._paths)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_verify_locations(cadata=authority.decode("ascii"))
        # It accepts only paths; so it has checked what was read only if the files have not changed since.
        context.load_cert_chain(self._paths[1], self._paths[2], password="")
        if (certificate, key) != (self._paths[1].read_bytes(), self._paths[2].read_bytes()):
            raise ValueError("they are being replaced")
        return Pem(authority, certificate, key)


def open_certificates(
    authority: Path | None, certificate: Path | None, key: Path | None, log: Log
) -> Certificates | None:
    """Opens the certificates; None where no files are named: then TCP needs LEGATO_INSECURE_TCP."""
    if authority is None and certificate is None and key is None:
        return None
    if authority is None or certificate is None or key is None:
        raise SettingsError("LEGATO_TLS_CA, LEGATO_TLS_CERT and LEGATO_TLS_KEY must be set together")
    return Certificates(authority, certificate, key, log)


def show_certificate(registry: Registry, certificates: Certificates | None) -> None:
    """Registers the certificate's expiry, if any."""
    if certificates is not None:
        meaning = "Expiry time of this process's certificate."
        registry.gauge("legato_certificate_expiry_timestamp_seconds", meaning, certificates.expires_at_s)


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason or "they are not PEM"
    return (error.strerror or "") if isinstance(error, OSError) else str(error)
