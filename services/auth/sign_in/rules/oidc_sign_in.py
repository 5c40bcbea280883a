"""Signs users in by the issuer of OpenID Connect, and links its identities to users.

An identity (issuer and subject) signs in the user that it was linked to: by an invitation, or by the signed-in user. An
unknown one gets in only if its verified email address was invited; otherwise it fails like everything else.
"""

import hmac
import secrets
from dataclasses import dataclass
from typing import Final

import msgspec

from services.auth.core import checks, codes
from services.auth.core.parts import Domain, Parts
from services.auth.core.records.users import SignInMethod, User
from services.auth.core.store import Connection, add, get
from services.auth.core.store import users as stored_users
from services.auth.core.store.accounts import lock_account
from services.auth.core.times import hour_of
from services.auth.sign_in.records import Challenge, ChallengeKind, Client, Invitation, OidcIdentity
from services.auth.sign_in.rules.mail import Mail
from services.auth.sign_in.rules.oidc import OidcClaims, OidcIssuer, OidcRefused, host_of
from services.auth.sign_in.rules.sessions import Sessions, SignedIn
from services.auth.sign_in.rules.sign_in import SignIn, require_other_way, sign_in_failed
from services.auth.sign_in.store import codes as stored_codes
from services.auth.sign_in.store import credentials as stored
from services.auth.sign_in.store.ways import summarise
from services.chassis.access_tokens import Access
from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence

# People may have to sign in there first.
STATE_VALID_US: Final = 600_000_000
RETURN_PATH: Final = "/sign-in/sso/return"
IDENTITIES_MOST: Final = 10
_STATE: Final = "oidc state"
_BROWSER: Final = "oidc browser"
_NAME_UNKNOWN: Final = "New member"


class _Pending(msgspec.Struct, frozen=True):
    """The state of a sign-in that is kept until the browser comes back."""

    nonce: str
    verifier: str
    # A digest of the browser's token, in hex.
    browser: str
    # Digests of an invitation's code, in hex.
    invitation: list[str] = []


@dataclass(frozen=True, slots=True)
class Finished:
    # None: the identity was linked to the user of the session.
    signed_in: SignedIn | None
    # Of an invitation that was accepted.
    account_id: str = ""
    linked_to: User | None = None


class OidcSignIn(Domain):
    def __init__(
        self,
        parts: Parts,
        sessions: Sessions,
        sign_in: SignIn,
        mail: Mail,
        issuer: OidcIssuer | None,
        origins: list[str],
    ) -> None:
        super().__init__(parts)
        self._sessions = sessions
        self._sign_in = sign_in
        self._mail = mail
        self._issuer = issuer
        self._origins = origins

    @property
    def issuer_host(self) -> str:
        """The issuer's host; empty: there is none."""
        return host_of(self._issuer.client.issuer) if self._issuer else ""

    async def start(self, origin: str, client: Client, invitation_code: str, *, again: bool) -> tuple[str, str]:
        """Returns where to send the browser, and the token that it must come back with."""
        digests: list[bytes] = []
        if invitation_code:
            digests = self._peppers.digests_of_code(codes.INVITATION, codes.plain(invitation_code))
            now_us = self.now_us()
            # A wrong one is counted here, and not only after the way to the issuer.
            await self._sign_in.attempt(client, lambda found: stored_codes.find_invitation(found, digests, now_us))
        url, browser_token, challenge = await self._begin(origin, None, digests, again=again)

        def keep(connection: Connection) -> None:
            stored_codes.add_challenge(connection, challenge, self.now_us())

        await self._sign_in.start(client, keep)
        return url, browser_token

    async def start_link(self, by: Access, origin: str) -> tuple[str, str]:
        """Begins to link an identity to a signed-in user, whom the issuer asks for proof."""
        url, browser_token, challenge = await self._begin(origin, by.user_id, [], again=True)
        now_us = self.now_us()
        await self._database.write(stored_codes.add_challenge, challenge, now_us)
        return url, browser_token

    async def finish(
        self, state: str, code: str, issuer: str, browser_token: str, session_token: str, client: Client
    ) -> Finished:
        connected = self._required_issuer()
        self._sessions.require_signer()
        challenge = await self._sign_in.attempt(
            client, lambda connection: self._use_state(connection, state, issuer, browser_token)
        )
        pending = msgspec.json.decode(challenge.challenge, type=_Pending)
        try:
            claims = await connected.claims_of(code, challenge.origin + RETURN_PATH, pending.nonce, pending.verifier)
        except OidcRefused:
            await self._sign_in.attempt(client, lambda _: None)
            raise sign_in_failed() from None

        def finish(connection: Connection) -> Finished | None:
            if challenge.user_id is not None:
                return self._link_own(connection, challenge.user_id, session_token, claims)
            return self._sign_in_as(connection, claims, pending, client)

        finished = await self._sign_in.attempt(client, finish)
        if finished.linked_to is not None:
            self._mail.notify(finished.linked_to, f"A sign-in with {self.issuer_host} was linked to your user.")
        return finished

    async def remove(self, by: Access, identity_id: str) -> None:
        def remove(connection: Connection) -> User:
            user = stored_users.require_user(connection, by.user_id, locks=True)
            [summary] = summarise(connection, [user])
            if not stored.remove_identity(connection, by.user_id, identity_id):
                raise checks.not_found("identity")
            require_other_way(summary)
            self._audit.append(connection, "identity.removed", by, object_id=identity_id)
            return user

        user = await self._database.write(remove)
        self._mail.notify(user, "A linked sign-in was removed from your user.")

    async def _begin(
        self, origin: str, user_id: str | None, invitation: list[bytes], *, again: bool
    ) -> tuple[str, str, Challenge]:
        issuer = self._required_issuer()
        if origin not in self._origins:
            raise checks.refusal("origin", Sentence("origin_unknown"))
        state, nonce, verifier, browser = (secrets.token_urlsafe(32) for _ in range(4))
        pending = _Pending(
            nonce, verifier, self._peppers.digest_code(_BROWSER, browser).hex(), [digest.hex() for digest in invitation]
        )
        challenge = Challenge(
            challenge_id=self._peppers.digest_code(_STATE, state).hex(),
            user_id=user_id,
            challenge=msgspec.json.encode(pending),
            origin=origin,
            expires_at_us=self.now_us() + STATE_VALID_US,
            kind=ChallengeKind.OIDC,
        )
        url = await issuer.authorization_url(origin + RETURN_PATH, state, nonce, verifier, again=again)
        return url, browser, challenge

    def _use_state(self, connection: Connection, state: str, issuer: str, browser_token: str) -> Challenge | None:
        """Returns what a state was made for. It is used up even if it came back in another browser."""
        now_us = self.now_us()
        for digest in self._peppers.digests_of_code(_STATE, state):
            challenge = stored_codes.use_challenge(connection, digest.hex(), now_us, ChallengeKind.OIDC)
            if challenge is not None:
                break
        else:
            return None
        expected = bytes.fromhex(msgspec.json.decode(challenge.challenge, type=_Pending).browser)
        given = self._peppers.digests_of_code(_BROWSER, browser_token)
        is_same_browser = any(hmac.compare_digest(digest, expected) for digest in given)
        # Another issuer's response must not be taken for ours.
        is_our_issuer = issuer in ("", self._required_issuer().client.issuer)
        return challenge if is_same_browser and is_our_issuer else None

    def _link_own(
        self, connection: Connection, user_id: str, session_token: str, claims: OidcClaims
    ) -> Finished | None:
        found = self._sessions.find(connection, session_token)
        user = get(connection, User, user_id, locks=True)
        if found is None or user is None or found[1].user_id != user_id:
            return None
        known = stored.find_identity(connection, self._required_issuer().client.issuer, claims.subject)
        if known is not None:
            return Finished(None) if known.user_id == user_id else None
        if len(stored.list_identities(connection, user_id)) >= IDENTITIES_MOST:
            return None
        identity = self._add_identity(connection, user_id, claims)
        self._audit.append(connection, "identity.linked", found[0], object_id=identity.identity_id)
        return Finished(None, linked_to=user)

    def _sign_in_as(
        self, connection: Connection, claims: OidcClaims, pending: _Pending, client: Client
    ) -> Finished | None:
        now_us, issuer = self.now_us(), self._required_issuer().client.issuer
        known = stored.find_identity(connection, issuer, claims.subject)
        if pending.invitation:
            digests = [bytes.fromhex(digest) for digest in pending.invitation]
            invitation = stored_codes.use_invitation(connection, digests, now_us)
            if invitation is None:
                return None
        elif known is None and claims.email:
            invitation = stored_codes.use_newest_invitation_for(connection, claims.email, now_us)
        else:
            invitation = None
        if invitation is not None:
            lock_account(connection, invitation.account_id)
        if known is not None:
            user = get(connection, User, known.user_id, locks=True)
        elif invitation is not None:
            user = self._add_user(connection, claims, invitation, now_us)
        else:
            user = None
        if user is None or user.disabled_at_us is not None:
            return None
        if known is not None:
            stored.record_identity_use(connection, known.identity_id, hour_of(now_us))
        if invitation is not None:
            self._sign_in.join(connection, invitation, user, client)
        opened = self._sign_in.open(connection, user, SignInMethod.OIDC, client, claims.authenticated_at_us)
        return Finished(opened, invitation.account_id if invitation else "")

    def _add_user(self, connection: Connection, claims: OidcClaims, invitation: Invitation, now_us: int) -> User:
        given = "".join(filter(str.isprintable, claims.name)).strip()[: checks.NAME_LENGTH_MOST].strip()
        user = User(codes.mint_id("user"), given or _NAME_UNKNOWN, claims.email or invitation.email, now_us)
        add(connection, user)
        self._add_identity(connection, user.user_id, claims)
        return user

    def _add_identity(self, connection: Connection, user_id: str, claims: OidcClaims) -> OidcIdentity:
        identity = OidcIdentity(
            identity_id=codes.mint_id("idn"),
            user_id=user_id,
            issuer=self._required_issuer().client.issuer,
            subject=claims.subject,
            created_at_us=self.now_us(),
        )
        add(connection, identity)
        return identity

    def _required_issuer(self) -> OidcIssuer:
        if self._issuer is None:
            raise LegatoError(Reason.ENDPOINT_NOT_OFFERED, Sentence("sign_in_provider_missing"))
        return self._issuer
