"""What may import what: the contracts of import-linter in pyproject.toml hold."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CONTRACTS = [contract["id"] for contract in PYPROJECT["tool"]["importlinter"]["contracts"]]
LINT_IMPORTS = Path(sys.executable).with_name("lint-imports")


@pytest.mark.parametrize("contract", CONTRACTS)
def test_import_contract_is_kept(contract):
    done = subprocess.run(
        [LINT_IMPORTS, "--no-cache", "--no-logo", "--contract", contract],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
