"""Auth's database: `add` and `get` store and find a record by its table, which is declared here."""

from sqlalchemy import Connection as Connection

from services.auth.store import key_tables as key_tables
from services.auth.store import notice_tables as notice_tables
from services.auth.store import user_tables as user_tables
from services.chassis.database.records import add as add
from services.chassis.database.records import get as get
