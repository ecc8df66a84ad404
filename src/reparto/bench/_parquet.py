"""Rows as Parquet; the only place that imports pyarrow."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def write(table: Mapping[str, Sequence[Any]], environment: Mapping[str, Any], path: Path) -> bool:
    """Write columns, with the environment in the file's own description.

    Returns:
        False where pyarrow is not installed.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        return False
    made = pyarrow.table({name: list(values) for name, values in table.items()})
    told = {b"reparto.environment": json.dumps(environment).encode()}
    pyarrow.parquet.write_table(made.replace_schema_metadata(told), path)
    return True
