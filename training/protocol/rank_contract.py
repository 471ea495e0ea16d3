"""The contract between the node agent and the ranks, the same for the bundled runtime and for any user's command.

Files (all local to the node):
- A checkpoint is a folder `$GODWIT_CHECKPOINT_DIR/<step>` that appears by rename with its `manifest.json`. The agent
  uploads it under `<step>-<fence>`. A command that writes no manifests renames a finished folder of any files to
  `$GODWIT_CHECKPOINT_DIR/<step>`: the agent then hashes it and writes the manifest.
- A checkpoint in shards: every node saves a folder of the same step, each with an empty file `all-nodes` in it. Node 0's
  files keep their paths, node k's go under `node-<k>/`, and the checkpoint exists once all of them are in the bucket.
  Node 0's may not be named `node-*`, `parts` or `restores` at the top. Folders that other nodes save without the marker
  stay where they are: node 0 alone saves everything.
- `$GODWIT_RESUME_DIR` holds the verified checkpoint to resume from; it is unset when there is none.
  Of a checkpoint in shards a node finds node 0's files and its own, at the root (its own win where names meet); when
  another number of nodes saved it, everything, with the other nodes' files in `node-<k>/`. All nodes resume the same one.
- `$GODWIT_METRICS_FILE` takes one JSON object a line from rank 0: `{"step": 12, "loss/train": 3.2, ...}`.
- `$GODWIT_OUTPUT_DIR`: whatever is there at the end is kept as the job's outputs.

Signals: SIGUSR1 means "checkpoint now, go on"; SIGTERM means "checkpoint, then exit". A command started by `run:` whose
default handling is to die of SIGTERM counts as drained.

Exit codes: see `ExitCode`; every other code is an error of the user's code.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    COMPLETED = 0
    DRAINED = 75
    """EX_TEMPFAIL of sysexits.h: stopped at a checkpoint because it was asked to; resume me."""
    INFRASTRUCTURE = 79
    """The machine, not the code, is at fault (a lost peer, a failed device): relaunch me."""
    NO_USABLE_CHECKPOINT = 80
    """Checkpoints were promised and none could be used. Never step 0 in silence."""


JOB_ID = "GODWIT_JOB_ID"
ATTEMPT_ID = "GODWIT_ATTEMPT_ID"
FENCE = "GODWIT_FENCE"
NODE_RANK = "GODWIT_NODE_RANK"
NUM_NODES = "GODWIT_NUM_NODES"
CHECKPOINT_DIR = "GODWIT_CHECKPOINT_DIR"
RESUME_DIR = "GODWIT_RESUME_DIR"
METRICS_FILE = "GODWIT_METRICS_FILE"
OUTPUT_DIR = "GODWIT_OUTPUT_DIR"
TRAIN_SPEC_FILE = "GODWIT_TRAIN_SPEC_FILE"
CHECKPOINT_EVERY_STEPS = "GODWIT_CHECKPOINT_EVERY_STEPS"
CHECKPOINT_EVERY_SECONDS = "GODWIT_CHECKPOINT_EVERY_SECONDS"
CACHE_DIR = "GODWIT_CACHE_DIR"

ALL_NODES = "all-nodes"
"""The marker file of a checkpoint that every node of the gang saves a share of."""
