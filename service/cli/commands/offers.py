"""`offers`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from service.cli.connect import open_client
from service.cli.options import Json, examples
from service.cli.output import print_json, print_table
from service.cli.views.formats import hourly

_Filter = Annotated[str | None, typer.Option(help="Only offers that have this.")]


def register(app: typer.Typer) -> None:
    app.command("offers", epilog=examples("godwit offers", "godwit offers --market spot --accelerators H100:8"))(offers)


def offers(
    market: _Filter = None,
    region: _Filter = None,
    zone: _Filter = None,
    provider: _Filter = None,
    instance_type: _Filter = None,
    accelerators: _Filter = None,
    as_json: Json = False,
) -> None:
    """List offers with their prices now, cheapest first."""
    filters = {
        "market": market,
        "region": region,
        "zone": zone,
        "provider": provider,
        "instance_type": instance_type,
        "accelerators": accelerators,
    }
    with open_client() as client:
        found = client.offers(filters)
    if as_json:
        print_json(found)
        return
    now = datetime.now(UTC)
    rows = [
        (
            offer.provider,
            offer.zone,
            offer.instance_type,
            offer.accelerators,
            offer.market,
            hourly(offer.hourly_usd),
            hourly(offer.on_demand_hourly_usd),
            offer.preemptions_24h,
            "no capacity" if offer.unavailable_until and offer.unavailable_until > now else "yes",
        )
        for offer in found
    ]
    columns = (
        "PROVIDER",
        "ZONE",
        "TYPE",
        "ACCELERATORS",
        "MARKET",
        "PRICE",
        "ON DEMAND",
        "PREEMPTIONS 24H",
        "AVAILABLE",
    )
    print_table(columns, rows, right=("PRICE", "ON DEMAND", "PREEMPTIONS 24H"))
