"""`python -m docs.generator`: write every page of the reference."""

from __future__ import annotations

from docs.generator.pages import FOLDER, PAGES

for _name, _write in PAGES.items():
    (FOLDER / _name).write_text(_write(), encoding="utf-8")
