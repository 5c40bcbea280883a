"""One request to the console: who makes it, what the form says, and how it is answered."""

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, TypeVar
from urllib.parse import quote

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from console.display import language
from console.display.words import browser_of, time_of
from console.process_status import ProcessAddress
from console.services import AuthCalls, MeteringCalls, PaymentsCalls, RouterCalls, Services
from console.web.flash_messages import TIMED, FlashMessage, flash_message_in
from console.web.forms import Form, Refusal
from console.web.protection import Protection
from console.web.rendering import PageResponse, Pages
from console.web.zones import ZONE_COOKIE, Zone, find_zone
from legato_protos.auth.v1 import auth_pb2
from legato_protos.auth.v1 import users_pb2 as pb
from legato_protos.auth.v1.credentials_pb2 import GetSignInMethodsRequest, GetSignInMethodsResponse
from legato_protos.metering.v1.metering_pb2 import GetBalanceRequest, GetBalanceResponse
from legato_protos.type.v1.access_token_pb2 import ACCOUNT_ROLE_MEMBER, ACCOUNT_ROLE_OWNER
from services.chassis.changes import Change, from_changes
from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from services.chassis.telemetry.log import Log
from services.chassis.timing.deadlines import Clock

# Longer than a redirect takes, and shorter than a visitor stays away.
NOTICE_LIFE_S: Final = 60
A_YEAR_S: Final = 365 * 24 * 3600
# A longer one would make a header that proxies refuse.
LONGEST_ADDRESS: Final = 2000
# Tokens are valid for a minute.
TOKEN_RENEWED_AFTER_S: Final = 30.0

AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True, slots=True)
class Console:
    """Everything that pages use."""

    services: Services
    pages: Pages
    protection: Protection
    api_url: str
    clock: Clock
    log: Log
    # Pages for operators exist, and what they show the state of.
    serves_operators: bool = False
    processes: tuple[ProcessAddress, ...] = ()
    # Where links for users lead, if not here.
    public_origin: str = ""
    # The operators' mail address, which pages show to owners; empty: they show none.
    contact_email: str = ""

    @property
    def cookie_name(self) -> str:
        """The beginning of the names of cookies. A browser keeps those of all ports of a host together, and on one
        machine the operators' console is on another port of the same host."""
        return "legato-operator" if self.public_origin else "legato"


@dataclass(frozen=True, slots=True)
class Visitor:
    """A signed-in user, in one of the user's accounts."""

    session_token: str = field(repr=False)
    resolved: pb.ResolveSessionResponse = field(repr=False)

    @property
    def user(self) -> pb.User:
        return self.resolved.user

    @property
    def account_id(self) -> str:
        return self.resolved.account_id

    @property
    def membership(self) -> pb.Membership:
        found = [each for each in self.resolved.memberships if each.account_id == self.account_id]
        return found[0] if found else pb.Membership()

    @property
    def is_owner(self) -> bool:
        return self.membership.role == ACCOUNT_ROLE_OWNER

    @property
    def may_write(self) -> bool:
        """Returns whether the role includes keys, notes, documents, and the preview."""
        return self.membership.role in (ACCOUNT_ROLE_OWNER, ACCOUNT_ROLE_MEMBER)

    @property
    def has_own_keys_only(self) -> bool:
        return self.membership.role == ACCOUNT_ROLE_MEMBER


@dataclass(slots=True)
class Visit:
    console: Console
    request: Request
    form: Form
    # None: the visitor is not signed in.
    known: Visitor | None = None
    # Cookies that the response sets, by name; None removes one.
    cookies: dict[str, tuple[str, int | None] | None] = field(default_factory=dict)
    _resolved_at_s: float = 0.0
    _credit: "asyncio.Task[GetBalanceResponse | None] | None" = None
    _began_s: float = field(init=False)
    # The services, called on behalf of the visitor.
    auth: AuthCalls = field(init=False, repr=False)
    metering: MeteringCalls = field(init=False, repr=False)
    router: RouterCalls = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._began_s = self.console.clock.elapsed_s()
        language.speak(
            language.choose(
                self.request.cookies.get(language.COOKIE, ""), self.request.headers.get("accept-language", "")
            )
        )
        services = self.console.services
        self.auth = AuthCalls(services.auth, self)
        self.metering = MeteringCalls(services.metering, self)
        self.router = RouterCalls(services.router, self)

    @property
    def payments(self) -> PaymentsCalls:
        """Returns payments, where credit can be bought; elsewhere there is no such page."""
        if self.console.services.payments is None:
            raise no_such_page()
        return PaymentsCalls(self.console.services.payments, self)

    @property
    def routers(self) -> dict[str, RouterCalls]:
        """Returns each router, by its address."""
        service = self.console.services.router
        replicas = sorted(service.replicas.in_order(), key=lambda replica: replica.address)
        return {replica.address: RouterCalls(service, self, replica) for replica in replicas}

    @property
    def who(self) -> Visitor:
        if self.known is None:
            raise sign_in_first()
        return self.known

    @property
    def account_id(self) -> str:
        return self.who.account_id

    @property
    def query(self) -> QueryParams:
        return self.request.query_params

    @property
    def page_token(self) -> str:
        """Returns which page of a list is asked for; empty: the first."""
        return self.query.get("page", "")

    @property
    def may_pay(self) -> bool:
        """Returns whether the visitor can buy credit here."""
        return self.console.services.payments is not None and self.who.is_owner

    @property
    def token(self) -> bytes:
        return self.who.resolved.access_token

    @property
    def now(self) -> datetime:
        return self.console.clock.now()

    @property
    def zone(self) -> Zone:
        return find_zone(self.request.cookies.get(ZONE_COOKIE, ""), self.now)

    @property
    def origin(self) -> str:
        return self.console.protection.origin_of(self.request.headers)

    @property
    def address(self) -> str:
        """The path with its query, to come back to."""
        path, query = self.request.url.path, self.request.url.query
        return f"{path}?{query}" if query and len(path) + len(query) < LONGEST_ADDRESS else path

    @property
    def client(self) -> pb.Client:
        address = self.request.client.host if self.request.client else ""
        return pb.Client(address=address, browser=browser_of(self.request.headers.get("user-agent", ""))[:100])

    @property
    def session_cookie(self) -> str:
        """The cookie's name. The prefix ties it to this host, but Safari takes it only over HTTPS."""
        protection, agent = self.console.protection, self.request.headers.get("user-agent", "")
        is_safari = "Safari/" in agent and "Chrome/" not in agent
        has_prefix = protection.is_https or (protection.is_localhost and not is_safari)
        return f"__Host-{self.console.cookie_name}" if has_prefix else self.console.cookie_name

    @property
    def notice_cookie(self) -> str:
        return f"{self.console.cookie_name}-notice"

    @property
    def account_cookie(self) -> str:
        return f"{self.console.cookie_name}-account"

    @property
    def session_token(self) -> str:
        return self.request.cookies.get(self.session_cookie, "")

    def sign_in(self, token: str) -> None:
        self.cookies[self.session_cookie] = (token, None)

    def sign_out(self) -> None:
        self.cookies[self.session_cookie] = None

    async def resolve(self, token: str) -> Visitor:
        """Finds out who a session belongs to; the cookie follows where its token was replaced."""
        account_id = self.request.cookies.get(self.account_cookie, "")
        request = pb.ResolveSessionRequest(session_token=token, account_id=account_id)
        resolved = await self.auth.sign_in.ResolveSession(request)
        if resolved.new_session_token:
            token = resolved.new_session_token
            self.sign_in(token)
        self.known = Visitor(token, resolved)
        self._resolved_at_s = self.console.clock.elapsed_s()
        return self.known

    async def recent_token(self) -> bytes:
        """Returns an access token, a new one if need be: what takes longer than one is valid ends with the session."""
        if self.console.clock.elapsed_s() - self._resolved_at_s > TOKEN_RENEWED_AFTER_S:
            await self.resolve(self.who.session_token)
        return self.token

    async def read_account(self) -> auth_pb2.Account:
        """Returns the account; auth has just told it with the session, other than an auth of an earlier release."""
        if self.who.resolved.HasField("account"):
            return self.who.resolved.account
        request = auth_pb2.GetAccountRequest(account_id=self.who.account_id)
        return (await self.auth.accounts.GetAccount(request)).account

    def credit(self) -> "asyncio.Task[GetBalanceResponse | None]":
        """Reads the credit of the account, once for whatever the page shows of it; None if metering does not answer."""
        if self._credit is None:
            request = GetBalanceRequest(account_id=self.account_id, tells_outlook=True)
            answer = self.optional(self.metering.metering.GetBalance(request), "balance")
            self._credit = asyncio.create_task(answer)
        return self._credit

    async def optional(self, answer: Awaitable[AnswerT], name: str) -> AnswerT | None:
        """Returns an answer without which a page is incomplete, but there all the same; None if there is none."""
        try:
            return await answer
        except LegatoError as error:
            self.console.log.debug("page.incomplete", name=name, reason=error.reason)
            return None

    async def sign_in_methods(self) -> GetSignInMethodsResponse:
        """Returns which further ways there are; none if auth does not answer."""
        methods = self.auth.sign_in.GetSignInMethods(GetSignInMethodsRequest())
        return await self.optional(methods, "methods") or GetSignInMethodsResponse()

    def path_value(self, name: str) -> str:
        """Returns a part of the address, such as the id of a key."""
        value: str = self.request.path_params[name]
        return value

    def render(
        self,
        template: str,
        status: int = 200,
        refusal: Refusal | None = None,
        *,
        has_secret: bool = False,
        **context: object,
    ) -> Response:
        """Returns a page, which says what is wrong with the form that it answers."""
        notice = self._take_message() if self.known is not None or template == "sign_in.html" else None
        response = PageResponse(
            self.console.pages,
            template,
            {
                "who": self.known,
                "path": self.request.url.path,
                "address": self.address,
                # Where the page is that another language shows.
                "same_page": self.address if self.request.method == "GET" else "/",
                "api_url": self.console.api_url,
                "origin": self.origin,
                "now": self.now,
                "notice": notice,
                "may_pay": self.known is not None and self.may_pay,
                "contact_email": self.console.contact_email,
                "serves_operators": self.console.serves_operators,
                "problem": refusal,
                "problems": refusal.problems if refusal else {},
                # What stands in its fields again.
                "typed": self.form if refusal else Form([]),
                **context,
            },
            refusal.status if refusal else status,
            # The length of a compressed page would tell something of its secret.
            may_compress=not has_secret and "gzip" in self.request.headers.get("accept-encoding", ""),
        )
        return response if refusal is None else with_retry_after(response, refusal)

    def require_step_up(self) -> None:
        """Asks who it is before anything is done: the services would ask too, each at its own step."""
        if time_of(self.who.resolved.step_up_until_time) <= self.now:
            raise LegatoError(Reason.STEP_UP_REQUIRED, Sentence("step_up_required"))

    async def record_operator_action(
        self, action: "pb.OperatorAction.ValueType", account_id: str = "", object_id: str = "", *changes: Change
    ) -> None:
        """Writes what an operator is about to do, and to change, to the audit log."""
        request = pb.RecordOperatorActionRequest(
            action=action, account_id=account_id, object_id=object_id, changes=from_changes(changes)
        )
        await self.auth.audit.RecordOperatorAction(request)

    def redirect(self, path: str, message: str = "", figure: int | None = None) -> Response:
        """Answers a form with another page, which says what was done; with a figure, or with how long it took."""
        if message:
            if figure is None:
                figure = round(1000 * self.elapsed_s()) if message in TIMED else 0
            self.cookies[self.notice_cookie] = (f"{message}.{figure}", NOTICE_LIFE_S)
        return RedirectResponse(path, 303)

    def elapsed_s(self) -> float:
        """Returns how long ago the visitor asked for this."""
        return self.console.clock.elapsed_s() - self._began_s

    def choose_account(self, account_id: str) -> None:
        self.cookies[self.account_cookie] = (account_id, A_YEAR_S)

    def _take_message(self) -> FlashMessage | None:
        given = self.request.cookies.get(self.notice_cookie)
        if given is None:
            return None
        self.cookies[self.notice_cookie] = None
        return flash_message_in(given)

    def apply_cookies(self, response: Response) -> None:
        for name, cookie in self.cookies.items():
            value, life_s = cookie or ("", 0)
            response.set_cookie(
                name,
                value,
                max_age=life_s,
                path="/",
                secure=self.console.protection.is_https or name.startswith("__Host-"),
                httponly=True,
                samesite="lax",
            )


def with_retry_after(response: Response, error: LegatoError) -> Response:
    if error.retry_after_s is not None:
        response.headers["retry-after"] = str(max(1, round(error.retry_after_s)))
    return response


def no_such_page() -> LegatoError:
    return LegatoError(Reason.NOT_FOUND, Sentence("page_unknown"))


def sign_in_first() -> LegatoError:
    return LegatoError(Reason.SESSION_ENDED, Sentence("sign_in_first"))


def own_path(given: str, otherwise: str = "/") -> str:
    """Returns `given` if it is a path of this site: signing in leads to no other site."""
    is_plain = given.startswith("/") and not given.startswith(("//", "/\\")) and given.isprintable()
    return given if is_plain and "\\" not in given else otherwise


def paging(path: str, query: Mapping[str, str], page_token: str, next_token: str) -> dict[str, Any]:
    """Returns what a list of several pages shows of them: whether this is the first, and the ways to first and next."""
    return {
        "is_first": not page_token,
        "first_path": with_query(path, query),
        "next_path": with_query(path, {**query, "page": next_token}) if next_token else "",
    }


def with_query(path: str, query: Mapping[str, str]) -> str:
    return path + "?" + "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items())
