"""What each call carries beside its message: for whom it is made, its deadline and its idempotency key."""

import uuid
from typing import Final, TypedDict

CHAT_TIMEOUT_S: Final = 600.0
READ_TIMEOUT_S: Final = 30.0


class CallArguments(TypedDict):
    timeout: float
    metadata: tuple[tuple[str, str], ...]


class CallSettings:
    def __init__(
        self,
        api_key: str | None,
        account_id: str | None,
        caller: str | None,
        chat_timeout_s: float,
        read_timeout_s: float,
    ) -> None:
        if (api_key is None) == (account_id is None):
            raise ValueError("Name either the API key or the account that the calls are for.")
        bearer = None if api_key is None else f"Bearer {api_key}"
        named = (("authorization", bearer), ("x-legato-account", account_id), ("x-legato-caller", caller))
        self._metadata = tuple((name, value) for name, value in named if value is not None)
        self._chat_timeout_s = chat_timeout_s
        self._read_timeout_s = read_timeout_s

    def of_chat(self, timeout_s: float | None, idempotency_key: str | None) -> CallArguments:
        """Returns the arguments of a chat. It always has an idempotency key, so that gRPC may repeat it."""
        key = ("idempotency-key", idempotency_key or uuid.uuid4().hex)
        timeout = self._chat_timeout_s if timeout_s is None else timeout_s
        return {"timeout": timeout, "metadata": (*self._metadata, key)}

    def of_read(self, timeout_s: float | None) -> CallArguments:
        timeout = self._read_timeout_s if timeout_s is None else timeout_s
        return {"timeout": timeout, "metadata": self._metadata}
