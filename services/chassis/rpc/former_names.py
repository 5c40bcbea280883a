"""Names that services had in release 0.2.0, for the minutes in which replicas of two releases call each other.

A server answers to the former name of a service as to its present one, and a caller that an older server does not know
by the present name calls it by the former one.
"""

from typing import Final

_FORMER: Final = {
    "legato.auth.v1.AccountAdminService": "legato.auth.v1.AccountService",
    "legato.auth.v1.AuthService": "legato.auth.v1.MaintenanceAdminService",
    "legato.auth.v1.SignInService": "legato.auth.v1.SignInMethodService",
    "legato.auth.v1.UserService": "legato.auth.v1.CredentialService",
}
_PRESENT: Final = {former: present for present, former in _FORMER.items()}


def former_name(service: str) -> str | None:
    """Returns the name of a service whose methods this one has taken over; None: there was none."""
    return _FORMER.get(service)


def former_path(path: str) -> str | None:
    """Returns the path of a method, given as `/SERVICE/NAME`, under the former name of its service."""
    _, service, method = path.split("/")
    former = _FORMER.get(service)
    return None if former is None else f"/{former}/{method}"


def present_path(path: str) -> str:
    """Returns the path of a method under the present name of its service."""
    _, service, method = path.split("/")
    return f"/{_PRESENT.get(service, service)}/{method}"
