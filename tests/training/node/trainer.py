"""A rank for tests: counts steps, keeps the ranks' contract. `trainer.py LAST_STEP SAVE_EVERY PAUSE_SECONDS`."""

import json
import os
import pathlib
import signal
import sys
import time

asked = set()
signal.signal(signal.SIGTERM, lambda *_: asked.add("end"))
signal.signal(signal.SIGUSR1, lambda *_: asked.add("save"))

last, every, pause = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
folder = pathlib.Path(os.environ["GODWIT_CHECKPOINT_DIR"])
resume = os.environ.get("GODWIT_RESUME_DIR")
step = int((pathlib.Path(resume) / "step.txt").read_text()) if resume else 0


def save():
    if (folder / str(step)).exists():
        return
    partial = folder / f".{step}"
    (partial / "shards").mkdir(parents=True)
    (partial / "step.txt").write_text(str(step))
    (partial / "shards" / "weights.bin").write_bytes(bytes([step % 256]) * 4096)
    partial.rename(folder / str(step))


with open(os.environ["GODWIT_METRICS_FILE"], "a", buffering=1) as metrics:  # noqa: PTH123 - line-buffered
    while step < last:
        time.sleep(pause)
        step += 1
        metrics.write(json.dumps({"step": step, "loss/train": 1 / step}) + "\n")
        if step % every == 0 or asked:
            asked.discard("save")
            save()
        if "end" in asked:
            sys.exit(75)
(pathlib.Path(os.environ["GODWIT_OUTPUT_DIR"]) / "result.txt").write_text(f"{step} steps")
