"""The application: all pages, and what happens before and after each of them."""

import contextlib
from functools import partial
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from console.account.account_notices import PageNotices
from console.display.sentences import in_words
from console.menu import menu_of
from console.routes import PAGES, PageRoute, find_page
from console.web import step_up
from console.web.capacity import Capacity
from console.web.forms import Form, read_form, status_of
from console.web.metrics import PageMetrics
from console.web.rendering import PageResponse
from console.web.visit import Console, Visit, no_such_page, sign_in_first, with_query, with_retry_after
from services.chassis.errors import LegatoError, Reason, internal_error
from services.chassis.http.answer import Answer
from services.chassis.http.asgi import Headers
from services.chassis.http.body_progress import BODY_TIMEOUT_S, TimedReceive
from services.chassis.http.request_id import RequestIdMiddleware
from services.chassis.http.server import HttpServer
from services.chassis.sentence import Sentence

CONFIRM_PATH: Final = "/confirm"
A_YEAR: Final = "public, max-age=31536000, immutable"
# A file may be large and a line slow, as long as it makes progress.
UPLOAD_TIMEOUT_S: Final = 900.0
STALLED_READER_S: Final = 60.0
# Events are small, and sent by computers.
WEBHOOK_TIMEOUT_S: Final = 20.0
WEBHOOK_PATHS: Final = frozenset(page.path for page in PAGES if page.is_webhook)


class ConsoleApp:
    def __init__(self, console: Console, metrics: PageMetrics, capacity: Capacity) -> None:
        self._console = console
        self._capacity = capacity
        self._metrics = metrics
        self._starlette = Starlette(
            routes=[
                *self._routes(),
                Route("/static/{name}", self._static, methods=["GET"]),
            ],
            exception_handlers={HTTPException: self._strange_path},
            middleware=[Middleware(RequestIdMiddleware)],
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers within the places that there are. Nothing but another event takes the place of an event."""
        capacity = self._capacity
        address = capacity.addresses.of(scope)
        if address is not None:
            # Behind a proxy, the connection's address is not the client's.
            scope["client"] = (str(address), 0)
        limit = capacity.webhooks if scope["path"] in WEBHOOK_PATHS else capacity.pages
        with contextlib.ExitStack() as places:
            try:
                places.enter_context(limit.place(address))
            except LegatoError as error:
                status, headers, body = refusal_in_words(error)
                response = Response(body, status)
                response.raw_headers.extend(headers)
                await response(scope, receive, send)
                return
            await self._starlette(scope, receive, send)

    def _routes(self) -> list[Route]:
        pages = (page for page in PAGES if self._console.serves_operators or not page.needs_operator)
        confirm = PageRoute("POST", CONFIRM_PATH, self._go_on)
        return [Route(page.path, partial(self._answer, page), methods=[page.method]) for page in (*pages, confirm)]

    async def _answer(self, page: PageRoute, request: Request) -> Response:
        began_s = self._console.clock.elapsed_s()
        receive = TimedReceive(request.receive, _timeout_s(page))
        visit = Visit(self._console, Request(request.scope, receive), Form([]))
        response = await self._respond(visit, page)
        visit.apply_cookies(response)
        self._protect(response)
        self._metrics.answered(page.path, response.status_code, self._console.clock.elapsed_s() - began_s)
        return response

    def _refuse_strangers(self, visit: Visit, page: PageRoute) -> Response | None:
        """Returns a response to a request that no page of ours made, or that came by a name that is not ours."""
        protection, request = self._console.protection, visit.request
        if not protection.is_our_host(request.headers):
            if request.method == "GET" and protection.names_loopback(request.headers):
                # Passkeys and cookies belong to the name.
                query = f"?{request.url.query}" if request.url.query else ""
                return RedirectResponse(protection.origins[0] + request.url.path + query, 307)
            return visit.render("error.html", 421, title_of="host", error=None)
        if not page.is_webhook and not protection.is_from_us(request.method, request.headers):
            return visit.render("error.html", 403, title_of="origin", error=None)
        return None

    async def _respond(self, visit: Visit, page: PageRoute) -> Response:
        with PageNotices(visit) as notices:
            try:
                response = self._refuse_strangers(visit, page) or await self._handle(visit, page, notices)
                return await _completed(response, visit, notices)
            except LegatoError as error:
                refused = await self._refused(visit, error, page)
            except Exception as error:
                self._console.log.failure("page.failed", error, request_id=visit.request.state.request_id)
                refused = await self._refused(visit, internal_error(), page)
            return await _completed(refused, visit, notices)

    async def _handle(self, visit: Visit, page: PageRoute, notices: PageNotices) -> Response:
        if page.is_webhook:
            return await page.handler(visit)
        if not page.has_upload:
            visit.form = await read_form(visit.request)
        await self._find_out_who(visit, page)
        if page.needs_account and not visit.account_id:
            return visit.render("no_account.html")
        self._require_role(visit, page)
        if page.is_of_account:
            notices.begin()
        return await page.handler(visit)

    async def _find_out_who(self, visit: Visit, page: PageRoute) -> None:
        token = visit.session_token
        if not token:
            if page.needs_sign_in:
                raise sign_in_first()
            return
        try:
            await visit.resolve(token)
        except LegatoError as error:
            # Public pages render even if auth is down.
            if page.needs_sign_in:
                raise
            if error.reason is Reason.SESSION_ENDED:
                visit.sign_out()

    def _require_role(self, visit: Visit, page: PageRoute) -> None:
        """Hides operators' pages from all other users, and refuses pages that a role does not include. The services
        refuse what these pages would ask for as well."""
        if page.needs_operator and not (self._console.serves_operators and visit.who.user.is_operator):
            raise no_such_page()
        if page.needs_notes_role and not visit.who.may_write:
            raise LegatoError(Reason.ROLE_MISSING, Sentence("role_missing"))

    async def _refused(self, visit: Visit, error: LegatoError, page: PageRoute) -> Response:
        if page.is_json:
            return JSONResponse({"message": in_words(error.sentence)}, status_of(error))
        if error.reason is Reason.SESSION_ENDED:
            visit.sign_out()
            path = visit.address if visit.request.method == "GET" else "/"
            return RedirectResponse("/sign-in" if path == "/" else with_query("/sign-in", {"next": path}), 303)
        if error.reason is Reason.STEP_UP_REQUIRED:
            return await step_up.ask(visit)
        response = visit.render("error.html", status_of(error), title_of=error.reason.value, error=error)
        return with_retry_after(response, error)

    async def _go_on(self, visit: Visit) -> Response:
        """Proves again who the user is, then answers the request that needed it."""
        confirmed = await step_up.confirm(visit)
        if isinstance(confirmed, Response):
            return confirmed
        method, path, form = confirmed
        page, values = find_page(method, path.partition("?")[0])
        self._require_role(visit, page)
        if method == "GET":
            return RedirectResponse(path, 303)
        visit.form = form
        visit.request.scope["path_params"] = values
        visit.request.scope["path"] = path
        return await page.handler(visit)

    async def _static(self, request: Request) -> Response:
        asset = self._console.pages.assets.find(request.url.path)
        if asset is None:
            response = Response("Not found.", 404, media_type="text/plain")
            self._protect(response)
            return response
        headers = {"vary": "accept-encoding"}
        content = asset.content
        if "gzip" in request.headers.get("accept-encoding", ""):
            headers["content-encoding"], content = "gzip", asset.compressed
        response = Response(content, 200, headers, asset.content_type)
        self._protect(response)
        response.headers["cache-control"] = A_YEAR
        return response

    async def _strange_path(self, request: Request, error: Exception) -> Response:
        """Answers a path that is none of ours, or one with another method."""
        status = error.status_code if isinstance(error, HTTPException) else 404

        async def handler(visit: Visit) -> Response:
            return visit.render("error.html", status, title_of="method" if status == 405 else "NOT_FOUND", error=None)

        return await self._answer(PageRoute("GET", "none", handler, needs_sign_in=False), request)

    def _protect(self, response: Response) -> None:
        for name, value in self._console.protection.headers.items():
            response.headers[name] = value


async def _completed(response: Response, visit: Visit, notices: PageNotices) -> Response:
    """Renders a page, now that its own part is known."""
    if isinstance(response, PageResponse):
        response.complete(menu=menu_of(visit), account_notice=await notices.find())
    return response


def new_server(app: ConsoleApp, capacity: Capacity, drain_s: float) -> HttpServer:
    return HttpServer(app, capacity.connections, refusal_in_words, drain_s=drain_s, stalled_reader_s=STALLED_READER_S)


def refusal_in_words(error: LegatoError) -> Answer:
    """Renders the refusal of what did not reach a page: under a flood, pages would cost too much."""
    headers: Headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
    ]
    if error.retry_after_s is not None:
        headers.append((b"retry-after", b"%d" % max(1, round(error.retry_after_s))))
    return Answer(error.wire.http_status, headers, f"{error.message}\n".encode())


def _timeout_s(page: PageRoute) -> float:
    """Returns the time that the body of a request may take."""
    if page.has_upload:
        return UPLOAD_TIMEOUT_S
    return WEBHOOK_TIMEOUT_S if page.is_webhook else BODY_TIMEOUT_S
