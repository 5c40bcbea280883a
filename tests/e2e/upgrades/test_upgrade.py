"""Data of earlier releases, with rows of every kind and a chat that was cut off, under the service of today."""

from collections.abc import Iterator

import openai
import pytest

from tests.e2e.upgrades.release_data import (
    GROUNDING,
    RELEASES,
    SECRETS,
    load_postgresql,
    load_sqlite,
    read_facts,
    write_journal,
)
from tests.support.service import Service, UpstreamThread

CHATS = 3
# What `make test` runs; tests/cli/commands/service/test_restore.py migrates backups of each release on both stores.
SHORT_FORM = {("release_0_1_0", "sqlite"), ("release_0_2_0", "postgresql")}


@pytest.fixture
def upgraded(request: pytest.FixtureRequest, release: str, database_kind: str) -> Iterator[Service]:
    """The service of today on the data of a release."""
    environ = SECRETS | GROUNDING
    if database_kind == "postgresql":
        environ["LEGATO_DATABASE_URL"] = request.getfixturevalue("postgres_url")
        load_postgresql(release, environ["LEGATO_DATABASE_URL"])
    with UpstreamThread() as upstream:
        service = Service(upstream, environ)
        if database_kind == "sqlite":
            load_sqlite(release, service.data)
        write_journal(release, service.data, database_kind)
        with service:
            yield service


def ask(service: Service, key: str) -> None:
    client = openai.OpenAI(base_url=service.base_url, api_key=key, max_retries=0)
    client.chat.completions.create(model="mezzo", messages=[{"role": "user", "content": "Say something."}])


@pytest.mark.parametrize(
    ("release", "database_kind"),
    [
        pytest.param(release, kind, marks=[pytest.mark.long] * ((release, kind) not in SHORT_FORM))
        for release in RELEASES
        for kind in ("sqlite", "postgresql")
    ],
)
def test_data_of_a_release_is_migrated_and_used(upgraded: Service, release: str, database_kind: str) -> None:
    facts = read_facts(release, database_kind)
    account_id = facts["account_id"]

    # The chat that was cut off is charged from the journal of the old edge.
    assert upgraded.settled_balance_nanos(account_id) > 0
    holds = upgraded.holds(account_id)
    assert [hold.charged_nanos > 0 for hold in holds] == [True] * (CHATS + 1)
    assert sum(entry.requests for entry in upgraded.entries(account_id)) == CHATS + 1

    ask(upgraded, facts["key"])
    for key, error in (
        (facts["revoked_key"], openai.AuthenticationError),
        (facts["suspended_key"], openai.PermissionDeniedError),
    ):
        with pytest.raises(error):
            ask(upgraded, key)

    assert upgraded.legato("accounts", "show", account_id)["requests_per_minute"] == 600
    [note] = upgraded.legato("memory", "list", account_id)
    assert note["text"] == "Ada counts in French."
    [document] = upgraded.legato("attachments", "list", account_id)
    assert document["name"] == "plan.txt"
    upgraded.legato("limits", "set", account_id, "--key", facts["key_id"], "--total", "1.00")
    ask(upgraded, facts["key"])
    upgraded.settled_balance_nanos(account_id)
    # Requests of the release, and the one that was cut off, have no version of the routes; those of today have it. Its
    # hold has expired since the release wrote it, so the sweeper may come before the journal.
    [version] = {target["routes_version"] for target in upgraded.legato("routes", "show")}
    versions = [hold.routes_version for hold in upgraded.holds(account_id) if hold.state in ("settled", "swept")]
    assert versions == [None] * (CHATS + 1) + [version] * 2
    receipt = upgraded.legato("requests", "show", account_id, upgraded.holds(account_id)[-1].request_id)
    assert receipt["routes_version"] == version
    assert upgraded.audit() == []
