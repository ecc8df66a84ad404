"""What ``--storage`` means, and that no password is shown."""

from pathlib import Path

import pytest

from reparto.errors import UsageError
from reparto.search._storage import storage_of, without_password

HERE = Path("/somewhere")


@pytest.mark.parametrize(
    "text, shown",
    [
        ("postgresql://host/db", "postgresql://host/db"),
        ("postgresql://me@host:5433/db", "postgresql://me@host:5433/db"),
        ("postgresql://me:sesame@host/db", "postgresql://me@host/db"),
        ("postgresql://me:ses/ame@host/db", "postgresql://me@host/db"),
        ("postgresql://me:ses?ame@host/db?a=b", "postgresql://me@host/db?a=b"),
        ("postgresql://me:ses@me@host/db", "postgresql://me@host/db"),
        ("postgresql://me@host/db?password=sesame&sslmode=require&a=/b", "postgresql://me@host/db?sslmode=require&a=/b"),
        ("me:sesame@host/db", "me@host/db"),
        ("sqlite:////var/x.db", "sqlite:////var/x.db"),
        ("", ""),
    ],
)  # fmt: skip
def test_what_is_shown_has_no_password(text, shown):
    assert without_password(text) == shown


def test_every_spelling_of_a_password_is_hidden():
    storage = storage_of("postgresql://me:s%40me/x@host/db", HERE)
    assert storage.hide("s%40me/x s@me/x s%40me%2Fx") == "*** *** ***"
    assert storage_of("postgresql://me@host/db?password=abc", HERE).hide("abc") == "***"


def test_paths_of_files_are_made_absolute(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert storage_of("sqlite:///a/b.db", HERE).shown == f"sqlite:///{tmp_path}/a/b.db"
    assert storage_of("sqlite:////a/b.db", HERE).path == Path("/a/b.db")
    assert storage_of("", HERE).path == HERE / "search.db"


@pytest.mark.parametrize(
    "text, told",
    [
        ("kept.db", "not a URL"),
        ("mysql://me:sesame@host/db", "SQLite or PostgreSQL"),
        ("postgresql+asyncpg://me:sesame@host/db", "only the driver psycopg"),
        ("sqlite://", "no file is named"),
        ("sqlite:///:memory:", "no file is named"),
        ("sqlite:///a.db?mode=ro", "options are not taken"),
        ("postgresql://me:ses@me@host/db", "more than one @"),
    ],
)
def test_what_cannot_be_used_is_told_without_the_password(text, told):
    with pytest.raises(UsageError, match=told) as caught:
        storage_of(text, HERE)
    assert "ses" not in str(caught.value)
    assert caught.value.remedy
