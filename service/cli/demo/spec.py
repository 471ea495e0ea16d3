"""The demonstration's job: `examples/demo.yaml`, in the wheel or in the sources."""

from __future__ import annotations

from decimal import Decimal
from importlib.resources import files
from pathlib import Path

from service.cli.errors import CliError
from service.cli.spec.build import SpecOptions, draft_spec
from training.protocol.job_spec import JobSpec

_NAME = "demo.yaml"


def find_spec() -> Path:
    """Errors: CliError when the installation is not whole."""
    shipped = Path(str(files("service.cli.demo").joinpath(_NAME)))
    source = Path(__file__).resolve().parents[3] / "examples" / _NAME
    for path in (shipped, source):
        if path.is_file():
            return path
    raise CliError(f"{_NAME} is missing from the installation", remedy="install godwit again")


def load_demo_spec(budget_usd: str | None) -> JobSpec:
    """Errors: BadInput for the budget."""
    return draft_spec(str(find_spec()), SpecOptions(budget_usd=budget_usd), _no_secret).spec


def full_cap_usd() -> Decimal:
    """What the whole run may cost by the file itself."""
    budget = load_demo_spec(None).budget
    if budget is None:
        raise CliError(f"{_NAME} has no budget", remedy="install godwit again")
    return budget.cap_usd


def _no_secret(name: str) -> str:
    raise CliError(f"the demonstration needs no secret {name}")
