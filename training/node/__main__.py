"""`python -P -m training.node --spec LAUNCH_SPEC.json`: the composition root, and the only reader of the environment."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
from pathlib import Path

from pydantic import ValidationError

from training.node.agent import Agent, Parts
from training.node.bucket_access import BucketAccess
from training.node.children import Watchdog, adopt_orphans
from training.node.clock import utc_now
from training.node.environment import secret_values, take_token
from training.node.layout import prepare_layout
from training.node.link import HttpLink
from training.node.logs import LogSink
from training.node.notices import build_readers
from training.node.redaction import Redactor
from training.protocol.launch_spec import TOKEN_ENV, LaunchSpec
from training.protocol.rank_contract import CACHE_DIR

MAX_SPEC_BYTES = 4 * 1024 * 1024
EXIT_USAGE = 64


def main() -> int:
    parser = argparse.ArgumentParser(prog="training.node", description="Supervise one node of one attempt.")
    parser.add_argument("--spec", type=Path, required=True, help="the launch spec, a JSON file")
    path: Path = parser.parse_args().spec
    try:
        spec = read_spec(path)
        token = take_token(os.environ)
    except (OSError, ValueError) as error:
        return _refuse(f"{path}: {error}")
    except KeyError:
        return _refuse(f"{TOKEN_ENV} is not set")
    _lead_session()
    return Agent(_assemble(spec, token)).run()


def read_spec(path: Path) -> LaunchSpec:
    """Errors: OSError, ValueError, which names the fields and none of their values."""
    if path.stat().st_size > MAX_SPEC_BYTES:
        raise ValueError(f"larger than {MAX_SPEC_BYTES} bytes")
    try:
        return LaunchSpec.model_validate_json(path.read_bytes())
    except ValidationError as error:
        faults = (f"{'.'.join(map(str, entry['loc']))}: {entry['msg']}" for entry in error.errors(include_input=False))
        raise ValueError("; ".join(faults)) from None


def _assemble(spec: LaunchSpec, token: str) -> Parts:
    cache = os.environ.get(CACHE_DIR)
    layout = prepare_layout(Path.cwd(), Path(cache) if cache else None)
    return Parts(
        spec=spec,
        layout=layout,
        link=HttpLink(spec.service_url, token),
        bucket=BucketAccess(spec.checkpoint_root),
        sink=LogSink(layout.logs, Redactor((token, *secret_values(os.environ)))),
        watchdog=Watchdog(),
        readers=build_readers(os.environ, utc_now),
        environment=dict(os.environ),
    )


def _lead_session() -> None:
    adopt_orphans()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    # A process group's leader, as an interactive shell starts one, cannot lead a session; then the groups must do.
    with contextlib.suppress(PermissionError):
        os.setsid()


def _refuse(reason: str) -> int:
    sys.stderr.write(f"godwit-node: {reason}\n")
    return EXIT_USAGE


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    # Threads may hang in a bucket that does not answer; the node's end does not wait for them.
    os._exit(code)
