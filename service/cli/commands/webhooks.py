"""`webhooks add | ls | rm | test | deliveries | replay`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from service.cli.connect import open_client
from service.cli.options import Json, Limit, examples
from service.cli.output import note, print_json, print_table, say
from service.cli.views.formats import ago

app = typer.Typer(help="Signed messages to your servers when something happens.", no_args_is_help=True)
WebhookId = Annotated[str, typer.Argument(metavar="WEBHOOK", help="The webhook's id.")]


@app.command("add", epilog=examples("godwit webhooks add https://example.com/hook --event 'job.*'"))
def add(
    url: Annotated[str, typer.Argument(help="Where to send.")],
    event: Annotated[list[str] | None, typer.Option("--event", help="Only this type, or 'job.*'. Repeatable.")] = None,
    as_json: Json = False,
) -> None:
    """Register a receiver. The signing secret is shown this once."""
    with open_client() as client:
        webhook = client.create_webhook(url, event or [])
    if as_json:
        print_json(webhook)
        return
    say(f"{webhook.id}  {webhook.url}")
    say(f"secret: {webhook.secret}")
    note("keep the secret: it is not shown again")


@app.command("ls", epilog=examples("godwit webhooks ls"))
def ls(as_json: Json = False) -> None:
    """List the receivers."""
    with open_client() as client:
        found = client.webhooks()
    if as_json:
        print_json(found)
        return
    rows = [
        (
            webhook.id,
            webhook.url,
            ", ".join(webhook.event_types) or "all",
            "enabled" if webhook.is_enabled else f"disabled: {webhook.disabled_reason}",
        )
        for webhook in found
    ]
    print_table(("ID", "URL", "EVENTS", "STATE"), rows)


@app.command("rm", epilog=examples("godwit webhooks rm whk-0123456789ab"))
def rm(webhook: WebhookId, as_json: Json = False) -> None:
    """Delete a receiver with its deliveries."""
    with open_client() as client:
        client.delete_webhook(webhook)
    if as_json:
        print_json({"deleted": webhook})
    else:
        say(f"deleted {webhook}")


@app.command("test", epilog=examples("godwit webhooks test whk-0123456789ab"))
def send_test(webhook: WebhookId, as_json: Json = False) -> None:
    """Send the event webhook.test to one receiver."""
    with open_client() as client:
        queued = client.test_webhook(webhook)
    if as_json:
        print_json(queued)
    else:
        say(f"webhook.test is on its way; see 'godwit webhooks deliveries {webhook}'")


@app.command("deliveries", epilog=examples("godwit webhooks deliveries whk-0123456789ab --state dead"))
def deliveries(
    webhook: WebhookId,
    state: Annotated[str | None, typer.Option("--state", help="Only deliveries in this state.")] = None,
    limit: Limit = 50,
    as_json: Json = False,
) -> None:
    """List what was sent and what came of it, newest first."""
    with open_client() as client:
        found = client.deliveries(webhook, state=state, limit=limit)
    if as_json:
        print_json(found)
        return
    now = datetime.now(UTC)
    rows = [
        (
            delivery.id,
            delivery.event_type,
            delivery.state,
            delivery.tries,
            delivery.response_status,
            delivery.error,
            ago(delivery.created_at, now),
        )
        for delivery in found
    ]
    print_table(("ID", "EVENT", "STATE", "TRIES", "STATUS", "ERROR", "CREATED"), rows, right=("TRIES", "STATUS"))


@app.command("replay", epilog=examples("godwit webhooks replay whk-0123456789ab dlv-0123456789ab"))
def replay(
    webhook: WebhookId,
    delivery: Annotated[str, typer.Argument(metavar="DELIVERY", help="The delivery's id.")],
    as_json: Json = False,
) -> None:
    """Send one delivery once more, with the same message id."""
    with open_client() as client:
        again = client.replay(webhook, delivery)
    if as_json:
        print_json(again)
    else:
        say(f"{again.id} is {again.state}")
