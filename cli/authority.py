"""A certificate authority in a folder: its certificate and key, and those that it has issued.

Each certificate names the identity of its holder (`spiffe://legato/NAME`), and for servers the host names under which
they can be reached.
"""

import ipaddress
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from cli.supervision.data_folder import write_private
from services.chassis.rpc.callers import Role, role_of, uri_of

AUTHORITY = "ca"
# Those that other processes call.
SERVERS = (Role.EDGE, Role.AUTH, Role.ROUTER, Role.METERING, Role.PAYMENTS)

# Allows for clock skew between machines.
_EARLIER = timedelta(minutes=5)


class NoAuthority(Exception):
    """The folder has no authority."""


def check_name(name: str) -> str:
    """Accepts `edge`, `auth`, `router`, `metering`, `payments`, `admin`, `console`, `operator-console` or
    `caller/NAME`; raises ValueError."""
    if role_of([uri_of(name)]) is None or not re.fullmatch(r"[a-z-]+(/[a-z0-9][a-z0-9.-]*)?", name):
        known = ", ".join(role.value for role in Role if role is not Role.CALLER)
        raise ValueError(f"{name} must be one of {known}, or caller/NAME")
    return name


def make_authority(folder: Path, days: int, now: datetime | None = None) -> Path:
    """Creates the authority; returns its certificate. An earlier one stays trusted, but issues nothing more."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    certificate_path = folder / f"{AUTHORITY}.pem"
    before = certificate_path.read_text() if certificate_path.exists() else ""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Legato authority")])
    certificate = (
        _builder(subject, subject, key.public_key(), days, now or datetime.now(UTC))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    _write(certificate_path, certificate, key, before)
    return certificate_path


def issue(folder: Path, name: str, hosts: Sequence[str], days: int, now: datetime | None = None) -> Path:
    """Issues a certificate and its key, replacing earlier ones; returns the certificate's path."""
    try:
        [authority, *_] = x509.load_pem_x509_certificates((folder / f"{AUTHORITY}.pem").read_bytes())
        key_pem = (folder / f"{AUTHORITY}.key").read_bytes()
    except FileNotFoundError:
        raise NoAuthority from None
    authority_key = cast(ec.EllipticCurvePrivateKey, serialization.load_pem_private_key(key_pem, None))
    role = role_of([uri_of(check_name(name))])
    is_server = role in SERVERS
    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(uri_of(name))]
    names += [_host(host) for host in ([name, *hosts] if is_server else hosts)]
    usages = [ExtendedKeyUsageOID.SERVER_AUTH] if is_server else []
    # A role that may call nothing is only a server.
    usages += [ExtendedKeyUsageOID.CLIENT_AUTH] if role is not Role.METERING else []
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        _builder(subject, authority.subject, key.public_key(), days, now or datetime.now(UTC))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    path = folder / f"{name.replace('/', '-')}.pem"
    _write(path, certificate, key)
    return path


def read_certificate(path: Path) -> tuple[str, list[str], datetime]:
    """Returns the identity, the hosts, and the time at which the certificate expires."""
    certificate = x509.load_pem_x509_certificates(path.read_bytes())[0]
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        [name] = names.get_values_for_type(x509.UniformResourceIdentifier)
        hosts = [*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))]
    except (x509.ExtensionNotFound, ValueError):
        # The authority itself has no identity.
        name, hosts = "", []
    return name, hosts, certificate.not_valid_after_utc


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int, now: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + timedelta(days=days))
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write(path: Path, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey, before: str = "") -> None:
    """Writes a certificate, and its key beside it."""
    pem = serialization.Encoding.PEM
    key_pem = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    write_private(path.with_suffix(".key"), key_pem.decode())
    write_private(path, certificate.public_bytes(pem).decode() + before, 0o644)
