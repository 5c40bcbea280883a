"""The routes file on a page: edited, checked, tried, and taken over by all routers or by none."""

import asyncio
import contextlib
import hashlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from starlette.responses import Response

from console.display.language import EnglishText, _
from console.display.route_words import change_words
from console.pages.operator import routes
from console.pages.operator.routes import name_of, reload_each
from console.services import RouterCalls
from console.web.forms import Rules
from console.web.refusals import shows_again
from console.web.visit import Visit
from legato_protos.auth.v1 import users_pb2
from legato_protos.router.v1 import route_files_pb2 as pb
from services.chassis.errors import LegatoError
from services.rules.model_classes import CLASSES

TRIAL_TIMEOUT_S: Final = 25.0
DOWNLOAD: Final = {"content-disposition": 'attachment; filename="routes.toml"'}

_Answer = TypeVar("_Answer")
_File = pb.GetRouteFileResponse | pb.PreviewRouteFileResponse


@dataclass(slots=True)
class Draft:
    """A text that is edited, and what the page shows of it."""

    text: str = ""
    # Of the file that was edited, and of the one on disk now.
    base_digest: str = ""
    file_digest: str = ""
    models: Sequence[str] = ()
    # Why nothing can be edited here, and why what is edited cannot be written, each with a router's name or none.
    problems: list[tuple[str, str]] = field(default_factory=list)
    obstacles: list[tuple[str, str]] = field(default_factory=list)
    secrets: Sequence[pb.RouteMistake] = ()
    # Set when the text was checked.
    is_checked: bool = False
    mistakes: list[pb.RouteMistake] = field(default_factory=list)
    version: str = ""
    diff: Sequence[str] = ()
    changes: list[str] = field(default_factory=list)
    trial: pb.TryModelResponse | None = None
    tried: str = ""

    @property
    def is_stale(self) -> bool:
        """Returns whether somebody else has changed the file meanwhile."""
        return self.base_digest != self.file_digest

    @property
    def may_apply(self) -> bool:
        is_right = self.is_checked and not (self.mistakes or self.problems or self.obstacles)
        return is_right and not self.is_stale and bool(self.diff)


async def show(visit: Visit) -> Response:
    return _page(visit, await _read(visit))


async def check(visit: Visit) -> Response:
    """Says what the text would change; nothing is changed."""
    draft = await _preview(visit, _text_in(visit), visit.form.get("base_digest"))
    return _page(visit, draft, 400 if draft.mistakes or draft.problems else 200)


async def download(visit: Visit) -> Response:
    return Response(_text_in(visit), 200, DOWNLOAD, "text/plain; charset=utf-8")


@shows_again(routes.show, "percent")
async def edit_canary(visit: Visit) -> Response:
    """Shows the text with another canary of a class, to be taken over like any other."""
    ends = visit.form.get("ends") == "yes"
    with Rules(visit.form) as rules:
        class_id = visit.form.get("class")
        rules.require(class_id in CLASSES, "class", _("Choose a class."))
        wrong = _("A percentage above 0, up to 100, such as 5.")
        percent = 0.0 if ends else rules.parse(_percent, "percent", wrong, 0.0)
        rules.require(ends or bool(percent), "percent", wrong)
    file = await _read(visit)
    if file.problems:
        return _page(visit, file, 400)
    canary = pb.CanaryEdit(class_id=class_id, model=visit.form.get("model"), percent=percent)
    draft = await _preview(visit, file.text, file.base_digest, canary)
    return _page(visit, draft, 400 if draft.mistakes or draft.problems else 200)


def _percent(given: str) -> float:
    percent = float(given.removesuffix("%").strip().replace(",", "."))
    if not 0 < percent <= 100:
        raise ValueError
    return percent


async def try_model(visit: Visit) -> Response:
    """Asks a model of the text one short question."""
    text, model = _text_in(visit), visit.form.get("model")
    visit.require_step_up()
    await visit.record_operator_action(users_pb2.OPERATOR_ACTION_TRY_MODEL)
    draft = await _preview(visit, text, visit.form.get("base_digest"))
    draft.tried = model
    if not draft.mistakes and not draft.problems:
        request = pb.TryModelRequest(text=text, model=model)
        draft.trial = await visit.router.route_files.TryModel(request, timeout=TRIAL_TIMEOUT_S)
        draft.mistakes = list(draft.trial.mistakes)
    return _page(visit, draft, 400 if draft.mistakes or draft.problems else 200)


async def apply(visit: Visit) -> Response:
    """Writes the text at every router, then has all take it over. What is refused by one router is undone at those
    before it, and taken over by none."""
    text, base_digest = _text_in(visit), visit.form.get("base_digest")
    visit.require_step_up()
    before, draft = await _read(visit), await _preview(visit, text, base_digest)
    if before.problems or not draft.may_apply:
        draft.problems = draft.problems or before.problems
        return _page(visit, draft, 409 if draft.is_stale else 400)
    await visit.record_operator_action(users_pb2.OPERATOR_ACTION_WRITE_ROUTES, object_id=draft.version)
    written: list[RouterCalls] = []
    # One after another: of two operators, the first is the first everywhere.
    for address, router in visit.routers.items():
        problem = await _write(router, text, base_digest)
        written.append(router)
        if problem:
            for each in written:
                await _undo(each, before, text)
            stale = await _preview(visit, text, base_digest)
            stale.problems.append((name_of(address), problem))
            return _page(visit, stale, 409)
    shown = await reload_each(visit, draft.version)
    return shown or visit.redirect("/operator/routes", "routes-changed")


async def _write(router: RouterCalls, text: str, base_digest: str) -> str:
    """Writes the file of a router; returns why that was refused."""
    try:
        answer = await router.route_files.WriteRouteFile(pb.WriteRouteFileRequest(text=text, base_digest=base_digest))
    except LegatoError as error:
        return EnglishText(error.message)
    if answer.outcome == pb.WRITE_OUTCOME_CONFLICT:
        return _("Somebody else has changed the file meanwhile.")
    if answer.outcome == pb.WRITE_OUTCOME_MISTAKEN:
        return EnglishText("; ".join(mistake.what for mistake in answer.mistakes))
    return EnglishText(answer.obstacle)


async def _undo(router: RouterCalls, before: Draft, text: str) -> None:
    """Writes the former text back, unless the file has another one by now."""
    written_digest = hashlib.sha256(text.encode()).hexdigest()
    with contextlib.suppress(LegatoError):
        await router.route_files.WriteRouteFile(pb.WriteRouteFileRequest(text=before.text, base_digest=written_digest))


async def _read(visit: Visit) -> Draft:
    """Reads the file, which can be edited if every router has the same."""
    files, problems = await _ask_each(visit, lambda calls: calls.route_files.GetRouteFile(pb.GetRouteFileRequest()))
    draft = _draft_of(files, problems)
    draft.base_digest = draft.file_digest
    for file in reversed(files.values()):
        draft.text, draft.secrets = file.text, file.secrets or draft.secrets
    return draft


async def _preview(visit: Visit, text: str, base_digest: str, canary: pb.CanaryEdit | None = None) -> Draft:
    request = pb.PreviewRouteFileRequest(text=text, canary=canary)
    previews, problems = await _ask_each(visit, lambda calls: calls.route_files.PreviewRouteFile(request))
    draft = _draft_of(previews, problems)
    draft.text, draft.base_digest, draft.is_checked = text, base_digest, True
    for preview in previews.values():
        draft.text, draft.version = preview.text, preview.version
        draft.diff = preview.diff
        draft.mistakes += [mistake for mistake in preview.mistakes if mistake not in draft.mistakes]
        draft.changes += [words for words in map(change_words, preview.changes) if words not in draft.changes]
    if len({preview.version for preview in previews.values()}) > 1 and not draft.mistakes:
        draft.problems.append(("", _("The text has another version at some routers: the files that it names differ.")))
    return draft


def _draft_of(files: dict[str, _Answer], problems: list[tuple[str, str]]) -> Draft:
    """Returns what all routers say alike; where they do not, the problem."""
    draft = Draft(problems=problems)
    found: dict[str, Any] = dict(files)
    for name, file in found.items():
        if file.obstacle:
            obstacles = draft.obstacles if _digest_of(file) else draft.problems
            obstacles.append((name, EnglishText(file.obstacle)))
    digests = [_digest_of(file) for file in found.values()]
    if len(set(digests)) > 1:
        draft.problems.append(
            ("", _("The routers have different files. Make them the same before they are edited here."))
        )
    # Of the first, as the text is.
    draft.file_digest = next(iter(digests), "")
    draft.models = next((file.models for file in found.values()), ())
    return draft


def _digest_of(file: _File) -> str:
    return file.digest if isinstance(file, pb.GetRouteFileResponse) else file.file_digest


async def _ask_each(
    visit: Visit, ask: Callable[[RouterCalls], Awaitable[_Answer]]
) -> tuple[dict[str, _Answer], list[tuple[str, str]]]:
    """Returns what each router answers, by its name, and why others do not."""
    routers = visit.routers

    async def ask_one(router: RouterCalls) -> _Answer | LegatoError:
        try:
            return await ask(router)
        except LegatoError as error:
            return error

    answers = dict(zip(map(name_of, routers), await asyncio.gather(*map(ask_one, routers.values())), strict=True))
    problems: list[tuple[str, str]] = [
        (name, EnglishText(answer.message)) for name, answer in answers.items() if isinstance(answer, LegatoError)
    ]
    if not routers:
        problems.append(("", _("The console finds no router.")))
    return {name: answer for name, answer in answers.items() if not isinstance(answer, LegatoError)}, problems


def _text_in(visit: Visit) -> str:
    """Returns the text of the form as it was written, with the line ends that files have."""
    return next((value for name, value in visit.form.fields if name == "text"), "").replace("\r\n", "\n")


def _page(visit: Visit, draft: Draft, status: int = 200) -> Response:
    return visit.render("operator_route_editor.html", status, draft=draft, lines=_lines(draft))


def _lines(draft: Draft) -> Iterable[tuple[str, str]]:
    """Returns the lines of the diff, each with its kind."""
    kinds = {"+": "comes", "-": "goes", "@": "place"}
    return [(kinds.get(line[:1], ""), line) for line in draft.diff[2:]]
