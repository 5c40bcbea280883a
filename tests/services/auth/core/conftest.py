from tests.services.auth.console import auth, console, console_role  # noqa: F401
