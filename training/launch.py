"""Start the runtime by this file's path: `python -P …/training/launch.py run`.

A user's own `training/` folder in the working directory would hide this package from `python -m training`. So this file
puts the package to which it belongs in place by its path, before anything is imported from it; `-P` keeps the file's own
folder off the path. It imports nothing of the package at its top.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path


def load_own_package() -> None:
    """Make `training` the package around this file."""
    folder = Path(__file__).resolve().parent
    location = folder / "__init__.py"
    spec = importlib.util.spec_from_file_location("training", location, submodule_search_locations=[str(folder)])
    if spec is None or spec.loader is None:
        raise ImportError(f"{location} is missing")
    package = importlib.util.module_from_spec(spec)
    sys.modules["training"] = package
    spec.loader.exec_module(package)


if __name__ == "__main__":
    load_own_package()
    from training.cli import main

    raise SystemExit(main())
