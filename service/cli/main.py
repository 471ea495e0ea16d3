"""`godwit`: the commands, and how failures become messages and exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import typer
from rich.text import Text

from service.cli.commands import (
    account,
    budgets,
    control,
    database,
    demo,
    drill,
    events,
    files,
    jobs,
    keys,
    local_service,
    logs,
    offers,
    projects,
    submit,
    webhooks,
)
from service.cli.errors import CliError, ExitStatus
from service.cli.output import clean, print_json_error, stderr
from service.client.errors import ApiError, ClientError, FieldError

_EPILOG = (
    "Exit codes: 0 done; 1 failed, or refused by the service; 2 bad usage or input; 3 the service is away; "
    "4 not signed in, or not allowed; 130 interrupted.\n\n"
    "Environment: GODWIT_URL and GODWIT_API_KEY go before what 'godwit login' saved."
)
_HELP = "Train language models on interruptible machines, inside a budget that holds."
app = typer.Typer(
    name="godwit",
    help=_HELP,
    epilog=_EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)

for _module in (local_service, account, demo, submit, jobs, logs, events, control, drill, files, offers, projects):
    _module.register(app)
app.add_typer(budgets.app, name="budget")
app.add_typer(webhooks.app, name="webhooks")
app.add_typer(keys.app, name="keys")
app.add_typer(database.app, name="db")


def main() -> None:
    """The entry point."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """The exit code. Whatever a user can cause ends in a message, never in a traceback."""
    try:
        app(args=list(arguments), prog_name="godwit")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else ExitStatus.OK if end.code is None else ExitStatus.FAILED
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # whoever read has gone
        return ExitStatus.OK
    except (CliError, ClientError) as error:
        failure = _failure_of(error)
        _print_failure(failure, as_json="--json" in arguments)
        return failure.status
    return ExitStatus.OK


@dataclass(frozen=True, kw_only=True, slots=True)
class _Failure:
    status: ExitStatus
    code: str
    message: str
    remedy: str | None = None
    errors: tuple[FieldError, ...] = ()


def _failure_of(error: CliError | ClientError) -> _Failure:
    if isinstance(error, CliError):
        status, code = error.exit_status, error.exit_status.name.lower()
        return _Failure(status=status, code=code, message=error.message, remedy=error.remedy, errors=error.errors)
    if isinstance(error, ApiError):
        return _Failure(
            status=_status_of(error), code=error.code, message=str(error), remedy=error.remedy, errors=error.errors
        )
    remedy = "start it with 'godwit up', or check GODWIT_URL and 'godwit login'"
    return _Failure(status=ExitStatus.AWAY, code="away", message=f"the service is away: {error}", remedy=remedy)


def _status_of(error: ApiError) -> ExitStatus:
    if error.status in (401, 403):
        return ExitStatus.FORBIDDEN
    return ExitStatus.BAD_INPUT if error.status in (400, 413, 415, 422) else ExitStatus.FAILED


def _print_failure(failure: _Failure, *, as_json: bool) -> None:
    if as_json:
        print_json_error(failure.code, failure.message, failure.remedy, failure.errors)
        return
    console = stderr()
    console.print(Text.assemble(("error: ", "bold red"), clean(failure.message)))
    for error in failure.errors:
        fix = f" ({clean(error.remedy)})" if error.remedy else ""
        console.print(Text.assemble("  ", (clean(error.field), "bold"), f": {clean(error.message)}{fix}"))
    if failure.remedy:
        console.print(Text.assemble(("  → ", "cyan"), clean(failure.remedy)))
