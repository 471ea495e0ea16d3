"""Continue a prompt, token by token."""

from __future__ import annotations

import torch

from training.model.gpt import Gpt

TEMPERATURE = 0.7
TOP_K = 40


@torch.no_grad()
def generate(model: Gpt, prompt: list[int], *, count: int, vocab_size: int, stop: int, seed: int = 0) -> list[int]:
    """At most `count` new ids after a non-empty prompt, ending early at `stop`; the same for the same seed.

    Ids from `vocab_size` on, which the tokeniser does not know, are never drawn.
    """
    model.eval()
    device = model.tokens.weight.device
    random = torch.Generator(device).manual_seed(seed)
    ids = list(prompt)
    while len(ids) < len(prompt) + count:
        window = torch.tensor([ids[-model.spec.context_length :]], device=device)
        logits = model(window)[0, -1, :vocab_size].float() / TEMPERATURE
        best, indices = logits.topk(min(TOP_K, vocab_size))
        choice = int(indices[torch.multinomial(best.softmax(-1), 1, generator=random)])
        if choice == stop:
            break
        ids.append(choice)
    return ids[len(prompt) :]
