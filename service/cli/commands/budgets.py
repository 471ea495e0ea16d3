"""`budget show | list | set | top-up`."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Annotated

import typer

from service.cli.connect import find_job_id, open_client
from service.cli.errors import BadInput, CliError
from service.cli.options import Json, examples
from service.cli.output import print_json, print_table, say
from service.cli.views.formats import bar, usd
from service.client.api import Godwit
from service.client.errors import ApiError
from service.client.models import Budget

MAX_USD = 10_000_000
app = typer.Typer(help="What may be spent: see it, change it.", no_args_is_help=True)
Target = Annotated[
    str | None, typer.Argument(metavar="[JOB|BUDGET]", help="A job's id or name, or a budget's id; none: the project.")
]
Amount = Annotated[str, typer.Argument(metavar="USD", help="US dollars, such as 12.50.")]


@app.command("show", epilog=examples("godwit budget show", "godwit budget show my-job"))
def show(target: Target = None, as_json: Json = False) -> None:
    """Show one budget: cap, spent, reserved, remaining."""
    with open_client() as client:
        budget = _find(client, target)
    _print(budget, as_json)


@app.command("list", epilog=examples("godwit budget list --json"))
def list_budgets(as_json: Json = False) -> None:
    """List the project's budget and its jobs'."""
    with open_client() as client:
        budgets = client.budgets()
    if as_json:
        print_json(budgets)
        return
    rows = [
        (
            budget.id,
            budget.job_id or "project",
            usd(budget.cap_usd),
            usd(budget.spent_usd),
            usd(budget.reserved_usd),
            usd(budget.remaining_usd),
        )
        for budget in budgets
    ]
    columns = ("ID", "COVERS", "CAP", "SPENT", "RESERVED", "REMAINING")
    print_table(columns, rows, right=columns[2:])


@app.command("set", epilog=examples("godwit budget set 100", "godwit budget set 25.00 my-job"))
def set_cap(amount: Amount, target: Target = None, as_json: Json = False) -> None:
    """Set a cap. Without a target: the project's budget, which is made if there is none."""
    cap = _check_amount(amount)
    with open_client() as client:
        found = _find_project_budget(client) if target is None else _find(client, target)
        budget = client.create_budget(cap) if found is None else client.set_cap(found.id, cap)
    _print(budget, as_json)


@app.command("top-up", epilog=examples("godwit budget top-up my-job 5.00"))
def top_up(
    target: Annotated[
        str, typer.Argument(metavar="JOB|BUDGET", help="A job's id or name, a budget's id, or 'project'.")
    ],
    amount: Amount,
    as_json: Json = False,
) -> None:
    """Add to a cap. Jobs that the budget stopped go on from their checkpoints."""
    usd_text = _check_amount(amount)
    with open_client() as client:
        budget = client.top_up(_find(client, None if target == "project" else target).id, usd_text)
    _print(budget, as_json)


def _find(client: Godwit, target: str | None) -> Budget:
    """Errors: CliError when there is no such budget."""
    if target is None:
        budget = _find_project_budget(client)
        if budget is None:
            raise CliError("the project has no budget", remedy="make one with 'godwit budget set USD'")
        return budget
    if target.startswith("bud-"):
        return client.budget(target)
    job_id = find_job_id(client, target)
    try:
        return client.job_budget(job_id)
    except ApiError as error:
        if error.status != 404:
            raise
        raise CliError(
            f"there is no budget of {target[:100]!r}", remedy="the project's: 'godwit budget show'"
        ) from error


def _find_project_budget(client: Godwit) -> Budget | None:
    return next((budget for budget in client.budgets() if budget.job_id is None), None)


def _check_amount(text: str) -> str:
    remedy = "give a positive amount of dollars, such as 12.50"
    try:
        amount = Decimal(text.strip().removeprefix("$"))
    except InvalidOperation as error:
        raise BadInput(f"{text[:50]!r} is not an amount", remedy=remedy) from error
    if not amount.is_finite() or not 0 < amount <= MAX_USD:
        raise BadInput(f"{text[:50]!r} is not a positive amount up to {MAX_USD:,}", remedy=remedy)
    return f"{amount:f}"


def _print(budget: Budget, as_json: bool) -> None:
    if as_json:
        print_json(budget)
        return
    share = float(budget.spent_usd / budget.cap_usd) if budget.cap_usd else 0.0
    held = float((budget.spent_usd + budget.reserved_usd) / budget.cap_usd) if budget.cap_usd else 0.0
    say(f"{budget.id} ({budget.job_id or 'project'})")
    say(f"{bar(share)} {usd(budget.spent_usd)} of {usd(budget.cap_usd)} spent ({share:.0%}), {held:.0%} with reserved")
    say(f"reserved {usd(budget.reserved_usd)}, remaining {usd(budget.remaining_usd)}")
