"""A small node for tests: says which processes it made, then waits. What it does is in NODE_BEHAVIOUR.

`wait`: nothing more. `exit`: ends at once. `tree`: a child in its own process group with a grandchild, and a child in a
session of its own. The environment and the pids are written to `node.json` in the working folder.
"""

import json
import os
import signal
import sys
from pathlib import Path


def pause_in_child(*, group: bool = False, session: bool = False, has_child: bool = False) -> list[int]:
    """Fork a process that waits; its pid and its child's."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if group:
            os.setpgid(0, 0)
        if session:
            os.setsid()
        below = pause_in_child() if has_child else []
        os.write(writer, json.dumps([os.getpid(), *below]).encode())
        os.close(writer)
        while True:
            signal.pause()
    os.close(writer)
    return json.loads(os.read(reader, 1000))


def main() -> None:
    spec = json.loads(Path(sys.argv[sys.argv.index("--spec") + 1]).read_text())
    behaviour = os.environ.get("NODE_BEHAVIOUR", "wait")
    pids = [os.getpid()]
    if behaviour == "tree":
        pids += pause_in_child(group=True, has_child=True) + pause_in_child(session=True)
    told = {"pids": pids, "environment": dict(os.environ), "rendezvous": spec["rendezvous"]}
    part = Path("node.json.part")
    part.write_text(json.dumps(told))
    part.rename("node.json")
    while behaviour != "exit":
        signal.pause()


main()
