"""Implements the RPCs of UserAdminService: administers users, for the command line and for operators."""

from typing import Final

from legato_protos.auth.v1 import users_pb2 as pb
from legato_protos.auth.v1 import users_pb2_grpc as pb_grpc
from services.auth.core import checks, codes, paging
from services.auth.core.paging import Position
from services.auth.core.parts import Domain, reads, writes
from services.auth.core.records.users import User
from services.auth.core.store import Connection, add
from services.auth.core.store import users as stored
from services.auth.core.store.accounts import lock_account
from services.auth.core.store.audit import read_head
from services.auth.core.times import DAY_US
from services.auth.people.rules import role_change
from services.auth.people.store import has_email, list_users, lock_operators
from services.auth.sign_in.messages import to_user
from services.auth.sign_in.records import UserSummary
from services.auth.sign_in.store import codes as stored_codes
from services.auth.sign_in.store import sessions as stored_sessions
from services.auth.sign_in.store.ways import summarise
from services.chassis.access_tokens import current_access
from services.chassis.errors import LegatoError, Reason
from services.chassis.rpc.access_check import require_recent
from services.chassis.rpc.callers import Context
from services.chassis.rpc.messages import to_message, to_timestamp
from services.chassis.sentence import Sentence

LINK_VALID_US: Final = 600_000_000
FIRST_LINK_VALID_US: Final = 7 * DAY_US


class UserAdminServicer(Domain, pb_grpc.UserAdminServiceServicer):
    @writes
    def CreateUser(
        self, connection: Connection, request: pb.CreateUserRequest, context: Context
    ) -> pb.CreateUserResponse:
        """Creates a user, and the code of a first sign-in link."""
        now_us, account_id = self.now_us(), request.account_id
        user = User(codes.mint_id("user"), checks.name(request.name), checks.email(request.email), now_us)
        role = checks.role(request.role) if account_id else None
        if role is not None:
            lock_account(connection, checks.id_of("account", account_id))
        # Two that create the same user at once look one after the other. A unique index would be too strict: an
        # invited user may have the address of another, as neither is verified.
        read_head(connection, locks=True)
        if user.email and has_email(connection, user.email):
            raise checks.refusal("email", Sentence("email_taken"))
        add(connection, user)
        if role is not None:
            stored.add_member(connection, account_id, user.user_id, role, now_us)
        expires_at_us = now_us + FIRST_LINK_VALID_US
        code = self._put_link(connection, user.user_id, expires_at_us)
        by = current_access.get()
        self._audit.append(
            connection,
            "user.created",
            by,
            account_id=account_id,
            object_id=user.user_id,
            changes=role_change(None, role),
        )
        expires = to_timestamp(expires_at_us)
        return pb.CreateUserResponse(user=to_user(UserSummary(user)), code=code, code_expire_time=expires)

    @reads
    def ListUsers(self, connection: Connection, request: pb.ListUsersRequest, context: Context) -> pb.ListUsersResponse:
        """Lists users with their memberships: all, or those whom every given filter fits."""
        size, after = paging.page_size(request.page_size), paging.page_token(request.page_token)
        filters = {"account_id": request.account_id, "user_id": request.user_id}
        found = list_users(connection, after, size + 1, checks.query(request.query), **filters)
        page = paging.to_page(found, size, lambda user: Position(user.created_at_us, user.user_id))
        memberships = stored.memberships_of(connection, [user.user_id for user in page.items])
        return pb.ListUsersResponse(
            users=map(to_user, summarise(connection, page.items)),
            next_page_token=page.next_token,
            memberships=[
                pb.UserMembership(user_id=held.user_id, membership=to_message(pb.Membership, held))
                for held in memberships
            ],
        )

    @writes
    def CreateSignInLink(
        self, connection: Connection, request: pb.CreateSignInLinkRequest, context: Context
    ) -> pb.CreateSignInLinkResponse:
        user_id, expires_at_us = request.user_id, self.now_us() + LINK_VALID_US
        if self._user(connection, user_id).disabled_at_us is not None:
            raise LegatoError(Reason.REQUEST_INVALID, Sentence("user_disabled"))
        code = self._put_link(connection, user_id, expires_at_us)
        self._audit.append(connection, "sign_in_link.created", current_access.get(), object_id=user_id)
        return pb.CreateSignInLinkResponse(code=code, expire_time=to_timestamp(expires_at_us))

    @writes
    def DisableUser(
        self, connection: Connection, request: pb.DisableUserRequest, context: Context
    ) -> pb.DisableUserResponse:
        """Disables a user and ends their sessions; or enables them again."""
        user_id = request.user_id
        user = self._changeable(connection, user_id, grants=request.enable)
        disabled_at_us = None if request.enable else user.disabled_at_us or self.now_us()
        stored.change_user(connection, user_id, disabled_at_us=disabled_at_us)
        if not request.enable:
            stored_sessions.end_sessions(connection, user_id)
            stored_codes.remove_link(connection, user_id)
        action = "user.enabled" if request.enable else "user.disabled"
        return pb.DisableUserResponse(user=self._changed(connection, action, user_id))

    @writes
    def SetOperator(
        self, connection: Connection, request: pb.SetOperatorRequest, context: Context
    ) -> pb.SetOperatorResponse:
        """Makes a user an operator, or no longer one."""
        user_id = request.user_id
        self._changeable(connection, user_id, grants=request.is_operator)
        stored.change_user(connection, user_id, is_operator=request.is_operator)
        stored_sessions.request_new_tokens(connection, user_id)
        action = "user.made_operator" if request.is_operator else "user.no_longer_operator"
        return pb.SetOperatorResponse(user=self._changed(connection, action, user_id))

    def _changeable(self, connection: Connection, user_id: str, *, grants: bool) -> User:
        """Returns a user who may be changed. What grants access needs a recent proof. The last operator stays one and
        can sign in, unless the command line, which can make another, says otherwise."""
        by = current_access.get()
        if grants and by is not None:
            require_recent(by, self.now_us())
        if not grants and by is not None and lock_operators(connection) == [user_id]:
            raise LegatoError(Reason.REQUEST_INVALID, Sentence("last_operator"))
        return self._user(connection, user_id)

    def _changed(self, connection: Connection, action: str, user_id: str) -> pb.User:
        [summary] = summarise(connection, [self._user(connection, user_id)])
        self._audit.append(connection, action, current_access.get(), object_id=user_id)
        return to_user(summary)

    def _put_link(self, connection: Connection, user_id: str, expires_at_us: int) -> str:
        code = codes.mint_code()
        digest = self._peppers.digest_code(codes.LINK, codes.plain(code))
        stored_codes.put_link(connection, user_id, digest, expires_at_us)
        return code

    def _user(self, connection: Connection, user_id: str) -> User:
        return stored.require_user(connection, checks.id_of("user", user_id), locks=True)
