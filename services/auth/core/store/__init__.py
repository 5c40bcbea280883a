"""Auth's database: `add` and `get` store and find a record by its table, which the slice of the record declares."""

from sqlalchemy import Connection as Connection

from services.chassis.database.records import add as add
from services.chassis.database.records import get as get
