"""The RPCs by which operators edit the routes file of this router."""

import asyncio
from contextlib import suppress
from difflib import unified_diff

from legato_protos.router.v1 import route_files_pb2 as pb
from legato_protos.router.v1 import route_files_pb2_grpc as pb_grpc
from services.chassis.rpc.messages import to_message
from services.chassis.rpc.server import Context
from services.chassis.settings import SettingsError
from services.chassis.timing.deadlines import Clock
from services.router.routing.canary_edit import CanaryNotPlaced, set_canary
from services.router.routing.file_on_disk import (
    FileChanged,
    FileNotWritable,
    ReadFile,
    digest_of,
    find_obstacle,
    read_file,
    replace_file,
)
from services.router.routing.file_secrets import find_secrets
from services.router.routing.key_origins import KeyOrigins
from services.router.routing.model_states import ModelStates, OpenProvider
from services.router.routing.model_trial import try_model
from services.router.routing.reload import Reload
from services.router.routing.route_changes import find_route_changes
from services.router.routing.route_lines import KeyLines, Mistake
from services.router.routing.routes import Routes, RoutesMistaken


class RouteFileServicer(pb_grpc.RouteFileServiceServicer):
    def __init__(self, model_states: ModelStates, reload: Reload, open_provider: OpenProvider, clock: Clock) -> None:
        self._model_states = model_states
        self._reload = reload
        self._path = reload.path
        self._open_provider = open_provider
        self._clock = clock
        self._key_origins = KeyOrigins(self._path.parent)
        with suppress(SettingsError, ValueError):
            self._key_origins.note(read_file(self._path).text)

    async def GetRouteFile(self, request: pb.GetRouteFileRequest, context: Context) -> pb.GetRouteFileResponse:
        try:
            found = await asyncio.to_thread(read_file, self._path)
        except SettingsError as error:
            return pb.GetRouteFileResponse(obstacle=str(error))
        secrets = find_secrets(found.text)
        return pb.GetRouteFileResponse(
            text="" if secrets else found.text,
            digest=found.digest,
            secrets=_told(secrets),
            obstacle=find_obstacle(self._path),
            models=await asyncio.to_thread(self._models_in, found.text),
        )

    async def PreviewRouteFile(
        self, request: pb.PreviewRouteFileRequest, context: Context
    ) -> pb.PreviewRouteFileResponse:
        text = request.text
        try:
            found = await asyncio.to_thread(read_file, self._path)
        except SettingsError as error:
            return pb.PreviewRouteFileResponse(text=text, obstacle=str(error))
        response = pb.PreviewRouteFileResponse(file_digest=found.digest, obstacle=find_obstacle(self._path))
        if request.HasField("canary"):
            canary = request.canary
            try:
                text = set_canary(text, canary.class_id, canary.model, canary.percent)
            except CanaryNotPlaced as error:
                response.mistakes.extend(_told([error.mistake]))
        response.text = text
        routes, mistakes = await asyncio.to_thread(self._read, text, found)
        response.mistakes.extend(_told(mistakes))
        if not find_secrets(found.text):
            response.diff.extend(_difference(found.text, text))
        if routes is not None and not response.mistakes:
            response.version = routes.version
            response.models.extend(sorted(routes.models))
            response.changes.extend(find_route_changes(self._model_states.routes, routes))
        return response

    async def TryModel(self, request: pb.TryModelRequest, context: Context) -> pb.TryModelResponse:
        try:
            found = await asyncio.to_thread(read_file, self._path)
            routes, mistakes = await asyncio.to_thread(self._read, request.text, found)
        except SettingsError as error:
            return pb.TryModelResponse(mistakes=_told([Mistake(0, "", str(error))]))
        if routes is None or mistakes:
            return pb.TryModelResponse(mistakes=_told(mistakes))
        if request.model not in routes.models:
            return pb.TryModelResponse(mistakes=_told([Mistake(0, "", f'no model named "{request.model}"')]))
        trial = await try_model(routes, request.model, self._open_provider, self._clock)
        target = routes.models[request.model]
        return to_message(pb.TryModelResponse, target, trial, mistakes=[], http_status=trial.http_status or 0)

    async def WriteRouteFile(self, request: pb.WriteRouteFileRequest, context: Context) -> pb.WriteRouteFileResponse:
        text = request.text
        try:
            found = await asyncio.to_thread(read_file, self._path)
            routes, mistakes = await asyncio.to_thread(self._read, text, found)
            if routes is None or mistakes:
                return pb.WriteRouteFileResponse(outcome=pb.WRITE_OUTCOME_MISTAKEN, mistakes=_told(mistakes))
            await asyncio.to_thread(replace_file, self._path, text, request.base_digest)
        except FileChanged:
            return pb.WriteRouteFileResponse(outcome=pb.WRITE_OUTCOME_CONFLICT)
        except (FileNotWritable, SettingsError) as error:
            return pb.WriteRouteFileResponse(outcome=pb.WRITE_OUTCOME_NOT_WRITABLE, obstacle=str(error))
        return pb.WriteRouteFileResponse(
            outcome=pb.WRITE_OUTCOME_WRITTEN, digest=digest_of(text), version=routes.version
        )

    def _read(self, text: str, found: ReadFile) -> tuple[Routes | None, list[Mistake]]:
        """Returns the routes of a text, and its mistakes, among them what may be done only where the file is."""
        lines = KeyLines(text)
        try:
            routes = self._reload.read(text)
        except RoutesMistaken as error:
            return None, lines.place(error.mistakes)
        mistakes = find_secrets(text)
        try:
            self._key_origins.note(found.text)
        except ValueError:
            mistakes.append(Mistake(0, "", "the file on disk is not TOML: change it where it is"))
        return routes, mistakes + self._key_origins.find_moved_keys(text)

    def _models_in(self, text: str) -> list[str]:
        try:
            return sorted(self._reload.read(text).models)
        except RoutesMistaken:
            return []


def _difference(before: str, after: str) -> list[str]:
    names = "on disk", "edited"
    return list(unified_diff(before.splitlines(), after.splitlines(), *names, lineterm=""))


def _told(mistakes: list[Mistake]) -> list[pb.RouteMistake]:
    return [to_message(pb.RouteMistake, mistake) for mistake in mistakes]
