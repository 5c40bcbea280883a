"""What refusals of a server tell of its places, and who gets those then, on a clock that the tests move."""

import math
import random
from dataclasses import dataclass

import pytest

from services.chassis.errors import LegatoError
from services.router.models.learned_limit import LEAST_CHATS, LEAST_REFUSALS, LIFETIME_S, ROUND_S, LearnedLimit
from services.router.models.saturation import ModelSaturation, ModelUse
from tests.support.fakes import FakeClock

STEP_S = 0.02
CHAT_S = 0.5
PLACES = 8


@dataclass
class Client:
    """Chats again and again, each time a pause after it was answered or refused."""

    key_id: str
    pause_s: float
    served: int = 0
    refused: int = 0
    asks_at_s: float = 0.0
    ends_at_s: float = math.inf
    model_use: ModelUse | None = None


class Server:
    """A model's server that runs so many chats, and refuses those of some keys for reasons of its own."""

    def __init__(self, clock: FakeClock, places: int = PLACES) -> None:
        self.clock = clock
        self.places = places
        self.refused_keys: set[str] = set()
        self.refusals = 0
        self.saturation = ModelSaturation(clock)
        self._dice = random.Random(1)

    def serve(self, clients: list[Client], seconds: float) -> None:
        for _ in range(round(seconds / STEP_S)):
            self.clock.advance(STEP_S)
            now_s = self.clock.elapsed_s()
            for client in clients:
                if client.ends_at_s <= now_s and client.model_use is not None:
                    client.model_use.release()
                    client.model_use = None
                    client.served += 1
                    self._pause(client)
            for client in self._dice.sample(clients, len(clients)):
                if client.model_use is None and client.asks_at_s <= now_s:
                    self._ask(client, running=sum(each.model_use is not None for each in clients))

    def _ask(self, client: Client, running: int) -> None:
        try:
            model_use = self.saturation.enter(client.key_id)
            if running >= self.places or client.key_id in self.refused_keys:
                model_use.release()
                self.refusals += 1
                raise self.saturation.turned_away(None, model_use, client.key_id)
        except LegatoError:
            client.refused += 1
            self._pause(client)
            return
        model_use.begun()
        client.model_use, client.ends_at_s = model_use, self.clock.elapsed_s() + CHAT_S * (0.5 + self._dice.random())

    def _pause(self, client: Client) -> None:
        client.asks_at_s = self.clock.elapsed_s() + client.pause_s * self._dice.random()


@pytest.fixture
def server(clock: FakeClock) -> Server:
    return Server(clock)


@pytest.fixture
def limit(clock: FakeClock) -> LearnedLimit:
    return LearnedLimit(clock)


def refuse(limit: LearnedLimit, beside: int, times: int = LEAST_REFUSALS) -> None:
    for _ in range(times):
        limit.refused(beside, own=beside, keys=1)


def test_key_that_asks_rarely_is_served_beside_one_that_asks_for_more_than_there_is(server: Server) -> None:
    greedy, quiet = [Client("greedy", 0.2) for _ in range(40)], Client("quiet", 1.0)
    server.serve([*greedy, quiet], 120)
    assert quiet.served > 50
    assert quiet.refused < 0.05 * quiet.served
    # Most of what the server can do is done.
    assert sum(client.served for client in greedy) > 0.6 * PLACES * 120 / CHAT_S


def test_server_whose_places_are_known_is_not_sent_what_it_would_refuse(server: Server) -> None:
    greedy = [Client("greedy", 0.2) for _ in range(40)]
    server.serve(greedy, 10)
    before = server.refusals
    server.serve(greedy, 60)
    assert server.refusals - before < 0.05 * sum(client.refused for client in greedy)
    assert sum(client.served for client in greedy) > 0.9 * PLACES * 60 / CHAT_S


def test_refusals_of_one_key_alone_take_no_place_from_others(server: Server) -> None:
    server.places = 100
    server.refused_keys = {"refused"}
    others = [Client(f"key {number}", 0.1) for number in range(30)]
    server.serve([*others, *(Client("refused", 0.3) for _ in range(5))], 60)
    assert sum(client.refused for client in others) < 0.01 * sum(client.served for client in others)


def test_server_that_takes_chats_again_soon_has_as_many_as_before(server: Server) -> None:
    server.places = 0
    clients = [Client(f"key {number}", 0.2) for number in range(30)]
    server.serve(clients, 20)
    server.places = 100
    server.serve(clients, LIFETIME_S)
    before = sum(client.refused for client in clients)
    server.serve(clients, 10)
    assert sum(client.refused for client in clients) == before


def test_refusals_while_next_to_nothing_runs_tell_nothing_of_places(limit: LearnedLimit) -> None:
    refuse(limit, LEAST_CHATS - 1, 100)
    assert limit.places == math.inf


def test_one_refusal_tells_nothing_of_places(limit: LearnedLimit) -> None:
    refuse(limit, 50, LEAST_REFUSALS - 1)
    assert limit.places == math.inf
    refuse(limit, 50, 1)
    assert limit.places == 50


def test_of_a_burst_the_refusal_beside_the_fewest_counts(limit: LearnedLimit) -> None:
    for beside in (63, 8, 20):
        refuse(limit, beside, 1)
    assert limit.places == 8


def test_refusals_of_a_key_that_has_less_than_its_share_tell_nothing_of_places(limit: LearnedLimit) -> None:
    for _ in range(LEAST_REFUSALS):
        limit.refused(20, own=2, keys=2)
    assert limit.places == math.inf


def test_refusal_beside_as_many_as_were_accepted_just_now_has_another_reason(
    clock: FakeClock, limit: LearnedLimit
) -> None:
    refuse(limit, 10)
    clock.advance(ROUND_S)
    limit.accepted(30)
    refuse(limit, 20)
    clock.advance(LIFETIME_S - ROUND_S)
    assert limit.places == math.inf


def test_limit_grows_while_it_is_used_up_and_nothing_is_refused(clock: FakeClock, limit: LearnedLimit) -> None:
    refuse(limit, 40)
    limit.accepted(39)
    assert limit.places == 40
    clock.advance(ROUND_S)
    limit.accepted(20)
    assert limit.places == 40
    for beside in (39, 40, 41):
        limit.accepted(beside)
    assert limit.places == 43
    clock.advance(ROUND_S)
    refuse(limit, 41, 1)
    assert limit.places == 41


def test_limit_that_nothing_confirms_is_forgotten_with_the_refusals_before(
    clock: FakeClock, limit: LearnedLimit
) -> None:
    refuse(limit, 40)
    clock.advance(LIFETIME_S)
    assert limit.places == math.inf
    refuse(limit, 40, 1)
    assert limit.places == math.inf
