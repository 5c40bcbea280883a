"""Refuses holds of accounts with spend limits by metering that does not count for them.

Releases up to 0.1.0, of which replicas may still run beside newer ones, leave the counters as they are. They do not say
`legato.writer`, as later ones do at the start of each write. SQLite has one process, which does not start any more.
"""

from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    if op.get_context().dialect.name == "sqlite":
        return
    op.execute(
        "CREATE FUNCTION refuse_older_writer() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS"
        " $$ BEGIN IF EXISTS (SELECT 1 FROM accounts WHERE account_id = NEW.account_id AND has_spend_limits) THEN"
        " RAISE EXCEPTION 'this metering is older than the spend limits of account %: replace it by the newer release',"
        " NEW.account_id; END IF; RETURN NEW; END $$"
    )
    op.execute(
        "CREATE TRIGGER holds_refuse_older_writer BEFORE INSERT OR UPDATE ON holds FOR EACH ROW"
        " WHEN (coalesce(current_setting('legato.writer', true), '') = '') EXECUTE FUNCTION refuse_older_writer()"
    )
