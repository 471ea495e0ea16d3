"""`python -m service.supervisor`: started by `godwit up`, which hands over the lock and the API's socket."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from service.supervisor.children import embedded_children
from service.supervisor.layout import Layout
from service.supervisor.processes import identify
from service.supervisor.supervise import StartFailed, Supervisor


def main() -> int:
    options = _parse()
    if options.detach and os.fork():
        return 0
    if options.detach:
        os.setsid()
    layout = Layout(options.data_dir)
    children = embedded_children(
        layout,
        os.environ,
        socket_fd=options.socket_fd,
        market_profile=options.market_profile,
        market_seed=options.market_seed,
    )
    supervisor = Supervisor(
        layout=layout,
        specs=children,
        environment=os.environ,
        url=options.url,
        socket_fd=options.socket_fd,
        parent=identify(options.parent) if options.parent else None,
    )
    try:
        supervisor.run()
    except StartFailed as failure:
        sys.stderr.write(f"{failure}\n")
        return 1
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--url", required=True)
    parser.add_argument("--socket-fd", type=int, required=True)
    parser.add_argument("--lock-fd", type=int, required=True, help="held by being open, for as long as this lives")
    parser.add_argument("--market-profile", default="default")
    parser.add_argument("--market-seed", type=int, default=0)
    parser.add_argument("--parent", type=int, help="stop, nodes included, when this process ends")
    parser.add_argument("--detach", action="store_true", help="go on in the background")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
