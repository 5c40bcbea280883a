"""A secret of the operator's, from a file or a variable."""

from dataclasses import dataclass, field
from pathlib import Path

from services.chassis.small_file import read_small_file
from services.router.providers.authentication.credentials import CredentialsUnavailable


@dataclass(frozen=True, slots=True)
class Secret:
    """The file is read each time, so that its content may be replaced; a variable was read with the routes."""

    path: Path | None = None
    value: str = field(default="", repr=False)

    def read(self) -> str:
        """Raises CredentialsUnavailable."""
        if self.path is None:
            return self.value
        text = read_text(self.path).strip()
        if not text or not (text.isascii() and text.isprintable()):
            raise CredentialsUnavailable(f"{self.path} is not one line of ASCII characters")
        return text


def read_text(path: Path) -> str:
    try:
        return read_small_file(path)
    except OSError as error:
        raise CredentialsUnavailable(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise CredentialsUnavailable(f"{path} is not text") from None
