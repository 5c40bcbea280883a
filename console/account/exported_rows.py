"""Rows of lists that only an export has as files: keys and members."""

from collections.abc import AsyncIterator
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from console.display.words import ROLES, time_of
from console.services import every_page
from console.web.csv_files import Row, text_cell
from console.web.visit import Visit
from legato_protos.auth.v1 import accounts_pb2, auth_pb2
from legato_protos.auth.v1 import users_pb2 as pb

PAGE_SIZE = 1_000
# The columns of a file, and its rows.
Table = tuple[Row, AsyncIterator[Row]]


def own_keys(visit: Visit) -> Table:
    """Returns the keys that the visitor created, in all accounts."""

    async def rows() -> AsyncIterator[Row]:
        async for page in every_page(visit.auth.accounts.ListMyKeys, accounts_pb2.ListMyKeysRequest()):
            for key in page.keys:
                yield _key_row(key)

    return _key_row(accounts_pb2.MyKey()), rows()


def account_keys(visit: Visit) -> Table:
    async def rows() -> AsyncIterator[Row]:
        request = auth_pb2.ListKeysRequest(
            account_id=visit.account_id, with_playground=True, with_callers=True, page_size=PAGE_SIZE
        )
        async for page in every_page(visit.auth.key_admin.ListKeys, request):
            for key in page.keys:
                yield _account_key_row(key)

    return _account_key_row(auth_pb2.Key()), rows()


def members(visit: Visit) -> Table:
    async def rows() -> AsyncIterator[Row]:
        listed = await visit.auth.accounts.ListMembers(pb.ListMembersRequest(account_id=visit.account_id))
        for member in listed.members:
            yield _member_row(member)

    return _member_row(pb.Member()), rows()


def _key_row(key: accounts_pb2.MyKey | auth_pb2.Key) -> Row:
    return {
        "key_id": key.key_id,
        "account_id": key.account_id,
        "name": text_cell(key.name),
        "created": _time(key, "create_time"),
        "expires": _time(key, "expire_time"),
        "revoked": _time(key, "revoke_time"),
        "last_used_hour": _time(key, "last_use_time"),
    }


def _account_key_row(key: auth_pb2.Key) -> Row:
    limits = ("requests_per_minute", "tokens_per_minute", "concurrent_requests")
    return {
        **_key_row(key),
        "scopes": " ".join(auth_pb2.Scope.Name(scope).removeprefix("SCOPE_").lower() for scope in key.scopes),
        **{name: getattr(key, name) if key.HasField(name) else "" for name in limits},  # type: ignore[arg-type]
        "classes": " ".join(key.allowed_classes.class_ids) if key.HasField("allowed_classes") else "",
        "created_by": key.created_by,
        "replaces_key_id": key.replaces_key_id,
        "is_playground": key.is_playground,
        "internal_program": key.caller,
    }


def _member_row(member: pb.Member) -> Row:
    return {
        "user_id": member.user.user_id,
        "name": text_cell(member.user.name),
        "role": ROLES[member.role][0] if member.role in ROLES else "",
        "joined": _time(member, "join_time"),
    }


def _time(message: Any, name: str) -> str:
    stamp: Timestamp = getattr(message, name)
    return time_of(stamp).isoformat() if message.HasField(name) else ""
