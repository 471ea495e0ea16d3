"""A plain PyTorch loop as a job: nothing of Godwit is imported, the environment alone says where things go.

It fits a small network to a sine. Run it by hand with `python train.py`; as a job it is stopped, moved and resumed.
"""

import json
import os
import signal
import sys
from pathlib import Path

import torch

STEPS = int(os.environ.get("STEPS", "400"))
CHECKPOINTS = Path(os.environ.get("GODWIT_CHECKPOINT_DIR", "checkpoints"))
OUTPUT = Path(os.environ.get("GODWIT_OUTPUT_DIR", "outputs"))
METRICS = Path(os.environ.get("GODWIT_METRICS_FILE", "metrics.jsonl"))
RESUME = os.environ.get("GODWIT_RESUME_DIR")
SAVE_EVERY = int(os.environ.get("GODWIT_CHECKPOINT_EVERY_STEPS") or 50)
DRAINED, NO_USABLE_CHECKPOINT = 75, 80

requests = set()
signal.signal(signal.SIGTERM, lambda *_: requests.add("stop"))
signal.signal(signal.SIGUSR1, lambda *_: requests.add("save"))

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(1, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)


def save(step):
    """Write beside, then rename: a checkpoint is there whole or not at all."""
    building = CHECKPOINTS / f".saving-{step}"
    building.mkdir(parents=True, exist_ok=True)
    state = {
        "step": step,
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "rng": torch.get_rng_state(),
    }
    with (building / "state.pt").open("wb") as stream:
        torch.save(state, stream)
        stream.flush()
        os.fsync(stream.fileno())
    if not (CHECKPOINTS / str(step)).exists():
        building.rename(CHECKPOINTS / str(step))


def load(folder):
    """The step to go on from. Where a checkpoint was promised, starting from 0 would be a silent loss."""
    try:
        state = torch.load(Path(folder) / "state.pt", weights_only=True)
    except (OSError, RuntimeError) as error:
        sys.stderr.write(f"cannot resume: {error}\n")
        sys.exit(NO_USABLE_CHECKPOINT)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["rng"])
    return state["step"]


def main():
    step, last_loss = (load(RESUME) if RESUME else 0), None
    with METRICS.open("a", buffering=1) as metrics:
        while step < STEPS:
            x = torch.rand(256, 1) * 6 - 3
            loss = torch.nn.functional.mse_loss(model(x), torch.sin(x))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step, last_loss = step + 1, loss.item()
            metrics.write(json.dumps({"step": step, "loss/train": last_loss}) + "\n")
            if requests or step % SAVE_EVERY == 0 or step == STEPS:
                requests.discard("save")
                save(step)
            if "stop" in requests and step < STEPS:
                sys.exit(DRAINED)
    OUTPUT.mkdir(parents=True, exist_ok=True)
    (OUTPUT / "result.json").write_text(json.dumps({"steps": step, "loss": last_loss}))


if __name__ == "__main__":
    main()
