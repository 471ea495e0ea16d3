"""Writes a few files. A folder named `training` beside this one is yours, and hides nothing of Godwit's."""

import os
from pathlib import Path

from training.words import greet

Path("figures").mkdir(exist_ok=True)
Path("figures/greeting.txt").write_text(greet(os.environ["COLOUR"]))
Path(os.environ.get("GODWIT_OUTPUT_DIR", "."), "done.txt").write_text("whatever lies here is kept too\n")
