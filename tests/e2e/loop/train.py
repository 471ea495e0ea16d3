"""A training loop without torch that keeps the rank contract: each test of whole runs takes seconds with it.

Its state after n steps is a function of n alone, so a run that repeated, skipped or forgot a step ends with a wrong one.
Every step is also written to a journal outside the node, which no service can embellish.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

STEPS = int(os.environ.get("STEPS", "60"))
STEP_SECONDS = float(os.environ.get("STEP_SECONDS", "0.05"))
PAYLOAD_FILES = int(os.environ.get("PAYLOAD_FILES", "0"))
FAIL_AT = int(os.environ.get("FAIL_AT", "0"))
SAVE_EVERY = int(os.environ.get("GODWIT_CHECKPOINT_EVERY_STEPS") or 10)
RANK = int(os.environ["RANK"])
CHECKPOINTS = Path(os.environ["GODWIT_CHECKPOINT_DIR"])
RESUME = os.environ.get("GODWIT_RESUME_DIR", "")
DRAINED, NO_USABLE_CHECKPOINT = 75, 80
PAYLOAD_FILE_BYTES = 256 * 1024

requests = set()
signal.signal(signal.SIGTERM, lambda *_: requests.add("stop"))
signal.signal(signal.SIGUSR1, lambda *_: requests.add("save"))


def advance(state):
    return (state * 6364136223846793005 + 1442695040888963407) % 2**64


def save(step, state):
    building = CHECKPOINTS / f".saving-{step}"
    building.mkdir(parents=True)
    (building / "state.json").write_text(json.dumps({"step": step, "state": state}))
    for number in range(PAYLOAD_FILES):
        (building / f"payload-{number}.bin").write_bytes(os.urandom(PAYLOAD_FILE_BYTES))
    building.rename(CHECKPOINTS / str(step))


def load():
    try:
        kept = json.loads((Path(RESUME) / "state.json").read_text())
    except (OSError, ValueError) as error:
        sys.stderr.write(f"cannot resume: {error}\n")
        sys.exit(NO_USABLE_CHECKPOINT)
    return kept["step"], kept["state"]


def write_journal(step):
    line = {"fence": int(os.environ["GODWIT_FENCE"]), "rank": RANK, "step": step, "pid": os.getpid()}
    with open(os.environ["JOURNAL"], "a") as journal:  # noqa: PTH123 - one short write: whole lines from every rank
        journal.write(json.dumps(line) + "\n")


def main():
    step, state = load() if RESUME else (0, 1)
    sys.stdout.write(f"rank {RANK} begins at step {step}\n")
    with Path(os.environ["GODWIT_METRICS_FILE"]).open("a", buffering=1) as metrics:
        while step < STEPS:
            time.sleep(STEP_SECONDS)
            step, state = step + 1, advance(state)
            write_journal(step)
            if RANK == 0:
                metrics.write(json.dumps({"step": step, "loss/train": state / 2**64}) + "\n")
            if step == FAIL_AT:
                raise ValueError(f"the data is bad at step {step}")
            if RANK == 0 and (requests or step % SAVE_EVERY == 0 or step == STEPS):
                requests.discard("save")
                save(step, state)
            if "stop" in requests and step < STEPS:
                sys.exit(DRAINED)
    if RANK == 0:
        result = {"steps": step, "state": state, "fence": int(os.environ["GODWIT_FENCE"])}
        Path(os.environ["GODWIT_OUTPUT_DIR"], "result.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
