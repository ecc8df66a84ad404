"""Database: an open storage with our tables in it; what goes wrong is told without a password.

    reparto_search_schema       version                              one row
    reparto_search              id, began, request, facts, used_s, bill
    reparto_search_evaluation   search, number, technique, status, score, evaluation

Nouns are kept as JSON; the columns beside them are for people who look with SQL. SQLite writes
ahead (WAL), so a process that is killed loses nothing that was committed, and others may read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from reparto.errors import MissingExtraError, UsageError
from reparto.search._storage import Storage

try:
    import sqlalchemy as sql
    from sqlalchemy.exc import DBAPIError, SQLAlchemyError
except ImportError as error:
    raise MissingExtraError("sqlalchemy", "search") from error

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection, Engine

#: Of the tables. A database with a higher one was written by a newer reparto.
VERSION = 1
#: For so long others may hold the database when it is opened, and when it is written to.
_OPEN_MS, _WRITE_MS = 5_000, 1_000
#: Any number, so that two searches that come at once do not both make the tables.
_MAKING = 7_316_584_021

_tables = sql.MetaData()
SCHEMA = sql.Table("reparto_search_schema", _tables, sql.Column("version", sql.Integer))
SEARCH = sql.Table(
    "reparto_search",
    _tables,
    sql.Column("id", sql.String(32), primary_key=True),
    sql.Column("began", sql.Float, nullable=False),
    sql.Column("request", sql.Text, nullable=False),
    sql.Column("facts", sql.Text, nullable=False),
    sql.Column("used_s", sql.Float, nullable=False),
    sql.Column("bill", sql.Text, nullable=False),
)
EVALUATION = sql.Table(
    "reparto_search_evaluation",
    _tables,
    sql.Column("search", sql.String(32), primary_key=True),
    sql.Column("number", sql.Integer, primary_key=True, autoincrement=False),
    sql.Column("technique", sql.Text, nullable=False),
    sql.Column("status", sql.Text, nullable=False),
    sql.Column("score", sql.Float),
    sql.Column("evaluation", sql.Text, nullable=False),
)


class Database:
    """An open storage. One thread uses it.

    Args:
        storage: Where it is.

    Raises:
        MissingExtraError: If its driver is not installed.
        UsageError: If it cannot be reached, is locked, is not ours or is that of a newer reparto.
    """

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._engine = _engine(storage)
        try:
            with self.writing() as connection:
                _make(connection, storage)
        except BaseException:
            self.close()
            raise

    @contextlib.contextmanager
    def writing(self) -> Iterator[Connection]:
        """All of it is written, or nothing.

        Raises:
            UsageError: If the database does not do so.
        """
        try:
            with self._engine.begin() as connection:
                yield connection
        except SQLAlchemyError as error:
            raise _told(error, self.storage) from None  # the cause may show the password

    def close(self) -> None:
        """Let go of it."""
        self._engine.dispose()


def _engine(storage: Storage) -> Engine:
    try:
        if storage.path is not None:
            storage.path.parent.mkdir(parents=True, exist_ok=True)
            engine = sql.create_engine(storage.url, pool_size=1, max_overflow=0)
            sql.event.listen(engine, "connect", _settle_file)
            sql.event.listen(engine, "begin", _begin_file)
            return engine
        engine = sql.create_engine(
            storage.url,
            pool_size=1,
            max_overflow=0,
            pool_pre_ping=True,  # a server that was started again is connected to again
            connect_args={"connect_timeout": 5, "application_name": "reparto search"},
        )
        sql.event.listen(engine, "connect", _settle_server)
        return engine
    except OSError as error:
        raise UsageError(
            f"--storage {storage.shown}: {error.strerror}", remedy="name a file in another folder"
        ) from error
    except ModuleNotFoundError as error:
        raise MissingExtraError("psycopg", "postgres") from error
    except ImportError as error:  # psycopg without libpq
        if storage.kind == "postgresql":
            raise MissingExtraError("psycopg[binary]", "postgres") from error
        raise
    except (SQLAlchemyError, ValueError, TypeError) as error:
        raise UsageError(
            f"--storage {storage.shown}: {storage.hide(_line(error))}",
            remedy="write postgresql://USER:PASSWORD@HOST:PORT/DATABASE; "
            "%40 for an @, %2F for a / in a password",
        ) from None


def _settle_file(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # we say ourselves when a transaction begins
    connection.execute(f"PRAGMA busy_timeout = {_OPEN_MS}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")


def _begin_file(connection: Any) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _settle_server(connection: Any, _record: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"SET lock_timeout = {_OPEN_MS}")
        cursor.execute("SET statement_timeout = 30000")
        cursor.execute("SET client_encoding = 'UTF8'")
    connection.commit()


def _make(connection: Connection, storage: Storage) -> None:
    """Make the tables where there are none; refuse those of others.

    Raises:
        UsageError: If it is not ours, or newer.
    """
    if storage.kind == "postgresql":
        connection.execute(sql.select(sql.func.pg_advisory_xact_lock(_MAKING)))
    there = set(sql.inspect(connection).get_table_names())
    if not there & set(_tables.tables):
        if there and storage.kind == "sqlite":
            raise UsageError(
                f"--storage {storage.shown}: a database of something else, with the table "
                f"{min(there)}",
                remedy="name another file, or one that is not there yet",
            )
        _tables.create_all(connection)
        connection.execute(SCHEMA.insert().values(version=VERSION))
    else:
        _check(connection, storage, there)
    if storage.kind == "sqlite":
        connection.exec_driver_sql(f"PRAGMA busy_timeout = {_WRITE_MS}")


def _check(connection: Connection, storage: Storage, there: set[str]) -> None:
    found = list(connection.execute(SCHEMA.select()).scalars()) if SCHEMA.name in there else []
    if found and found[0] > VERSION:
        raise UsageError(
            f"--storage {storage.shown}: written by a newer reparto (tables of version "
            f"{found[0]}; this one knows {VERSION})",
            remedy="install that version, or name another storage",
        )
    if found != [VERSION] or not set(_tables.tables) <= there:
        raise UsageError(
            f"--storage {storage.shown}: its tables reparto_search… are not those of a search",
            remedy="name another storage, or take these tables away",
        )


def _told(error: SQLAlchemyError, storage: Storage) -> UsageError:
    """What went wrong, for people."""
    line = storage.hide(_line(error))
    remedy = "see that it can be reached and written to, or name another storage"
    if "is locked" in line or "lock timeout" in line:
        line = f"held by another process ({line})"
        remedy = "end that process, or name another storage"
    elif "not a database" in line or "malformed" in line:
        remedy = "name another file, or one that is not there yet"
    elif storage.kind == "postgresql" and "connection" in line:
        remedy = (
            "check host, port, user, database and password; a password may also be in "
            "PGPASSWORD or ~/.pgpass"
        )
    return UsageError(f"--storage {storage.shown}: {line}", remedy=remedy)


def _line(error: Exception) -> str:
    """The driver's own words, in a line."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    words = " ".join(str(cause).split("Multiple connection attempts failed")[0].split())
    return words if len(words) <= 300 else words[:300] + "…"
