"""Text: a file's bytes, unpacked where it is packed, and how its letters are written."""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reparto.errors import MissingExtraError, UsageError

#: What is looked at to infer how a file is written.
SAMPLE_BYTES = 1 << 20
#: Of a file that is read as a stream.
BLOCK_BYTES = 4 << 20
_LINE_BYTES = 256 << 20

_PACKED = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\x28\xb5\x2f\xfd": "zstd"}
#: What files of other kinds begin with, and what to do with them.
_FOREIGN = {
    b"\xfd7zXZ": ("is packed with xz", "unpack it: unxz FILE"),
    b"PK\x03\x04": ("is a zip archive", "unpack it, or save the sheet as CSV"),
    b"Rar!": ("is a rar archive", "unpack it"),
    b"7z\xbc\xaf": ("is a 7z archive", "unpack it"),
    b"\x89HDF": ("is an HDF5 file", "save the table in it as Parquet or CSV"),
    b"SQLite format 3": ("is an SQLite database", "save the table in it as CSV"),
    b"ARROW1": ("is an Arrow file", "save it as Parquet"),
    b"FEA1": ("is a Feather file", "save it as Parquet"),
    b"\xd0\xcf\x11\xe0": ("is an old Excel file", "save the sheet as CSV"),
    b"%PDF": ("is a PDF", "save the table in it as CSV"),
    b"\x89PNG": ("is a picture", "give a table"),
    b"\xff\xd8\xff": ("is a picture", "give a table"),
    b"\x80\x02": ("is a Python pickle", "reading it would run what it holds: save it as Parquet"),
    b"\x80\x03": ("is a Python pickle", "reading it would run what it holds: save it as Parquet"),
    b"\x80\x04": ("is a Python pickle", "reading it would run what it holds: save it as Parquet"),
    b"\x80\x05": ("is a Python pickle", "reading it would run what it holds: save it as Parquet"),
}
_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
#: What text does not hold: control characters but for tab, line ends, form feed, escape.
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f]")


@dataclass
class Text:
    """A file of letters.

    Attributes:
        path: Where it lies.
        packed: How it is packed: ``gzip``, ``bz2``, ``zstd``; empty if it is not.
        head: Its first bytes, unpacked.
        is_whole: Whether that is all of it.
        encoding: How its letters are written.
    """

    path: Path
    packed: str
    head: bytes
    is_whole: bool
    encoding: str = "utf-8"

    @property
    def sample(self) -> str:
        """Its first lines, all of them whole."""
        head = self.head
        if not self.is_whole and self.encoding.startswith("utf-"):
            head = head[: len(head) // 4 * 4]
        text = head.decode(self.encoding, errors="replace")
        if self.is_whole:
            return text
        end = max(text.rfind("\n"), text.rfind("\r"))
        return text[: end + 1] if end >= 0 else text

    def open(self) -> Any:
        """Its bytes from the beginning, unpacked: a file object.

        Raises:
            UsageError: If it cannot be read.
        """
        pyarrow = imported()
        try:
            raw = pyarrow.OSFile(str(self.path), "rb")
        except OSError as error:
            raise UsageError(
                f"{self.path} cannot be read: {error.strerror or error}",
                remedy="look at its permissions",
            ) from error
        return pyarrow.CompressedInputStream(raw, self.packed) if self.packed else raw

    def blocks(self) -> Iterator[bytes]:
        """Its bytes, in blocks of whole lines.

        Raises:
            UsageError: If it cannot be read, or is torn off.
        """
        rest = b""
        with self.open() as file:
            while block := read(file, BLOCK_BYTES, self.path):
                end = block.rfind(b"\n") + 1
                if end:
                    yield rest + block[:end]
                    rest = block[end:]
                else:
                    rest += block
                if len(rest) > _LINE_BYTES:
                    raise UsageError(
                        f"{self.path} has a line of more than {len(rest) >> 20} MiB",
                        remedy="it is perhaps no table; give one with a row a line",
                    )
        if rest:
            yield rest

    def lines(self) -> io.TextIOWrapper:
        """Its lines, as letters; what cannot be one is replaced."""
        return io.TextIOWrapper(self.open(), self.encoding, errors="replace", newline="")


def imported() -> Any:
    """Pyarrow, with what of it is needed here.

    Raises:
        MissingExtraError: If it is not installed.
    """
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.csv
    except ImportError as error:
        raise MissingExtraError("pyarrow", "search") from error
    return pyarrow


def read(file: Any, count: int, path: Path) -> bytes:
    """So many of its next bytes.

    Raises:
        UsageError: If it is torn off or damaged.
    """
    try:
        found: bytes = file.read(count)
    except (OSError, EOFError, ValueError) as error:
        raise UsageError(
            f"{path} cannot be read to its end: {str(error).splitlines()[0]}",
            remedy="it is damaged, or was not copied as a whole: get it again",
        ) from error
    return found


def open_text(path: Path) -> Text:
    """A file, after a look at its first bytes.

    Raises:
        UsageError: If there is none, it is empty, cannot be read, or is of another kind.
    """
    refuse_missing(path)
    with _opened(path) as file:
        magic = file.read(16)
    packed = next((name for start, name in _PACKED.items() if magic.startswith(start)), "")
    text = Text(path, packed, magic, is_whole=False)
    with text.open() as file:
        text.head = read(file, SAMPLE_BYTES, path)
        text.is_whole = len(text.head) < SAMPLE_BYTES or not read(file, 1, path)
    for start, (what, remedy) in _FOREIGN.items():
        if text.head.startswith(start) and not is_readable_binary(text.head, path):
            raise UsageError(f"{path} {what}, not a table that can be read", remedy=remedy)
    if not text.head.strip():
        raise UsageError(f"{path} is empty", remedy="give a table with rows")
    return text


def settle_encoding(text: Text) -> None:
    """Find out how its letters are written.

    Raises:
        UsageError: If it has none.
    """
    head = text.head
    text.encoding = next((name for bom, name in _BOMS if head.startswith(bom)), "")
    if text.encoding:
        return
    if _looks_wide(head):
        text.encoding = "utf-16-le" if head[1:2] == b"\x00" else "utf-16-be"
        return
    control = len(_CONTROL.findall(head))
    if b"\x00" in head or control > 0.01 * len(head):
        raise UsageError(
            f"{text.path} holds no text: {control} of its first {len(head)} bytes are control "
            "characters",
            remedy="give CSV, Parquet, libsvm, ARFF, .npy or .npz",
        )
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        decoder.decode(head, final=text.is_whole)
        text.encoding = "utf-8"
    except UnicodeDecodeError:
        text.encoding = "cp1252" if _decodes(head, "cp1252") else "latin-1"


def _looks_wide(head: bytes) -> bool:
    """Whether every other byte is zero, as in UTF-16 of western letters."""
    some = head[: len(head) // 2 * 2][:4000]
    if len(some) < 4:
        return False
    odd, even = some[1::2].count(0), some[0::2].count(0)
    return max(odd, even) > 0.7 * len(some) / 2 and min(odd, even) < 0.1 * len(some) / 2


def _decodes(head: bytes, encoding: str) -> bool:
    try:
        head.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


def is_readable_binary(head: bytes, path: Path) -> bool:
    """Whether it is one of NumPy's or Parquet's own."""
    return head.startswith((b"PAR1", b"\x93NUMPY")) or (
        head.startswith(b"PK\x03\x04") and path.suffix.lower() == ".npz"
    )


def refuse_missing(path: Path) -> None:
    """Refuse what is no file, or an empty one.

    Raises:
        UsageError: If it is so.
    """
    if path.is_dir():
        raise UsageError(f"{path} is a folder", remedy="name a file in it")
    if not path.exists():
        near = [one.name for one in _neighbours(path)][:3]
        hint = f"did you mean {', '.join(near)}?" if near else f"looked in {path.parent.resolve()}"
        raise UsageError(f"there is no file {path}", remedy=hint)
    if not path.is_file():
        raise UsageError(f"{path} is no file", remedy="save what it gives in a file first")
    if not path.stat().st_size:
        raise UsageError(f"{path} is empty", remedy="give a table with rows")


def _neighbours(path: Path) -> list[Path]:
    import difflib

    if not path.parent.is_dir():
        return []
    files = {one.name: one for one in path.parent.iterdir() if one.is_file()}
    return [files[name] for name in difflib.get_close_matches(path.name, files, 3)]


def _opened(path: Path) -> Any:
    try:
        return path.open("rb")
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}", remedy="look at its permissions"
        ) from error


class Blocks(io.RawIOBase):
    """A file of the blocks that a function makes of another file's blocks."""

    def __init__(self, blocks: Iterator[bytes], change: Callable[[bytes], bytes]) -> None:
        super().__init__()
        self._blocks, self._change, self._rest = blocks, change, b""

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """As a file does."""
        while not self._rest:
            block = next(self._blocks, None)
            if block is None:
                return 0
            self._rest = self._change(block)
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count
