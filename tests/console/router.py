"""The router for the console's tests: its servicers on a routes file, with providers that are never asked."""

from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from legato_protos.router.v1.router_pb2 import Finished
from legato_protos.type.v1.usage_pb2 import Usage
from services.chassis.telemetry.log import Log
from services.router.answers.answer_end import AnswerEnd
from services.router.calls.fallback import Targets
from services.router.chat.completion import Completions
from services.router.chat.servicer import RouterServicer
from services.router.grounding.servicers.content import ContentServicer
from services.router.grounding.servicers.library import GroundingAdminServicer
from services.router.models.call_result import BASELINE, CallEnd, CallObserver, CallPlan, CallResult
from services.router.models.circuit_breaker import FAILURES_IN_A_ROW
from services.router.models.recent_speed import LEAST_ANSWERS
from services.router.models.states import ModelState, ModelStates
from services.router.prompts.calibration import CountedPrompt
from services.router.providers import open_provider
from services.router.routes.reload import Reload
from services.router.routes.routes import load_routes
from services.router.routes.target import DEFAULT_TIMEOUTS
from services.router.settings import MOST_ATTEMPTS
from services.router.trials.canary import ROLE, Canaries
from services.router.trials.outcomes import OutcomesByClass
from services.router.trials.servicer import RouteAdminServicer
from services.rules.model_classes import CLASSES
from tests.console.grounding import Grounding
from tests.support.fakes import FakeClock

PROVIDER: Final = """
[providers.{name}]
kind = "openai"
base_url = "http://127.0.0.1:9/v1"
zero_retention = true
"""
MODEL: Final = """
[models.{model}]
provider = "{provider}"
name = "{model}"
context_tokens = 128000
max_output_tokens = 16384
{limit}
"""
# Of each class one tier, with weights.
MODELS: Final = {
    "mezzo": {"maple-small": 1}, "forte": {"maple-large": 70, "cedar-2": 30}, "fortissimo": {"cedar-2-max": 1}
}  # fmt: skip
LIMITS: Final = {"maple-small": 64, "maple-large": 48}
RUNNING: Final = {"maple-small": 12, "maple-large": 41, "cedar-2-max": 3}
FAILING: Final = "cedar-2"
# Calls of the last five minutes, and how many of them failed.
RECENT: Final = {"maple-small": (1_173, 3), "maple-large": (4_716, 19), "cedar-2": (30, 18), "cedar-2-max": (40, 12)}

# A class with new models beside its own, and what calls to them came to: how many, and how many of them failed.
EVALUATED: Final = "forte"
NEW_MODELS: Final = """canary = { model = "cedar-2-max", percent = 5 }
"""
OUTCOMES: Final = (
    (BASELINE, "maple-large", 2_000, 10),
    (BASELINE, "cedar-2", 900, 5),
    (ROLE, "cedar-2-max", 120, 30),
)


def count_outcomes(states: ModelStates, observers: Sequence[CallObserver]) -> None:
    targets = {target.model_name: target for target in states.by_class[EVALUATED].route.targets}
    finished = Finished(finish_reason="stop", usage=Usage(prompt_tokens=900, completion_tokens=120))
    for role, name, calls, failures in OUTCOMES:
        plan = CallPlan(EVALUATED, targets[name], role, CountedPrompt(900, False, "acct_1"), 120, 120)
        for number in range(calls):
            if number < failures:
                result = CallResult(CallEnd.CUT, 2.0, 0.8)
            else:
                result = CallResult(CallEnd.ANSWERED, 2.0, 0.8, AnswerEnd(finished))
            for observer in observers:
                observer.on_result(plan, result)


def count_recent(state: ModelState) -> None:
    calls, failures = RECENT.get(state.target.model_name, (0, 0))
    plan = CallPlan(EVALUATED, state.target, BASELINE, CountedPrompt(900, False, "acct_1"), 120, 120)
    for number in range(calls):
        end = CallEnd.FAILED if number < failures else CallEnd.LEFT
        state.recent_health.on_result(plan, CallResult(end, 2.0))


def count_answers(states: ModelStates, clock: FakeClock) -> None:
    for class_id in CLASSES:
        for state in states.by_class[class_id].all:
            for _ in range(LEAST_ANSWERS):
                attempt = state.breaker.start_attempt()
                clock.advance(0.8)
                attempt.begun()
                clock.advance(0.0 if class_id == EVALUATED else 2.0)
                attempt.finished(900, 120)


class Router:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # Pages may write it: it is written anew for each test that changes it or sees it.
        self.file = folder / "routes.toml"
        self.grounding = Grounding(folder)
        self._open_one = partial(open_provider, local_model_socket=folder / "no-model.sock")
        self._opened: list[ModelStates] = []
        self._states: ModelStates | None = None
        self._is_busy = False
        self._is_usual = False
        self._evaluates = False
        self._is_measured = False

    def reset(self) -> None:
        """Leaves three classes of models that were never asked, and nothing that grounds chats."""
        self.grounding.reset()
        if not self._is_usual:
            self._is_busy = self._evaluates = self._is_measured = False
            self.bundle()
            self._is_usual = True

    def bundle(self, *class_ids: str) -> None:
        """Has the bundled model answer these classes from the first call of a test on."""
        self.write(class_ids)
        self._routes, self._states = load_routes(self.file), None

    def write(self, bundled: Collection[str] = (), *, limits: dict[str, int] = LIMITS) -> None:
        """Writes the file, which the router reads at a reload."""
        self._is_usual = False
        parts = [PROVIDER.format(name=name) for name in ("maple", "cedar")]
        parts.append('[providers.bundled]\nkind = "local"\n')
        for model in ("tiny", *(model for models in MODELS.values() for model in models)):
            provider = "bundled" if model == "tiny" else model.partition("-")[0]
            limit = f"concurrency = {limits[model]}" if model in limits else ""
            parts.append(MODEL.format(model=model, provider=provider, limit=limit))
        for name in CLASSES:
            weights = {"tiny": 1} if name in bundled else MODELS[name]
            tier = ", ".join(f"{model} = {weight}" for model, weight in weights.items())
            new = NEW_MODELS if self._evaluates and name == EVALUATED else ""
            parts.append(f"[classes.{name}]\ntiers = [{{ {tier} }}]\n{new}")
        self.file.write_text("".join(parts))

    def evaluate(self) -> None:
        """Has a class with a canary that was rolled back, from the first call of a test on."""
        self._evaluates = True
        self.bundle()
        self.be_busy()

    def write_mistakes(self) -> None:
        self._is_usual = False
        self.file.write_text('[classes.mezzo]\nmodels = ["unknown"]\n')

    def be_busy(self) -> None:
        """Has chats running, and one model failing, at the first call of a test."""
        self._is_usual, self._is_busy, self._states = False, True, None

    def be_measured(self) -> None:
        """Has each model answered some chats at the first call of a test: those of one class come whole."""
        self._is_usual, self._is_measured, self._states = False, True, None

    def servicers(self, log: Log) -> list[object]:
        states = self._states
        if states is None:
            states = self._states = self._open(log)
        opened = self.grounding.open(log)
        completions = Completions(states, Targets(states, log, MOST_ATTEMPTS), FakeClock(), log, opened.grounding)
        reload = Reload(self.file, DEFAULT_TIMEOUTS, states, log)
        return [
            RouterServicer(completions, log),
            RouteAdminServicer(states, reload, self._outcomes, self._canaries),
            GroundingAdminServicer(opened, completions.preview, log),
            ContentServicer(opened, log),
        ]

    def _open(self, log: Log) -> ModelStates:
        # Circuit breakers that are open stay so, however long a test takes.
        clock = FakeClock()
        self._outcomes, self._canaries = observers = OutcomesByClass(), Canaries(log)
        states = ModelStates(self._routes, self._open_one, clock, log, observers=observers)
        self._opened.append(states)
        if self._is_busy:
            for state in (each for class_id in CLASSES for each in states.by_class[class_id].all):
                for number in range(RUNNING.get(state.target.model_name, 0)):
                    state.saturation.gate.acquire(f"key_{number}")
                count_recent(state)
                if state.target.model_name == FAILING:
                    for _ in range(FAILURES_IN_A_ROW):
                        state.breaker.failed(state.breaker.start_attempt())
        if self._evaluates:
            count_outcomes(states, observers)
        if self._is_measured:
            count_answers(states, clock)
        return states

    async def close(self) -> None:
        for states in self._opened:
            await states.aclose()
        await self.grounding.close()
