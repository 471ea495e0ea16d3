"""One node's rank of a gang that saves in shards. `sharded_trainer.py LAST_STEP SAVE_EVERY [NODE:STEP]`.

Each node saves a shard of its own; the node of NODE:STEP leaves that step's save out. After the last step it waits to be
told to end. A drain saves at step 1000, on which the ranks of a real gang would agree.
"""

import json
import os
import pathlib
import signal
import sys
import time

asked = set()
signal.signal(signal.SIGTERM, lambda *_: asked.add("end"))

node = int(os.environ["GODWIT_NODE_RANK"])
last, every = int(sys.argv[1]), int(sys.argv[2])
left_out = sys.argv[3] if len(sys.argv) > 3 else None
folder = pathlib.Path(os.environ["GODWIT_CHECKPOINT_DIR"])
resume = os.environ.get("GODWIT_RESUME_DIR")
step = int((pathlib.Path(resume) / f"step-{node}.txt").read_text()) if resume else 0


def save():
    if f"{node}:{step}" == left_out:
        return
    partial = folder / f".{step}"
    (partial / "shards").mkdir(parents=True)
    (partial / "all-nodes").touch()
    (partial / f"step-{node}.txt").write_text(str(step))
    (partial / "shards" / "weights.bin").write_bytes(bytes([node, step % 256]) * 2048)
    if node == 0:
        (partial / "common.txt").write_text("of node 0")
    partial.rename(folder / str(step))


with open(os.environ["GODWIT_METRICS_FILE"], "a", buffering=1) as metrics:  # noqa: PTH123 - line-buffered
    while "end" not in asked:
        time.sleep(0.02)
        if step < last:
            step += 1
            metrics.write(json.dumps({"step": step}) + "\n")
            if step % every == 0:
                save()
step = 1000
save()
sys.exit(75)
