"""A private write overlay: a worker that must not touch the outside world believes that it has.

Every worker runs the whole script, and only worker 0 may write. The others keep what they write
in a folder of their own and read it back from there, so no barrier and no shared file system is
needed. A path of the script is looked up in this order::

    open("out/best.pt") ── links resolved ──► /proj/out/best.pt   (its *view*)
        1. upper   root/proj/out/best.pt    written by this process: always wins
        2. gone    {"/proj/out", ...}       deleted by this process: hides what lies below
        3. lower   /proj/out/best.pt        the real one, unless it was born after the run began

The third rule is the *cut-off*: worker 0 may create ``best.pt`` before a slower worker asks
whether it exists. What was born after ``since_ns`` is absent unless this process wrote it.
*Outside* are ``/dev``, ``/proc``, the Python installation, caches that many processes may share,
and what this process makes with `tempfile`: there, reads and writes pass.

Limits. What was there before and worker 0 has rewritten in place is read with its new content,
what it has replaced, renamed or deleted is absent, until this worker writes its own. Without birth
times (NFS) a rewritten file counts as new. Programs and `spawn`-ed children of the script, and
libraries that open files in C and are not in `_NATIVE`, see the real files.
"""

from __future__ import annotations

import builtins
import errno
import functools
import glob
import os
import shutil
import sys
import tempfile
import time
import types
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any

from reparto.runtime._layers import Entry, Layers, Scan, is_dir, os_error

#: Functions that open a path below Python: module, then (name, place of the path, its keyword,
#: mode), where the mode ``None`` is the argument after the path, as in ``h5py.File(name, mode)``.
_NATIVE: dict[str, tuple[tuple[str, int, str, str | None], ...]] = {
    "torch": (("save", 1, "f", "w"), ("load", 0, "f", "r"), ("from_file", 0, "filename", "a")),
    "torch.jit": (("save", 1, "f", "w"), ("load", 0, "f", "r")),
    "torch.export": (("save", 1, "f", "w"), ("load", 0, "f", "r")),
    "safetensors": (("serialize_file", 1, "filename", "w"), ("safe_open", 0, "filename", "r")),
    "safetensors.torch": (("serialize_file", 1, "filename", "w"), ("safe_open", 0, "", "r")),
    "sqlite3": (("connect", 0, "database", "a"),),
    "sqlite3.dbapi2": (("connect", 0, "database", "a"),),
    "h5py": (("File.__init__", 1, "name", None),),
    "cv2": (("imwrite", 0, "filename", "w"), ("imread", 0, "filename", "r")),
}
#: Which method of `Overlay` stands in for which functions of `os`.
_HANDLERS = {
    "_reads": "stat lstat readlink access statvfs getxattr listxattr",
    "_changes": "chmod chown lchown utime setxattr removexattr truncate",
    "_makes": "mkdir mkfifo mknod",
    "_links": "symlink link",
    "_renames": "rename replace",
    "_removes": "remove unlink rmdir",
    "_lists": "listdir scandir",
    "_enters": "chdir",
    "_stands": "getcwd getcwdb",
    "_opens_fd": "open",
}
#: Caches that guard themselves against several processes, and the variables that move them.

_PATHS = (str, bytes, os.PathLike)


def cutoff_ns() -> int:
    """Returns a time for `Overlay`: what was made before the call is older, what after it newer.

    File systems stamp with a clock that lags by up to 10 ms; waiting that out makes both sure.
    """
    now_ns = time.time_ns()
    time.sleep(0.02)
    return now_ns


def mute_trackers(environ: MutableMapping[str, str], root: str | None = None) -> None:
    """Keeps experiment trackers from reporting a worker that is not the main one.

    Args:
        environ: The environment to change, usually `os.environ`, before the script runs.
        root: Where MLflow shall keep a private store: the overlay's folder, or the temp folder.
    """
    store = Path(root or tempfile.gettempdir()).absolute() / "mlruns"
    environ.update(WANDB_MODE="disabled", SWANLAB_MODE="disabled", WANDB_SILENT="true")
    environ.update(COMET_AUTO_LOG_DISABLE="1", COMET_START_ONLINE="0", NEPTUNE_MODE="offline")
    environ.update(CLEARML_OFFLINE_MODE="1", MLFLOW_TRACKING_URI=store.as_uri())
    environ.update(MPLBACKEND="Agg")  # no window


class Overlay:
    """Sends what this process writes into a folder of its own, and reads it back from there.

    `install` before the script is imported. What the script has bound by then keeps working after
    `uninstall`, which leaves the folder to its owner. Overlays may be nested, the last one
    installed is uninstalled first; forked children inherit them.

    Args:
        root: The private folder; it need not exist.
        since_ns: The cut-off, see `cutoff_ns`; without it every real file is seen.

    Example:
        >>> Overlay(scratch / "files", since_ns).install()
    """

    def __init__(self, root: str | os.PathLike[str], since_ns: int | None = None) -> None:
        self._layers = Layers(os.path.realpath(root), since_ns or sys.maxsize)
        self._undo: list[Callable[[], object]] = []

    def install(self) -> None:
        """Replaces the functions that touch files, in every module that holds one by now."""
        if self._undo:
            return
        os.makedirs(self._layers.root, exist_ok=True)
        self._layers.capture()
        wanted = [(os, name, kind) for kind in _HANDLERS for name in _HANDLERS[kind].split()]
        wanted += [(builtins, "open", "_opens"), (shutil, "rmtree", "_erases")]
        swaps = {}
        for owner, name, kind in wanted:
            if original := getattr(owner, name, None):
                swaps[id(original)] = self._wrap(original, getattr(self, kind))
        for name, module in list(sys.modules.items()):
            if name not in ("posix", "_io"):  # the import system's, which stays as fast as it was
                self._swap(getattr(module, "__dict__", {}), swaps)
        for holder in ((tempfile, "_TemporaryFileCloser"), (glob, "_StringGlobber")):
            self._swap_bound(getattr(*holder, object), swaps)
        openers = getattr(sys.modules.get("numpy.lib._datasource"), "_file_openers", None)
        self._swap(getattr(openers, "_file_openers", {}), swaps)  # of savetxt and loadtxt
        for name in _NATIVE.keys() & sys.modules.keys():
            self._wrap_native(name)
        sys.meta_path.insert(0, self)  # for the native ones that are imported later
        self._undo.append(functools.partial(sys.meta_path.remove, self))

    def uninstall(self) -> None:
        """Puts everything back; the folder stays."""
        while self._undo:
            self._undo.pop()()

    def _swap(self, space: dict[str, Any], swaps: dict[int, Any]) -> None:
        for name, value in list(space.items()):
            if id(value) in swaps:
                space[name] = swaps[id(value)]
                self._undo.append(functools.partial(space.__setitem__, name, value))

    def _swap_bound(self, owner: type, swaps: dict[int, Any]) -> None:
        """Replaces what a class took at its definition: a static method, a default argument."""
        for name, value in list(vars(owner).items()):
            inner, defaults = getattr(value, "__func__", None), getattr(value, "__defaults__", ())
            if id(inner) in swaps:
                setattr(owner, name, staticmethod(swaps[id(inner)]))
                self._undo.append(functools.partial(setattr, owner, name, value))
            elif any(id(each) in swaps for each in defaults or ()):
                value.__defaults__ = tuple(swaps.get(id(each), each) for each in defaults)
                self._undo.append(functools.partial(setattr, value, "__defaults__", defaults))

    def _wrap(self, original: Callable[..., Any], handler: Callable[..., Any]) -> Any:
        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            given = args[0] if args else next(iter(kwargs.values()), ".")
            by_fd = kwargs and any(kwargs[key] is not None for key in kwargs if "dir_fd" in key)
            if not self._undo or by_fd or not given or not isinstance(given, _PATHS):
                return original(*args, **kwargs)  # also descriptors, which lead where they lead
            try:
                return handler(original, *args, **kwargs)
            except OSError as error:
                if str(error.filename).startswith(self._layers.root):
                    error.filename = given  # the script's name for it, as on worker 0
                raise

        return wrapper

    def _reads(self, original: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
        follow = kwargs.get("follow_symlinks", original.__name__ not in ("lstat", "readlink"))
        return original(self._layers.readable(path, follow), *args, **kwargs)

    def _changes(self, original: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
        follow = kwargs.get("follow_symlinks", original.__name__ != "lchown")
        return original(self._layers.writable(path, True, follow), *args, **kwargs)

    def _makes(self, original: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
        private = args == (0o700,)  # only tempfile makes directories so
        return original(self._layers.creatable(path, private), *args, **kwargs)

    def _opens_fd(self, original: Any, path: Any, flags: int, *args: Any, **kwargs: Any) -> Any:
        layers = self._layers
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            where = path  # has no name
        elif flags & os.O_CREAT and flags & os.O_EXCL:
            where = layers.creatable(path, private=bool(flags & os.O_NOFOLLOW))  # as tempfile
        elif flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC):
            where = layers.writable(path, keep=not flags & os.O_TRUNC)
        else:
            where = layers.readable(path)
        return original(where, flags, *args, **kwargs)

    def _opens(self, original: Any, file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("opener") or len(args) > 5:  # it comes to `os.open` by itself
            return original(file, mode, *args, **kwargs)
        where = self._located(file, mode)
        if where is file:
            return original(file, mode, *args, **kwargs)
        kwargs["opener"] = lambda _, flags: self._layers.real.open(where, flags, 0o666)
        return original(file, mode, *args, **kwargs)  # its `name` stays what the script gave

    def _located(self, path: Any, mode: str) -> Any:
        if "x" in mode:
            return self._layers.creatable(path)
        if "w" in mode or "a" in mode or "+" in mode:
            return self._layers.writable(path, keep="w" not in mode)
        return self._layers.readable(path)

    def _links(self, original: Any, src: Any, dst: Any, *args: Any, **kwargs: Any) -> Any:
        if original.__name__ == "link":  # a hard one: to the private copy
            src = self._layers.writable(src, keep=True)
        return original(src, self._layers.creatable(dst), *args, **kwargs)

    def _renames(self, original: Any, src: Any, dst: Any, **kwargs: Any) -> Any:
        layers = self._layers
        old, (new, _, there) = layers.look(src, follow=False)[0], layers.look(dst, follow=False)
        source = old if layers.is_outside(old) else layers.copy_up(old, deep=True)
        target = new if layers.is_outside(new) else layers.root + new
        if target != new:
            if is_dir(there) and layers.names(new):
                raise os_error(errno.ENOTEMPTY, dst)
            layers.mirror(os.path.dirname(new))
        try:
            original(source, target)
        except OSError as error:
            if error.errno != errno.EXDEV:  # the folder may lie on another disk than the script's
                raise
            shutil.move(source, target)
        layers.forget(old, new)

    def _removes(self, original: Any, path: Any, **kwargs: Any) -> Any:
        layers = self._layers
        full, where, found = layers.look(path, follow=False)
        if layers.is_outside(full):
            return original(full)
        if found is None:
            raise os_error(errno.ENOENT, path)
        if is_dir(found) != (original.__name__ == "rmdir"):
            raise os_error(errno.EISDIR if is_dir(found) else errno.ENOTDIR, path)
        if is_dir(found) and layers.names(full):
            raise os_error(errno.ENOTEMPTY, path)
        if where != full:
            original(where)
        layers.forget(full)
        return None

    def _erases(self, original: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
        # At once: worker 0 may be deleting the same tree, whose parts vanish under a walk.
        layers = self._layers
        full, _, found = layers.look(path, follow=False)
        if layers.is_outside(full) or not is_dir(found):
            return original(path, *args, **kwargs)
        original(layers.root + full, ignore_errors=True)
        return layers.forget(full)

    def _lists(self, original: Any, path: Any = ".") -> Any:
        layers = self._layers
        full, where, found = layers.look(path)
        if not is_dir(found):
            return original(where)
        is_merged = not layers.is_outside(full) and layers.is_merged(full)
        is_away = layers.real.getcwd().startswith(layers.root)
        if not is_merged and not is_away and os.path.abspath(os.fsdecode(path)) == full:
            return original(path)
        names: list[Any] = layers.names(full) if is_merged else layers.real.listdir(full)
        if isinstance(path, bytes):
            names = [os.fsencode(name) for name in names]
        if original.__name__ == "listdir":
            return names
        return Scan([Entry(path, name) for name in names])

    def _enters(self, original: Any, path: Any) -> None:
        # The real directory where there is one, for programs that the script starts in it.
        full, where, _ = self._layers.look(path)
        is_real = is_dir(self._layers.lstat(full)) and not self._layers.is_gone(full)
        original(full if is_real else where)

    def _stands(self, original: Any) -> Any:
        here, root = os.fsdecode(original()), self._layers.root
        if f"{here}/".startswith(f"{root}/"):
            here = here[len(root) :] or "/"
        return os.fsencode(here) if original.__name__ == "getcwdb" else here

    def _wrap_native(self, module: str) -> None:
        for path, position, keyword, mode in _NATIVE[module]:
            *owners, name = path.split(".")
            owner = functools.reduce(getattr, owners, sys.modules[module])
            original = getattr(owner, name, None)
            if original is not None:
                setattr(owner, name, self._native(original, position, keyword, mode))
                self._undo.append(functools.partial(setattr, owner, name, original))

    def _native(self, original: Any, position: int, keyword: str, mode: str | None) -> Any:
        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            values = list(args)
            given = kwargs.get(keyword) or (values[position] if position < len(args) else None)
            special = str(given).startswith((":memory:", "file:"))
            if self._undo and given and not special and isinstance(given, _PATHS):
                how = mode or kwargs.get("mode") or "".join(args[position + 1 :][:1]) or "r"
                where = self._located(given, how.replace("x", "w"))
                if keyword in kwargs:
                    kwargs[keyword] = where
                else:
                    values[position] = where
            return original(*values, **kwargs)

        return wrapper

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Finds a module with native functions as others do, and wraps them once it is loaded."""
        if name not in _NATIVE:
            return None
        finders = [finder for finder in sys.meta_path if finder is not self]
        found = (finder.find_spec(name, path, target) for finder in finders)
        spec = next((each for each in found if each is not None), None)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module: types.ModuleType) -> None:
                load(module)
                self._wrap_native(name)

            setattr(spec.loader, "exec_module", exec_module)  # noqa: B010  (of this loader only)
        return spec
