"""Store: the candidates of a search, kept as they end, so that it can be resumed.

    FOLDER/search.db        unless another storage is named
    FOLDER/search-id.json   {"id": …, "storage": …}   under which id they are kept, and where
    FOLDER/.search.lock     held as long as a search uses the folder

What cannot be written now (a server that is started again, a full disk) is tried again later: the
search goes on meanwhile, and `Store.trouble` says why.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from reparto.errors import UsageError
from reparto.search._storage import FILE, storage_of, without_password
from reparto.spec import (
    Bill,
    Candidate,
    Evaluation,
    SearchRequest,
    TableFacts,
    from_plain,
    to_plain,
)

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

    from reparto.search._database import Database

ID_FILE, LOCK_FILE = "search-id.json", ".search.lock"
#: After something could not be written, it is not tried again sooner.
_PAUSE_S = 10.0


@dataclass(frozen=True, kw_only=True)
class Kept:
    """A search that was begun before, as far as it had come.

    Attributes:
        request: What was asked; without a password in its storage.
        facts: Of the data; None where there are none.
        used_s: Seconds that it had taken.
        bill: What it had cost.
        evaluations: That had ended, by their numbers.
    """

    request: SearchRequest
    facts: TableFacts | None = None
    used_s: float = 0.0
    bill: Bill = field(default_factory=Bill)
    evaluations: tuple[Evaluation, ...] = ()


class Store:
    """Candidates of one search. One thread uses it; made by `open`.

    Attributes:
        id: Of the search, in the storage.
        shown: The storage, without its password.
        trouble: Why the latest candidates are not written yet; empty if all are.
    """

    def __init__(
        self,
        database: Database,
        folder: Path,
        mark: str,
        lock: IO[str],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.id = mark
        self.trouble = ""
        self._database = database
        self._folder = folder
        self._lock = lock
        self._clock = clock
        self._evaluations: dict[int, dict[str, Any]] = {}
        self._progress: dict[str, Any] = {}
        self._again_at = 0.0

    @classmethod
    def open(cls, storage: str, folder: Path) -> Store:
        """Open the storage of a search.

        Args:
            storage: URL; empty for the one that was used in this folder, or a file in it.
            folder: Of the search; made if it is not there.

        Raises:
            MissingExtraError: If SQLAlchemy, or PostgreSQL's driver, is not installed.
            UsageError: If the storage cannot be used, or another search uses the folder.
        """
        from reparto.search._database import Database

        lock = locked(folder)
        try:
            kept = _remembered(folder)
            where = storage_of(storage or kept.get("storage", ""), folder)
            return cls(Database(where), folder, kept.get("id") or uuid.uuid4().hex, lock)
        except BaseException:
            lock.close()
            raise

    @property
    def shown(self) -> str:
        """The storage, without its password."""
        return self._database.storage.shown

    def begin(self, request: SearchRequest, facts: TableFacts | None) -> None:
        """Begin anew; what was kept of an earlier search in this folder is forgotten.

        Raises:
            UsageError: If it cannot be written.
        """
        from reparto.search._database import SEARCH

        request = dataclasses.replace(request, storage=without_password(request.storage))
        self._evaluations.clear()
        self._progress.clear()
        with self._database.writing() as connection:
            self._forget(connection)
            row = {"began": time.time(), "request": _text(request), "facts": _text(facts)}
            zero = {"used_s": 0.0, "bill": _text(Bill())}
            connection.execute(SEARCH.insert().values(id=self.id, **row, **zero))
        self._remember()

    def kept(self) -> Kept | None:
        """What is known of the search that was begun in this folder; None if there is none.

        Raises:
            UsageError: If it cannot be read, or was written by another version.
        """
        from reparto.search._database import EVALUATION, SEARCH

        with self._database.writing() as connection:
            row = connection.execute(SEARCH.select().where(SEARCH.c.id == self.id)).first()
            mine = EVALUATION.select().where(EVALUATION.c.search == self.id)
            found = connection.execute(mine.order_by(EVALUATION.c.number)).all()
        if row is None:
            return None
        try:
            kept = _kept_of(row, [one.evaluation for one in found])
        except (UsageError, ValueError) as error:
            raise UsageError(
                f"--storage {self.shown}: what is kept there cannot be read ({error})",
                remedy="go on with the version of reparto that wrote it, or begin anew",
            ) from error
        self._remember()
        return kept

    def add(self, evaluation: Evaluation) -> None:
        """Keep a candidate that has ended; of two of one number the later one counts."""
        self._evaluations[evaluation.candidate.number] = {
            "search": self.id,
            "number": evaluation.candidate.number,
            "technique": evaluation.candidate.technique,
            "status": evaluation.status,
            "score": evaluation.score,
            "evaluation": _text(evaluation),
        }
        self._save()

    def progress(self, used_s: float, bill: Bill) -> None:
        """Keep what the search has taken so far."""
        self._progress = {"used_s": used_s, "bill": _text(bill)}
        self._save()

    def close(self) -> None:
        """Write what is not written yet, and let go. Can be called twice.

        Raises:
            UsageError: If it cannot be written; the search cannot be resumed from there on.
        """
        if self._lock.closed:
            return
        try:
            if self.trouble:
                self._write()
        finally:
            self._database.close()
            self._lock.close()

    def _save(self) -> None:
        if self.trouble and self._clock() < self._again_at:
            return
        try:
            self._write()
        except UsageError as error:
            self.trouble = error.message
            self._again_at = self._clock() + _PAUSE_S
        else:
            self.trouble = ""

    def _write(self) -> None:
        from reparto.search._database import EVALUATION, SEARCH

        rows = list(self._evaluations.values())
        with self._database.writing() as connection:
            if rows:
                numbers = [row["number"] for row in rows]
                mine = EVALUATION.c.search == self.id
                connection.execute(
                    EVALUATION.delete().where(mine, EVALUATION.c.number.in_(numbers))
                )
                connection.execute(EVALUATION.insert(), rows)
            if self._progress:
                here = SEARCH.update().where(SEARCH.c.id == self.id)
                connection.execute(here.values(**self._progress))
        self._evaluations.clear()
        self._progress = {}

    def _forget(self, connection: Connection) -> None:
        from reparto.search._database import EVALUATION, SEARCH

        connection.execute(EVALUATION.delete().where(EVALUATION.c.search == self.id))
        connection.execute(SEARCH.delete().where(SEARCH.c.id == self.id))

    def _remember(self) -> None:
        storage = self._database.storage
        inside = storage.path == self._folder / FILE
        told = {"id": self.id, "storage": "" if inside else storage.shown}
        path = self._folder / ID_FILE
        draft = path.with_name(f".{ID_FILE}")
        draft.write_text(json.dumps(told) + "\n", encoding="utf-8")
        os.replace(draft, path)  # there is one at any moment, also if we are killed


def check_storage(storage: str, folder: Path) -> None:
    """See that a storage can be used.

    Args:
        storage: URL.
        folder: Of the search.

    Raises:
        MissingExtraError: If SQLAlchemy, or PostgreSQL's driver, is not installed.
        UsageError: If it cannot be.
    """
    from reparto.search._database import Database

    Database(storage_of(storage, folder)).close()


def locked(folder: Path) -> IO[str]:
    """The folder for this process alone.

    A lock of POSIX: it ends with the process, and workers that are forked do not inherit it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / LOCK_FILE).open("a", encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"{folder}: {error.strerror}", remedy="name a folder that can be written to"
        ) from error
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.close()
        raise UsageError(
            f"{folder}: another search uses this folder",
            remedy="wait until it ends, or name another folder",
        ) from error
    except OSError:  # a file system that knows no locks
        return file
    return file


def _remembered(folder: Path) -> dict[str, str]:
    path = folder / ID_FILE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return {"id": str(found["id"]), "storage": str(found["storage"])}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UsageError(
            f"{path}: cannot be read ({error})", remedy="remove it, and begin the search anew"
        ) from error


def _text(noun: Any) -> str:
    return json.dumps(to_plain(noun) if noun is not None else None, default=_plain)


def _plain(value: Any) -> Any:
    """Numbers of NumPy, which samplers and metrics return."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{value!r} cannot be kept")


def _kept_of(row: Any, evaluations: list[str]) -> Kept:
    plain = {
        "request": json.loads(row.request),
        "facts": json.loads(row.facts),
        "used_s": row.used_s,
        "bill": json.loads(row.bill),
        "evaluations": [json.loads(one) for one in evaluations],
    }
    kept = from_plain(Kept, plain)
    restored = tuple(
        dataclasses.replace(one, candidate=_restored(one.candidate)) for one in kept.evaluations
    )
    spaces = {
        technique: {name: _tupled(values) for name, values in settings.items()}
        for technique, settings in kept.request.spaces.items()
    }
    asked = tuple(_restored(one) for one in kept.request.candidates)
    request = dataclasses.replace(kept.request, spaces=spaces, candidates=asked)
    return dataclasses.replace(kept, request=request, evaluations=restored)


def _restored(candidate: Candidate) -> Candidate:
    """As it was: JSON knows lists only, settings are tuples."""
    settings = {name: _tupled(value) for name, value in candidate.settings.items()}
    return dataclasses.replace(candidate, settings=settings)


def _tupled(value: Any) -> Any:
    return tuple(_tupled(one) for one in value) if isinstance(value, list) else value
