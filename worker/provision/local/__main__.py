"""`python -m worker.provision.local --data DIR [--profile NAME|FILE] [--seed N] [--time-scale X]`: the local cloud."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from worker.provision.local.boot import NODE_COMMAND
from worker.provision.local.daemon import FolderInUse, serve
from worker.provision.local.profile import read_profile


def main(arguments: list[str] | None = None) -> int:
    """Serve. 0 after a signal, 2 for a bad profile or folder."""
    parser = argparse.ArgumentParser(prog="python -m worker.provision.local", description="A cloud on this machine.")
    parser.add_argument("--data", type=Path, required=True, help="where clusters and the daemon's address are kept")
    parser.add_argument(
        "--profile", default="default", help="a shipped market profile (default, demo, stormy) or a file"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the market")
    parser.add_argument("--time-scale", type=float, help="how many seconds of the market pass in one")
    parser.add_argument(
        "--node-command",
        nargs=argparse.REMAINDER,
        default=NODE_COMMAND,
        help="what nodes run instead of the agent; last",
    )
    chosen = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        profile = read_profile(chosen.profile, time_scale=chosen.time_scale)
        serve(chosen.data, profile, chosen.seed, chosen.node_command)
    except (FolderInUse, ValueError, OSError) as error:
        sys.stderr.write(f"the local cloud cannot start: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
