"""The API on a socket that the supervisor holds: while the API restarts, callers wait instead of being refused."""

from __future__ import annotations

import argparse
import socket

import uvicorn

KEEP_ALIVE_SECONDS = 75
"""Longer than the idle time of common load balancers, or they meet closed connections."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fd", type=int, required=True, help="a listening socket, inherited")
    listener = socket.socket(fileno=parser.parse_args().fd)
    config = uvicorn.Config(
        "service.app:create_app",
        factory=True,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=3,
        access_log=False,
        log_level="warning",
        server_header=False,
    )
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
