"""Implements the RPCs of UserService: lets users manage how they sign in, and their sessions."""

from typing import Final

from legato_protos.auth.v1 import credentials_pb2_grpc as pb_grpc
from legato_protos.auth.v1 import users_pb2 as pb
from services.auth.core import checks, codes
from services.auth.core.messages import required_access
from services.auth.core.parts import Parts, reads, writes
from services.auth.core.records.users import User
from services.auth.core.session_life import is_live
from services.auth.core.store import Connection
from services.auth.core.store import users as stored
from services.auth.sign_in.messages import to_session, to_user
from services.auth.sign_in.records import Challenge, ChallengeKind, Passkey
from services.auth.sign_in.rules.mail import Mail
from services.auth.sign_in.rules.oidc_sign_in import OidcSignIn
from services.auth.sign_in.rules.passkeys import PasskeyRefused, Passkeys
from services.auth.sign_in.rules.password_sign_in import PasswordSignIn
from services.auth.sign_in.rules.sign_in import SignIn, require_other_way, sign_in_failed
from services.auth.sign_in.servicers.credentials import CredentialMethods
from services.auth.sign_in.store import codes as stored_codes
from services.auth.sign_in.store import passkeys as stored_passkeys
from services.auth.sign_in.store import sessions as stored_sessions
from services.auth.sign_in.store.ways import summarise
from services.chassis.access_tokens import Access
from services.chassis.errors import LegatoError, Reason
from services.chassis.rpc.access_check import require_recent
from services.chassis.rpc.callers import Context
from services.chassis.rpc.messages import to_message
from services.chassis.sentence import Sentence

RECOVERY_CODES: Final = 10
# A redirect takes a moment; a phone may be slow.
RESULT_VALID_US: Final = 300_000_000
LARGEST_RESULT_BYTES: Final = 16 * 1024


class UserServicer(CredentialMethods, pb_grpc.UserServiceServicer):
    def __init__(
        self, parts: Parts, sign_in: SignIn, passwords: PasswordSignIn, oidc: OidcSignIn, passkeys: Passkeys, mail: Mail
    ) -> None:
        super().__init__(parts, sign_in, passwords, oidc)
        self._passkeys = passkeys
        self._mail = mail

    @writes
    def UpdateUser(
        self, connection: Connection, request: pb.UpdateUserRequest, context: Context
    ) -> pb.UpdateUserResponse:
        user_id = required_access().user_id
        if request.HasField("name"):
            stored.change_user(connection, user_id, name=checks.name(request.name))
        [summary] = summarise(connection, [stored.require_user(connection, user_id)])
        return pb.UpdateUserResponse(user=to_user(summary))

    async def StartPasskeyRegistration(
        self, request: pb.StartPasskeyRegistrationRequest, context: Context
    ) -> pb.StartPasskeyRegistrationResponse:
        await self._passkeys.load()
        by = required_access()

        def start(connection: Connection) -> tuple[str, str]:
            user = stored.require_user(connection, by.user_id)
            self._require_proof(connection, by, user)
            return self._passkeys.start_registration(connection, user, request.origin, self.now_us())

        challenge_id, options = await self._database.write(start)
        return pb.StartPasskeyRegistrationResponse(challenge_id=challenge_id, options_json=options)

    async def FinishPasskeyRegistration(
        self, request: pb.FinishPasskeyRegistrationRequest, context: Context
    ) -> pb.FinishPasskeyRegistrationResponse:
        await self._passkeys.load()
        by, name = required_access(), checks.key_name(request.name) or "Passkey"

        def finish(connection: Connection) -> tuple[User, Passkey] | None:
            user, now_us = stored.require_user(connection, by.user_id, locks=True), self.now_us()
            self._require_proof(connection, by, user)
            try:
                passkey = self._passkeys.finish_registration(
                    connection, user, request.challenge_id, request.credential_json, name, now_us
                )
            except PasskeyRefused:
                return None
            self._audit.append(connection, "passkey.added", by, object_id=passkey.passkey_id)
            return user, passkey

        made = await self._database.write(finish)
        if made is None:
            raise sign_in_failed()
        self._mail.notify(made[0], "A passkey was added to your user.")
        return pb.FinishPasskeyRegistrationResponse(passkey=to_message(pb.Passkey, made[1]))

    @writes
    def RenamePasskey(
        self, connection: Connection, request: pb.RenamePasskeyRequest, context: Context
    ) -> pb.RenamePasskeyResponse:
        by, name = required_access(), checks.name(request.name)
        renamed = stored_passkeys.rename_passkey(connection, by.user_id, request.passkey_id, name)
        if renamed is None:
            raise checks.not_found("passkey")
        return pb.RenamePasskeyResponse(passkey=to_message(pb.Passkey, renamed))

    async def RemovePasskey(self, request: pb.RemovePasskeyRequest, context: Context) -> pb.RemovePasskeyResponse:
        """Removes a passkey, unless no way to sign in would be left."""
        by, passkey_id = required_access(), request.passkey_id

        def remove(connection: Connection) -> User:
            user = stored.require_user(connection, by.user_id, locks=True)
            [summary] = summarise(connection, [user])
            if not stored_passkeys.remove_passkey(connection, by.user_id, passkey_id):
                raise checks.not_found("passkey")
            require_other_way(summary)
            self._audit.append(connection, "passkey.removed", by, object_id=passkey_id)
            return user

        self._mail.notify(await self._database.write(remove), "A passkey was removed from your user.")
        return pb.RemovePasskeyResponse()

    async def GenerateRecoveryCodes(
        self, request: pb.GenerateRecoveryCodesRequest, context: Context
    ) -> pb.GenerateRecoveryCodesResponse:
        by, made = required_access(), [codes.mint_code() for _ in range(RECOVERY_CODES)]
        digests = [self._peppers.digest_code(codes.RECOVERY, codes.plain(code)) for code in made]

        def put(connection: Connection) -> User:
            user = stored.require_user(connection, by.user_id, locks=True)
            stored_codes.put_recovery_codes(connection, by.user_id, digests, self.now_us())
            self._audit.append(connection, "recovery_codes.generated", by, object_id=by.user_id)
            return user

        self._mail.notify(await self._database.write(put), "New recovery codes were made; the ones before do not work.")
        return pb.GenerateRecoveryCodesResponse(codes=made)

    @reads
    def ListSessions(
        self, connection: Connection, request: pb.ListSessionsRequest, context: Context
    ) -> pb.ListSessionsResponse:
        by, now_us = required_access(), self.now_us()
        user = stored.require_user(connection, by.user_id)
        found = stored_sessions.list_sessions(connection, by.user_id)
        live = [to_session(session, user) for session in found if is_live(session, user, now_us)]
        return pb.ListSessionsResponse(sessions=live, current_session_id=by.session_id)

    @writes
    def EndSessions(
        self, connection: Connection, request: pb.EndSessionsRequest, context: Context
    ) -> pb.EndSessionsResponse:
        """Ends these sessions; none given: all others."""
        by, session_ids = required_access(), list(request.session_ids)
        other_than = "" if session_ids else by.session_id
        ended = stored_sessions.end_sessions(connection, by.user_id, session_ids or None, other_than=other_than)
        if ended:
            self._audit.append(connection, "sessions.ended", by, object_id=ended[0])
        return pb.EndSessionsResponse(ended=len(ended))

    @writes
    def KeepResult(
        self, connection: Connection, request: pb.KeepResultRequest, context: Context
    ) -> pb.KeepResultResponse:
        """Keeps what the console shows once, and returns its id."""
        if len(request.sealed) > LARGEST_RESULT_BYTES:
            raise LegatoError(Reason.REQUEST_INVALID, Sentence("result_too_large"))
        by, result_id, now_us = required_access(), codes.mint_id("result"), self.now_us()
        expires_at_us = now_us + RESULT_VALID_US
        kept = Challenge(result_id, by.user_id, request.sealed, by.session_id, expires_at_us, ChallengeKind.RESULT)
        stored_codes.add_challenge(connection, kept, now_us)
        return pb.KeepResultResponse(result_id=result_id)

    @writes
    def TakeResult(
        self, connection: Connection, request: pb.TakeResultRequest, context: Context
    ) -> pb.TakeResultResponse:
        """Returns a result to the session that kept it, once."""
        by = required_access()
        kept = stored_codes.use_challenge(connection, request.result_id, self.now_us(), ChallengeKind.RESULT)
        if kept is None or (kept.user_id, kept.origin) != (by.user_id, by.session_id):
            raise checks.not_found("result")
        return pb.TakeResultResponse(sealed=kept.challenge)

    def _require_proof(self, connection: Connection, by: Access, user: User) -> None:
        """Raises unless the user proved lately who they are, or can prove nothing: a user without passkey, password,
        identity, recovery code and mail may add a first passkey in the session that their link opened."""
        [summary] = summarise(connection, [user])
        if summary.ways or (user.email and self._mail.is_offered):
            require_recent(by, self.now_us())
