"""The output limit of a further call for a chat, in place of the client's."""

from legato_protos.router.v1.router_pb2 import ChatOpen


def with_max_tokens(chat: ChatOpen, max_tokens: int) -> ChatOpen:
    """Returns a copy of a chat as it was opened, with this limit."""
    limited = ChatOpen()
    limited.CopyFrom(chat)
    limited.MergeFrom(ChatOpen(max_tokens=max_tokens))
    return limited
