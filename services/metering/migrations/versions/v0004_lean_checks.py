"""Makes checks and indexes cheaper per row in SQLite.

SQLite builds a temporary table for the values of an IN in each checked row, which took as long as writing it. Tables
with a primary key of their own also had a rowid. And one index of live holds now serves to count those of a key and to
find those past their deadline: there are never more than running requests. PostgreSQL has none of these costs, and
keeps its two indexes: dead entries matter least by deadline.
"""

from alembic import op

revision = "0004"
down_revision = "0003"

STATE_IS_KNOWN = (
    "state IN ('held', 'settled', 'void', 'swept')",
    "state = 'held' OR state = 'settled' OR state = 'void' OR state = 'swept'",
)
KIND_IS_KNOWN = (
    "kind IN ('grant', 'adjustment', 'charge', 'late_charge', 'loss')",
    "kind = 'charge' OR kind = 'late_charge' OR kind = 'loss' OR kind = 'grant' OR kind = 'adjustment'",
)
CHARGE_IS_WHOLE = ("kind NOT IN ('charge', 'late_charge') OR", "(kind <> 'charge' AND kind <> 'late_charge') OR")


def upgrade() -> None:
    if op.get_context().dialect.name != "sqlite":
        return
    op.drop_index("live_holds_by_deadline", "holds")
    op.drop_index("live_holds_by_key", "holds")
    _make_anew("accounts", options="WITHOUT ROWID")
    _make_anew("usage_hours", options="WITHOUT ROWID")
    _make_anew("holds", STATE_IS_KNOWN, options="WITHOUT ROWID")
    op.execute("CREATE INDEX live_holds ON holds (key_id, account_id, deadline_at_us) WHERE state = 'held'")
    _make_anew("ledger", KIND_IS_KNOWN, CHARGE_IS_WHOLE)


def _make_anew(table: str, *changes: tuple[str, str], options: str = "") -> None:
    """Recreates a table with the same rows, indexes and triggers: SQLite cannot change a check."""
    connection = op.get_bind()
    made_by = connection.exec_driver_sql("SELECT sql FROM sqlite_master WHERE name = ?", (table,)).scalar_one()
    of_it = "SELECT sql FROM sqlite_master WHERE tbl_name = ? AND type <> 'table' AND sql IS NOT NULL"
    belongings = connection.exec_driver_sql(of_it, (table,)).scalars().all()
    for before, after in changes:
        if before not in made_by:
            raise ValueError(f"{table} has no check {before!r}")
        made_by = made_by.replace(before, after)
    for statement in (
        f"ALTER TABLE {table} RENAME TO {table}_before",
        f"{made_by} {options}",
        f"INSERT INTO {table} SELECT * FROM {table}_before",  # noqa: S608 - both are ours
        f"DROP TABLE {table}_before",
        *belongings,
    ):
        connection.exec_driver_sql(statement)
