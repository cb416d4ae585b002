"""Sampling a continuation of a prompt."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from g2c.pretraining.arguments import check_count, check_integer_ids
from g2c.sampling.decoding import make_decoder
from g2c.sampling.distribution import SamplingOptions, next_token_distribution, sample_token


def generate(
    model: nn.Module,
    prompt_ids: torch.Tensor,
    max_new_tokens: int,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    repetition_penalty: float = 1.0,
    eos_id: int | None = None,
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    """Continue a prompt by up to ``max_new_tokens`` sampled tokens.

    Repetition penalty, temperature, top-k and top-p apply in that order. A model with recurrent
    steps or a KV cache is run that way, with the tokens that recomputing gives. Past the model's
    ``max_seq_len`` it sees the last ``max_seq_len`` tokens. No gradients are kept. The model is in
    evaluation mode while it computes, and afterwards in the mode that it was in.

    Args:
        model: maps ids (B, T) to logits (B, T, V).
        prompt_ids: (T,) integers, T >= 1.
        max_new_tokens: at least 0.
        temperature: 0 takes the most likely token each time, and draws nothing.
        top_k: sample among so many of the most likely tokens.
        top_p: sample among the fewest most likely tokens that have this mass.
        repetition_penalty: over 1 makes tokens of the prompt and the continuation less likely.
        eos_id: stop after this token, which is kept.
        generator: of any device; torch's global one unless given.

    Returns:
        (T + n,) int64 on the prompt's device: the prompt, then n <= max_new_tokens new tokens.

    Raises:
        TypeError, ValueError: arguments of another type or outside their range, an empty prompt, or
            an id outside the vocabulary.
    """
    tokens = generate_tokens(
        model,
        prompt_ids,
        max_new_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        repetition_penalty=repetition_penalty,
        eos_id=eos_id,
        generator=generator,
    )
    prompt = prompt_ids.to(torch.int64)
    return torch.cat([prompt, torch.tensor(list(tokens), dtype=torch.int64, device=prompt.device)])


def generate_tokens(
    model: nn.Module,
    prompt_ids: torch.Tensor,
    max_new_tokens: int,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    repetition_penalty: float = 1.0,
    eos_id: int | None = None,
    generator: torch.Generator | None = None,
) -> Iterator[int]:
    """Yield the new tokens of `generate` one by one, each as soon as it is chosen.

    Arguments are checked, and errors raised, by this call and not by the first ``next``.
    """
    options = SamplingOptions(temperature, top_k, top_p, repetition_penalty)
    check_count("max_new_tokens", max_new_tokens, minimum=0)
    if eos_id is not None:
        check_count("eos_id", eos_id, minimum=0)
    prompt = check_integer_ids("prompt_ids", prompt_ids, dims=1).to(torch.int64)
    if prompt.numel() == 0:
        raise ValueError("prompt_ids: expected at least one token, to continue from, got none")
    low, high = (int(bound) for bound in prompt.aminmax())
    vocab = getattr(model, "vocab_size", None)
    if low < 0 or (isinstance(vocab, int) and high >= vocab):
        wrong = low if low < 0 else high
        raise ValueError(f"prompt_ids: id {wrong} is outside the vocabulary of {vocab}")
    return _tokens(model, prompt, max_new_tokens, options, eos_id, generator)


@torch.no_grad()
def _tokens(
    model: nn.Module,
    prompt: torch.Tensor,
    max_new_tokens: int,
    options: SamplingOptions,
    eos_id: int | None,
    generator: torch.Generator | None,
) -> Iterator[int]:
    if max_new_tokens == 0:
        return
    decoder = make_decoder(model)
    logits = decoder.read(prompt)
    seen = torch.zeros(logits.shape, dtype=torch.bool, device=logits.device)
    seen[prompt.to(logits.device)] = True
    for made in range(1, max_new_tokens + 1):
        probabilities = next_token_distribution(logits, options, seen)
        if options.temperature == 0:
            token = int(probabilities.argmax())
        else:
            token = int(sample_token(probabilities, generator))
        yield token
        if token == eos_id or made == max_new_tokens:
            return
        seen[token] = True
        logits = decoder.append(token)
