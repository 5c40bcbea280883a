import sqlalchemy as sa

from services.chassis.database.engine import make_engine
from services.chassis.database.insert import insert_into

notes = sa.Table("notes", sa.MetaData(), sa.Column("name", sa.Text, primary_key=True), sa.Column("text", sa.Text))


def test_row_that_is_there_already_stays_or_is_changed_as_is_said(database_url: str) -> None:
    engine = make_engine(database_url, "public")
    with engine.begin() as connection:
        notes.create(connection)
        first = insert_into(connection, notes).values(name="a", text="first")
        second = insert_into(connection, notes).values(name="a", text="second")
        connection.execute(first)
        connection.execute(second.on_conflict_do_nothing())
        assert connection.execute(sa.select(notes)).all() == [("a", "first")]
        connection.execute(second.on_conflict_do_update(index_elements=["name"], set_={"text": "second"}))
        assert connection.execute(sa.select(notes)).all() == [("a", "second")]
    engine.dispose()
