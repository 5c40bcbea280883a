"""Implements the RPCs by which users delete themselves, owners close their account, and the command line does either.

The account of the request was compared with that of the access token before."""

from typing import Final

from legato_protos.auth.v1 import accounts_pb2 as pb
from services.auth.accounts.store import close_account
from services.auth.core import checks, paging
from services.auth.core.messages import required_access, to_account
from services.auth.core.paging import Position
from services.auth.core.parts import Domain, reads, writes
from services.auth.core.store import Connection
from services.auth.core.store import users as stored_users
from services.auth.core.store.accounts import lock_account
from services.auth.keys.store import keys as stored_keys
from services.auth.people.store import count_members, end_memberships, erase_user, list_keys_made_by, lock_operators
from services.auth.sign_in.store.ways import summarise
from services.chassis.access_tokens import Access, AccountRole, current_access
from services.chassis.database.erasing import empty_write_log
from services.chassis.errors import LegatoError, Reason
from services.chassis.rpc.access_check import role_missing
from services.chassis.rpc.callers import Context
from services.chassis.rpc.messages import to_message
from services.chassis.sentence import Sentence

KEYS_ON_A_PAGE: Final = 1_000


class EndMethods(Domain):
    @reads
    def ListMyKeys(
        self, connection: Connection, request: pb.ListMyKeysRequest, context: Context
    ) -> pb.ListMyKeysResponse:
        user_id, after = required_access().user_id, paging.page_token(request.page_token)
        found = list_keys_made_by(connection, user_id, after, KEYS_ON_A_PAGE + 1)
        page = paging.to_page(found, KEYS_ON_A_PAGE, lambda key: Position(key.created_at_us, key.key_id))
        keys = [to_message(pb.MyKey, key) for key in page.items]
        return pb.ListMyKeysResponse(keys=keys, next_page_token=page.next_token)

    async def DeleteUser(self, request: pb.DeleteUserRequest, context: Context) -> pb.DeleteUserResponse:
        """Erases a user; returns when every edge refuses the keys that they made."""
        by, user_id = current_access.get(), checks.id_of("user", request.user_id)
        if by is not None and user_id != by.user_id:
            raise role_missing()

        def delete(connection: Connection) -> pb.DeleteUserResponse:
            held = stored_users.memberships_of(connection, [user_id])
            # In one order, so that two who leave the same accounts do not wait for each other.
            account_ids = sorted(membership.account_id for membership in held)
            made = {account_id: self._leave(connection, account_id, user_id) for account_id in account_ids}
            user = stored_users.require_user(connection, user_id, locks=True)
            if by is not None and user.is_operator and lock_operators(connection) == [user_id]:
                raise LegatoError(Reason.REQUEST_INVALID, Sentence("last_operator"))
            [summary] = summarise(connection, [user])
            key_ids = [key_id for each in made.values() for key_id in each]
            stored_keys.revoke_keys(connection, key_ids, self.now_us())
            for account_id in account_ids:
                self._append_end(connection, "member.removed", by, account_id, user_id)
                for key_id in made[account_id]:
                    self._append_end(connection, "key.revoked", by, account_id, key_id)
            # Before the session ends, whose network it has.
            self._append_end(connection, "user.deleted", by, "", user_id)
            return pb.DeleteUserResponse(
                memberships=len(account_ids),
                revoked_keys=len(key_ids),
                sessions=erase_user(connection, user_id),
                sign_in_ways=summary.ways,
            )

        deleted = await self._database.write(delete)
        await empty_write_log(self._database)
        self._log.info("user.deleted")
        if deleted.revoked_keys:
            await self._hold_everywhere()
        return deleted

    async def CloseAccount(self, request: pb.CloseAccountRequest, context: Context) -> pb.CloseAccountResponse:
        """Closes an account; returns when every edge refuses its keys. If it is closed already, its time is kept."""
        by, account_id = current_access.get(), checks.id_of("account", request.account_id)

        def close(connection: Connection) -> pb.CloseAccountResponse:
            account, revoked, webhooks = close_account(connection, account_id, self.now_us())
            self._append_end(connection, "account.closed", by, account_id, account_id)
            return pb.CloseAccountResponse(
                account=to_account(account, self._service_limits), revoked_keys=revoked, removed_webhooks=webhooks
            )

        closed = await self._database.write(close)
        await empty_write_log(self._database)
        self._log.info("account.closed", account_id=account_id)
        await self._hold_everywhere()
        return closed

    @writes
    def EndMemberships(
        self, connection: Connection, request: pb.EndMembershipsRequest, context: Context
    ) -> pb.EndMembershipsResponse:
        by, account_id = current_access.get(), checks.id_of("account", request.account_id)
        if lock_account(connection, account_id).closed_at_us is None:
            raise LegatoError(Reason.REQUEST_INVALID, Sentence("account_not_closed"))
        user_ids = end_memberships(connection, account_id)
        for user_id in user_ids:
            self._append_end(connection, "member.removed", by, account_id, user_id)
        return pb.EndMembershipsResponse(ended=len(user_ids))

    def _leave(self, connection: Connection, account_id: str, user_id: str) -> list[str]:
        """Locks an account that a user leaves, and the keys that they made in it, which it returns; raises if it would
        be left without an owner."""
        account = lock_account(connection, account_id)
        is_owner = stored_users.role_in(connection, account_id, user_id) is AccountRole.OWNER
        if is_owner and count_members(connection, account_id, AccountRole.OWNER) < 2:
            name = account.name or account_id
            raise LegatoError(Reason.REQUEST_INVALID, Sentence("last_owner_of", name=name))
        return stored_keys.lock_keys_made_by(connection, account_id, user_id)

    def _append_end(
        self, connection: Connection, action: str, by: Access | None, account_id: str, object_id: str
    ) -> None:
        self._audit.append(connection, action, by, account_id=account_id, object_id=object_id)
