"""What a finished run leaves as outputs: `final.json`, the tokeniser, and a generated sample where one was asked for."""

from __future__ import annotations

import json
from pathlib import Path

from training.checkpoint.state import Progress
from training.data.tokenizer import END_OF_TEXT_ID, Tokenizer
from training.generate import generate
from training.trainer import RunParts


def write_outputs(parts: RunParts, progress: Progress, tokenizer: Tokenizer) -> None:
    """Each file appears whole, by rename."""
    folder, spec = parts.env.output_dir, parts.config.spec
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "final.json", json.dumps(describe_end(progress), indent=1) + "\n")
    _write(folder / "tokenizer.json", tokenizer.definition.decode())
    if spec.sample_prompt is not None:
        prompt = tokenizer.encode(spec.sample_prompt) or [END_OF_TEXT_ID]
        ids = generate(
            parts.model, prompt, count=spec.sample_tokens, vocab_size=tokenizer.vocab_size, stop=END_OF_TEXT_ID
        )
        _write(folder / "sample.txt", spec.sample_prompt + tokenizer.decode(ids))


def describe_end(progress: Progress) -> dict[str, int | float | None]:
    return {
        "steps": progress.step,
        "tokens": progress.tokens,
        "first_loss": progress.first_loss,
        "final_loss": progress.last_loss,
        "average_loss": progress.average_loss,
        "val_loss": progress.val_loss,
        "best_val_loss": progress.best_val_loss,
        "skipped_steps": progress.skipped_steps,
    }


def _write(path: Path, text: str) -> None:
    building = path.with_name(f".{path.name}")
    building.write_text(text, encoding="utf-8")
    building.replace(path)
