"""Refuses holds of accounts that owe credit, too, by metering that would not take it from what is released."""

from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    if op.get_context().dialect.name == "sqlite":
        return
    op.execute(
        "CREATE OR REPLACE FUNCTION refuse_older_writer() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT"
        " AS $$ BEGIN IF EXISTS (SELECT 1 FROM accounts WHERE account_id = NEW.account_id"
        " AND (has_spend_limits OR owed_nanos > 0)) THEN RAISE EXCEPTION"
        " 'this metering is older than the spend limits or owed credit of account %: replace it by the newer release',"
        " NEW.account_id; END IF; RETURN NEW; END $$"
    )
