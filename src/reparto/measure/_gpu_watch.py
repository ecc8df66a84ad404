r"""GpuWatch: how busy this host's GPUs are, as nvidia-smi says.

Starting nvidia-smi takes 20 ms of CPU with one GPU and more with several; repeating itself takes
it next to nothing. So it is started once:

    nvidia-smi --loop=1 ──"0, 87, 20480, 81559\n" a GPU, once a second──► thread ──► latest()
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import threading
from dataclasses import dataclass

EVERY_S = 1
_ASK = "--query-gpu=index,utilization.gpu,memory.used,memory.total"


@dataclass(frozen=True, kw_only=True)
class GpuUse:
    """All GPUs of a host at one moment; None where they do not say."""

    share: float | None
    memory_bytes: int | None
    memory_limit_bytes: int | None


class GpuWatch:
    """Knows what was last told of the GPUs.

    Args:
        command: What stands for ``nvidia-smi``; if there is no such command, there are no GPUs.
    """

    def __init__(self, command: str = "nvidia-smi") -> None:
        self._told: dict[str, tuple[float | None, ...]] = {}
        self._process: subprocess.Popen[str] | None = None
        path = shutil.which(command)
        if path is None:
            return
        with contextlib.suppress(OSError):
            self._process = subprocess.Popen(
                [path, _ASK, "--format=csv,noheader,nounits", f"--loop={EVERY_S}"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            threading.Thread(target=self._listen, name="reparto-gpus", daemon=True).start()

    def latest(self) -> GpuUse | None:
        """What was told last; None if nothing was."""
        told = list(self._told.values())
        if not told:
            return None
        columns = zip(*told, strict=True)
        shares, used, sizes = ([n for n in column if n is not None] for column in columns)
        return GpuUse(
            share=sum(shares) / len(shares) / 100 if shares else None,
            memory_bytes=int(sum(used)) << 20 if used else None,
            memory_limit_bytes=int(sum(sizes)) << 20 if sizes else None,
        )

    def close(self) -> None:
        """End nvidia-smi. Without this it ends when it next finds nobody listening."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _listen(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        with contextlib.suppress(ValueError, OSError), self._process.stdout as lines:
            for line in lines:
                index, *numbers = (word.strip() for word in line.split(","))
                if len(numbers) == 3:  # else it says why it cannot tell
                    self._told = {**self._told, index: tuple(map(_number, numbers))}
        self._told = {}  # nobody knows any more


def _number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:  # "[N/A]"
        return None
