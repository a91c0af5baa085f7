"""A task for two agents and a model of a few thousand weights: what trainers are compared on (`bench/trainer_compare.py`).

The planner reads a digit and should write its letter; the solver reads what the planner wrote and, if that is a letter,
should write its digit. The team earns half a point for each, and is paid the sum: nobody says whose half it was. The
network starts at random. It runs in any environment with torch.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from tokenizers import Tokenizer
from tokenizers import models as kinds
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

__all__ = ["DIGITS", "WORDS", "accuracy", "earned", "network", "play", "speak", "tokenizer"]

DIGITS = 4
WORDS = [*map(str, range(DIGITS)), *"abcd", "P", "S", "<end>", "<pad>"]
Columns = dict[str, list[Any]]


def tokenizer() -> PreTrainedTokenizerFast:
    """A word a token."""
    words = Tokenizer(kinds.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="<pad>"))
    return PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<end>", pad_token="<pad>")


def network(seed: int) -> LlamaForCausalLM:
    """Two layers, at random."""
    config = LlamaConfig(
        vocab_size=len(WORDS),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=16,
        tie_word_embeddings=False,
        eos_token_id=WORDS.index("<end>"),
        pad_token_id=WORDS.index("<pad>"),
        bos_token_id=None,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return LlamaForCausalLM(config)


class Spoken(NamedTuple):
    ids: list[int]
    logp: list[float]


def speak(model: Any, prompts: list[list[int]], dice: torch.Generator | None) -> Spoken:
    """The next token after each prompt, all of one length; the likeliest if there are no dice."""
    with torch.no_grad():
        logp = torch.log_softmax(model(input_ids=torch.tensor(prompts)).logits[:, -1].float(), -1)
    ids = logp.argmax(-1) if dice is None else torch.multinomial(logp.exp(), 1, generator=dice)[:, 0]
    return Spoken(ids.tolist(), logp[torch.arange(len(ids)), ids].tolist())


def play(model: Any, digits: list[int], rows: int, dice: torch.Generator, tree: bool) -> Columns:
    """For each digit as many rows: plans that one solver carries out, or in a tree three. One token a row."""
    each = 3 if tree else 1
    many = rows // (1 + each)
    tasks = [d for d in digits for _ in range(many)]
    plans = speak(model, [[WORDS.index("P"), d] for d in tasks], dice)
    asked = [[WORDS.index("S"), word] for word in plans.ids for _ in range(each)]
    answers = speak(model, asked, dice)
    columns: Columns = {name: [] for name in FIELDS}
    for n, digit in enumerate(tasks):
        for k in range(each):
            at = n * each + k
            reward = earned(digit, plans.ids[n], answers.ids[at])
            root, first = (n // many) * many * each, n * each
            of_run = {
                "task": str(digit),
                "rollout": at,
                "reward": reward,
                "parent": None if at == root or not tree else root if at == first else first,
            }
            if k == 0:
                line = [WORDS.index("P"), digit]
                _add(columns, of_run, "planner", 0, line, plans.ids[n], plans.logp[n])
            _add(columns, of_run, "solver", 1, asked[at], answers.ids[at], answers.logp[at])
    return columns


def earned(digit: int, plan: int, answer: int) -> float:
    """What the team earns. Letters have the ids after those of digits."""
    return (plan == DIGITS + digit) / 2 + (plan - DIGITS in range(DIGITS) and answer == plan - DIGITS) / 2


FIELDS = "task rollout reward parent agent role turn prompt_ids completion_ids logprobs".split()


def _add(columns: Columns, of_run: dict[str, Any], who: str, turn: int, prompt: Any, ids: int, logp: float) -> None:
    row = {**of_run, "agent": who, "role": who, "turn": turn}
    row |= {"prompt_ids": prompt, "completion_ids": [ids], "logprobs": [logp]}
    for name, values in columns.items():
        values.append(row[name])


def accuracy(model: Any) -> float:
    """What the team earns on average, exactly: over all that it may say, mean over digits. At most 1."""
    every = range(len(WORDS))
    with torch.no_grad():
        plan = torch.softmax(model(torch.tensor([[WORDS.index("P"), d] for d in range(DIGITS)])).logits[:, -1], -1)
        answer = torch.softmax(model(torch.tensor([[WORDS.index("S"), w] for w in every])).logits[:, -1], -1)
    pays = torch.tensor([[[earned(d, w, a) for a in every] for w in every] for d in range(DIGITS)])
    return float(torch.einsum("dw,wa,dwa->d", plan, answer, pays).mean())
