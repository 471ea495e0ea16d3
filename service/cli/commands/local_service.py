"""`up` and `down`: the service on this machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.config import Account, load_saved, save_account
from service.cli.errors import BadInput, CliError
from service.cli.extras import need_service
from service.cli.options import DataDir, Json, examples
from service.cli.output import note, print_json, say

if TYPE_CHECKING:
    from service.supervisor.control import StartOptions


def register(app: typer.Typer) -> None:
    app.command("up", epilog=examples("godwit up", "godwit up --port 0", "godwit up --foreground"))(up)
    app.command("down", epilog=examples("godwit down", "godwit down --force"))(down)


def up(
    port: Annotated[int | None, typer.Option("--port", min=0, max=65_535, help="0 picks a free one.")] = None,
    foreground: Annotated[
        bool, typer.Option("--foreground", help="Stay here until Ctrl-C; log to the terminal.")
    ] = False,
    data_dir: DataDir = None,
    market_profile: Annotated[str | None, typer.Option("--market-profile", help="The simulated market's.")] = None,
    as_json: Json = False,
) -> None:
    """Start the service on this machine and sign in to it. Starting it twice is fine."""
    options = _start_options(port, foreground, data_dir, market_profile)
    if foreground:
        note("starting; Ctrl-C stops the service and leaves nodes to their grants")
    else:
        note("starting …")
    url, is_new, key_file = _start(options)
    if foreground:
        return
    is_signed_in = _sign_in(url, key_file)
    if as_json:
        print_json({"url": url, "data_dir": str(key_file.parent), "is_new": is_new, "is_signed_in": is_signed_in})
        return
    say(f"{'Godwit runs' if is_new else 'Godwit runs already'} at {url}")
    note(f"data and logs: {key_file.parent}")
    if not is_signed_in:
        note(f"its first key is not in {key_file} any more: sign in with 'godwit login {url}'")


def down(
    force: Annotated[bool, typer.Option("--force", help="Stop the nodes of running jobs, too.")] = False,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Stop the service. While nodes run it refuses: they would train on within their grants, then drain and stop."""
    with need_service():
        from service.supervisor import control
    folder = _data_dir(data_dir)
    if not force and control.find(folder) is not None:
        _refuse_while_nodes_run(folder)
    was_running = control.stop(folder, stops_nodes=force)
    if as_json:
        print_json({"was_running": was_running})
    else:
        say("stopped" if was_running else "nothing ran")


def _start_options(
    port: int | None, foreground: bool, data_dir: Path | None, market_profile: str | None
) -> StartOptions:
    with need_service():
        from service.supervisor.control import StartOptions
        from service.supervisor.settings import SettingsInvalid, load_settings
    try:
        settings = load_settings()
    except SettingsInvalid as error:
        raise BadInput(str(error), remedy="correct the environment variable") from error
    return StartOptions(
        data_dir=data_dir or settings.data_dir,
        host=settings.host,
        port=settings.port if port is None else port,
        market_profile=market_profile or settings.market_profile,
        market_seed=settings.market_seed,
        foreground=foreground,
    )


def _start(options: StartOptions) -> tuple[str, bool, Path]:
    from service.supervisor import control
    from service.supervisor.layout import Layout

    try:
        running = control.start(options, os.environ)
    except control.PortInUse as error:
        raise CliError(str(error), remedy="choose another: godwit up --port 0 picks a free one") from error
    except control.StartFailed as error:
        raise CliError(str(error), remedy=f"see the logs in {options.data_dir / 'logs'}") from error
    except OSError as error:
        raise CliError(f"{options.data_dir}: {error.strerror}", remedy="choose another folder by --data-dir") from error
    return running.url, running.is_new, Layout(running.data_dir).key_file


def _sign_in(url: str, key_file: Path) -> bool:
    """With the first key; an account at the same URL that was saved later is kept."""
    try:
        key = key_file.read_text().strip()
    except OSError:
        saved = load_saved(os.environ)
        return saved is not None and saved.url == url
    save_account(Account(url=url, key=key), os.environ)
    return True


def _refuse_while_nodes_run(folder: Path) -> None:
    from service.supervisor import control

    try:
        clusters = control.live_clusters(folder)
    except control.CloudAway:
        return
    if clusters:
        jobs = ", ".join(sorted({cluster.job_id for cluster in clusters})[:5])
        raise CliError(
            f"{sum(cluster.num_nodes for cluster in clusters)} node(s) are running ({jobs})",
            remedy="pause or cancel the jobs first, or stop everything: godwit down --force",
        )


def _data_dir(data_dir: Path | None) -> Path:
    return data_dir or Path(os.environ.get("GODWIT_DATA_DIR") or "~/.godwit").expanduser()
