"""Storage: where a search keeps its candidates, as ``--storage`` says; shows no password."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qsl, quote, unquote, urlencode

from reparto.errors import UsageError

#: In the folder of a search, where no storage is named.
FILE = "search.db"
_FORMS = "give sqlite:///PATH or postgresql://USER@HOST/DATABASE, or nothing for a file"
_URL = re.compile(r"(?P<scheme>[\w+]+)://(?P<rest>.*)", re.DOTALL)
#: As SQLAlchemy reads it: the password goes on to the first @.
_LOGIN = re.compile(r"(?P<user>[^:/@?]*)(?::(?P<password>[^@]*))?@(?P<place>.*)", re.DOTALL)
_SECRET_OPTIONS = ("password", "sslpassword")


@dataclass(frozen=True)
class Storage:
    """A database that can be opened.

    Attributes:
        kind: Which one.
        url: As SQLAlchemy takes it, with the password.
        shown: Without the password: for messages, and to be kept.
        path: Of the file, where it is one.
        secrets: What no message may show.
    """

    kind: Literal["sqlite", "postgresql"]
    url: str
    shown: str
    path: Path | None = None
    secrets: tuple[str, ...] = ()

    def hide(self, text: str) -> str:
        """A text without what nobody should see."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text


def storage_of(text: str, folder: Path) -> Storage:
    """What ``--storage`` means.

    Args:
        text: A URL; empty for a file in the folder.
        folder: Of the search.

    Raises:
        UsageError: If it is no URL of a database that can be used; shows no password.
    """
    if not text:
        path = folder / FILE
        return Storage("sqlite", f"sqlite:///{path.absolute()}", str(path), path)
    found = _URL.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"--storage {without_password(text)}: not a URL", remedy=_FORMS)
    scheme, rest = found["scheme"].lower(), found["rest"]
    if scheme in ("sqlite", "sqlite+pysqlite"):
        return _file(text, rest)
    if scheme in ("postgresql", "postgres", "postgresql+psycopg"):
        return _server(rest)
    if scheme.startswith("postgresql+"):
        raise UsageError(
            f"--storage {scheme}://…: only the driver psycopg is used",
            remedy="write postgresql://… or postgresql+psycopg://…",
        )
    raise UsageError(f"--storage {scheme}://…: SQLite or PostgreSQL can be used", remedy=_FORMS)


def without_password(text: str) -> str:
    """A storage as it may be shown and kept: who has no password is asked for none."""
    found = _URL.fullmatch(text.strip())
    if found is None:
        return re.sub(r":[^:@]*@", "@", text)
    login = _LOGIN.fullmatch(found["rest"])
    rest = found["rest"]
    if login is not None:
        place = login["place"]
        if "@" in place.partition("/")[0]:  # of a password with @ in it, all of it goes
            place = place.partition("/")[0].rpartition("@")[2] + "/" + place.partition("/")[2]
        rest = f"{login['user']}@{place}" if login["user"] else place
    rest, mark, options = rest.partition("?")
    pairs = parse_qsl(options, keep_blank_values=True)
    kept = urlencode([pair for pair in pairs if pair[0] not in _SECRET_OPTIONS], safe="/")
    if len(dict(pairs).keys() & set(_SECRET_OPTIONS)) == 0:
        kept = options
    return f"{found['scheme']}://{rest}" + (mark + kept if kept else "")


def _file(text: str, rest: str) -> Storage:
    name = rest.partition("?")[0]
    if not name.startswith("/") or name in ("/", "/:memory:"):
        raise UsageError(
            f"--storage {text}: no file is named, so nothing could be kept",
            remedy="write sqlite:///PATH, with four slashes if the path begins at the root",
        )
    if "?" in rest:
        raise UsageError(f"--storage {text}: options are not taken", remedy="name the file only")
    path = Path(name[1:]).absolute()
    return Storage("sqlite", f"sqlite:///{path}", f"sqlite:///{path}", path)


def _server(rest: str) -> Storage:
    login = _LOGIN.fullmatch(rest)
    place = login["place"] if login is not None else rest
    if "@" in place.partition("?")[0].partition("/")[0]:
        raise UsageError(
            "--storage: what stands before the host has more than one @",
            remedy="write an @ of a password or a user's name as %40",
        )
    password = (login["password"] or "") if login is not None else ""
    options = dict(parse_qsl(place.partition("?")[2]))
    secrets = {password, unquote(password), quote(unquote(password), safe="")}
    secrets |= {options[key] for key in _SECRET_OPTIONS if key in options}
    url = f"postgresql+psycopg://{rest}"
    known = tuple(sorted((one for one in secrets if one), key=len, reverse=True))
    return Storage("postgresql", url, without_password(f"postgresql://{rest}"), secrets=known)
