"""Signs users in by password and the code of an authenticator app, and lets them set both.

Unknown users, wrong passwords and wrong codes fail the same, after the same work. Failures are limited by address and
by user; passkeys are not limited by user, so that no attacker locks a user out.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from services.auth.core import checks, codes
from services.auth.core.parts import Domain, Parts
from services.auth.core.records.users import SignInMethod, User
from services.auth.core.store import Connection, get
from services.auth.core.store import users as stored_users
from services.auth.sign_in.records import Challenge, ChallengeKind, Client, Password, Totp
from services.auth.sign_in.rules import totp
from services.auth.sign_in.rules.mail import Mail
from services.auth.sign_in.rules.passwords import PasswordHashes, checked_password
from services.auth.sign_in.rules.sessions import Sessions, SignedIn
from services.auth.sign_in.rules.sign_in import Limit, Proof, Proved, SignIn, require_other_way, sign_in_failed
from services.auth.sign_in.store import codes as stored_codes
from services.auth.sign_in.store import credentials as stored
from services.auth.sign_in.store.ways import summarise
from services.chassis.access_tokens import Access
from services.chassis.load.gcra import Rate
from services.chassis.sentence import Sentence

# Per user: five at once, then one a minute.
USER_FAILURES: Final = Rate(per_minute=1, burst=5)
# Addresses of users are not verified, so that several may have one.
SAME_EMAIL_MOST: Final = 3
# People look for their phone first.
TOTP_CHALLENGE_VALID_US: Final = 900_000_000


class PasswordSignIn(Domain):
    def __init__(
        self, parts: Parts, sessions: Sessions, sign_in: SignIn, mail: Mail, cipher: totp.CredentialCipher | None
    ) -> None:
        """Prepares it; without a cipher there are no passwords."""
        super().__init__(parts)
        self._sessions = sessions
        self._sign_in = sign_in
        self._mail = mail
        self._cipher = cipher
        self._hashes = PasswordHashes()

    @property
    def is_offered(self) -> bool:
        return self._cipher is not None

    async def sign_in(self, email: str, password: str, code: str, client: Client) -> SignedIn:
        self._required_cipher()
        email = email.strip().lower()
        limits = [(self._sign_in.limit_name("failure email", email), USER_FAILURES)]
        await self._sign_in.require_allowed(client, limits)

        def look(connection: Connection) -> list[Password]:
            found = stored_users.find_by_email(connection, email, SAME_EMAIL_MOST)
            passwords = [get(connection, Password, user.user_id) for user in found]
            return [password for password in passwords if password is not None]

        proof = await self._proof(await self._database.read(look), password, code)
        return await self._sign_in.by_proof(proof, client, limits)

    async def step_up(self, token: str, password: str, code: str, client: Client) -> SignedIn:
        """Proves again who the user of a session is."""
        self._required_cipher()

        def look(connection: Connection) -> tuple[str, list[Password]]:
            _, user = self._sessions.require(connection, token)
            known = get(connection, Password, user.user_id)
            return user.user_id, [] if known is None else [known]

        user_id, passwords = await self._database.read(look)
        limits: list[Limit] = [(self._sign_in.limit_name("failure user", user_id), USER_FAILURES)]
        await self._sign_in.require_allowed(client, limits)
        return await self._sign_in.step_up(token, client, await self._proof(passwords, password, code), limits)

    async def _proof(self, passwords: Sequence[Password], given: str, code: str) -> Proof:
        """Compares the password here, outside of any transaction; the code is compared and used up in one."""
        known = None
        for password in passwords:
            if await self._hashes.verify(password.hash, given):
                known = password
        if not passwords:
            await self._hashes.verify("", given)

        def prove(connection: Connection) -> Proved | None:
            if known is None:
                return None
            get(connection, User, known.user_id, locks=True)
            # It may have been changed meanwhile.
            is_current = get(connection, Password, known.user_id) == known
            is_proved = is_current and self._use_code(connection, known.user_id, code)
            return Proved(known.user_id, SignInMethod.PASSWORD) if is_proved else None

        return prove

    def _use_code(self, connection: Connection, user_id: str, code: str) -> bool:
        app = get(connection, Totp, user_id)
        secret = self._required_cipher().decrypt(app.secret, user_id) if app else None
        step = totp.matching_step(secret, code, self.now_us()) if secret else None
        return step is not None and stored.record_totp_step(connection, user_id, step)

    async def set_password(self, by: Access, given: str, email: str) -> None:
        self._required_cipher()
        user = await self._database.read(stored_users.require_user, by.user_id)
        address = user.email or checks.email(email)
        if not address:
            raise checks.refusal("email", Sentence("email_missing"))
        hashed = await self._hashes.hash(checked_password(given, user.name, address))

        def put(connection: Connection) -> User:
            user = stored_users.require_user(connection, by.user_id, locks=True)
            if not user.email:
                stored_users.change_user(connection, user.user_id, email=address)
            stored.put_password(connection, Password(user.user_id, hashed, self.now_us()))
            self._audit.append(connection, "password.set", by, object_id=user.user_id)
            return user

        self._mail.notify(await self._database.write(put), "Your password was set or changed.")

    async def remove_password(self, by: Access) -> None:
        def remove(connection: Connection) -> User:
            user = stored_users.require_user(connection, by.user_id, locks=True)
            [summary] = summarise(connection, [user])
            if summary.passwords:
                require_other_way(summary)
            if not stored.remove_password(connection, by.user_id):
                raise checks.not_found("password")
            self._audit.append(connection, "password.removed", by, object_id=by.user_id)
            return user

        self._mail.notify(await self._database.write(remove), "Your password and authenticator app were removed.")

    async def start_totp(self, by: Access) -> tuple[str, bytes, str]:
        """Returns a challenge's id, the secret of an authenticator app, and its address for a QR code. They stay the
        same in a session until SetTotp: a user who mistypes a code has scanned the secret already."""
        cipher, now_us, kind = self._required_cipher(), self.now_us(), ChallengeKind.TOTP
        expires_at_us = now_us + TOTP_CHALLENGE_VALID_US

        def add(connection: Connection) -> tuple[User, str, bytes]:
            user = stored_users.require_user(connection, by.user_id, locks=True)
            shown = stored_codes.find_challenge_in(connection, by.user_id, by.session_id, now_us, kind)
            secret = cipher.decrypt(shown.challenge, by.user_id) if shown else None
            if shown is None or secret is None:
                challenge_id, secret = codes.mint_id("totp"), totp.mint_secret()
                sealed = cipher.encrypt(secret, by.user_id)
                shown = Challenge(challenge_id, by.user_id, sealed, by.session_id, expires_at_us, kind)
            stored_codes.remove_challenges(connection, by.user_id, kind)
            stored_codes.add_challenge(connection, replace(shown, expires_at_us=expires_at_us), now_us)
            return user, shown.challenge_id, secret

        user, challenge_id, secret = await self._database.write(add)
        return challenge_id, secret, totp.uri_of(secret, user.email or user.name)

    async def set_totp(self, by: Access, challenge_id: str, code: str) -> None:
        cipher = self._required_cipher()

        def put(connection: Connection) -> User | None:
            user, now_us = stored_users.require_user(connection, by.user_id, locks=True), self.now_us()
            challenge = stored_codes.find_challenge(connection, challenge_id, now_us, ChallengeKind.TOTP)
            if challenge is None or challenge.user_id != by.user_id:
                raise checks.refusal("code", Sentence("totp_picture_old"))
            secret = cipher.decrypt(challenge.challenge, by.user_id)
            step = totp.matching_step(secret, code, now_us) if secret else None
            if step is None:
                return None
            stored_codes.use_challenge(connection, challenge_id, now_us, ChallengeKind.TOTP)
            stored.put_totp(connection, Totp(by.user_id, challenge.challenge, step, now_us))
            self._audit.append(connection, "totp.set", by, object_id=by.user_id)
            return user

        # Not limited: the secret is the user's own.
        user = await self._database.write(put)
        if user is None:
            raise checks.refusal("code", Sentence("totp_code_wrong"))
        self._mail.notify(user, "An authenticator app was set up.")

    def _required_cipher(self) -> totp.CredentialCipher:
        if self._cipher is None:
            # A caller that asks for it anyway learns nothing about users.
            raise sign_in_failed()
        return self._cipher
