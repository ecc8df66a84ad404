"""The script of a network that is trained on several workers: what `reparto run` would run.

    trainer ── rows.safetensors, course.json ──► engine: N × this script ──► state.safetensors

It needs no conversion: its loop calls reparto's library by itself. Worker 0 writes.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from reparto.search.techniques._network_training import Training


def go_on_shared_out(
    training: Training,
    x: NDArray[np.float32],
    y: NDArray[Any],
    until: int,
    *,
    workers: int,
    threads: int,
) -> None:
    """Train on several workers of this machine, until so many epochs are done.

    Raises:
        ScriptError: If a worker fails.
    """
    import torch
    from safetensors.torch import load_file, save_file

    from reparto import api
    from reparto.errors import ScriptError
    from reparto.measure import local_host
    from reparto.plan import plan_run
    from reparto.spec import Cluster, Job, Options, Program, SourceFile

    text = Path(__file__).read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory(prefix="reparto-network-") as folder:
        tensors, numbers = training.state()
        rows = {"x": torch.from_numpy(x), "y": torch.from_numpy(y)}
        save_file(rows, Path(folder, "rows.safetensors"))
        save_file(tensors, Path(folder, "state.safetensors"))
        about = {
            "shape": asdict(training.shape),
            "course": asdict(training.course),
            "numbers": numbers,
            "until": until,
        }
        Path(folder, "course.json").write_text(json.dumps(about), encoding="utf-8")
        job = Job(script=__file__, args=(folder,), workers=workers, threads=threads)
        cluster = Cluster(hosts=(local_host(),))
        file = SourceFile(path=__file__, module="__main__", original=text, converted=text)
        program = Program(script=__file__, args=job.args, files=(file,))
        plan = plan_run(job, cluster, program)
        result = api.execute(program, plan, Options(seed=training.course.seed), cluster=cluster)
        if result.status != "done":
            failure = result.failure
            why = f"{failure.error}: {failure.message}" if failure is not None else result.status
            raise ScriptError(f"the network's training on {workers} workers has ended: {why}")
        numbers = json.loads(Path(folder, "numbers.json").read_text(encoding="utf-8"))
        training.restore(load_file(Path(folder, "state.safetensors")), numbers)


def main(folder: Path) -> None:
    """Go on with the training that lies in a folder, and put it back."""
    from safetensors.torch import load_file, save_file

    from reparto.search.techniques._network_module import Shape
    from reparto.search.techniques._network_training import Course, Training

    about = json.loads((folder / "course.json").read_text(encoding="utf-8"))
    rows = load_file(folder / "rows.safetensors")
    training = Training(Shape(**about["shape"]), Course(**about["course"]))
    training.restore(load_file(folder / "state.safetensors"), about["numbers"])
    training.go_on(rows["x"].numpy(), rows["y"].numpy(), about["until"])
    tensors, numbers = training.state()
    save_file(tensors, folder / "state.safetensors")
    (folder / "numbers.json").write_text(json.dumps(numbers), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
