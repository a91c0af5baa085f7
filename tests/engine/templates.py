"""A conversation under a chat template: a tokenizer by bytes with some special tokens, and answers that are given."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tokenizers import AddedToken
from transformers import PreTrainedTokenizerFast

from podium.engine.dialogue import Dialogue, Message, Past, Prompt, keys, message_of
from podium.engine.models import tiny
from podium.engine.protocol import Completion

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Adds.",
            "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
        },
    }
]


def dialogue(template: str, end: str = "<|im_end|>", special: tuple[str, ...] = (), calls: str = "") -> Dialogue:
    backend = tiny().tokenizer.backend_tokenizer
    backend.add_special_tokens([AddedToken(word, special=True) for word in (end, *special)])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token=end, bos_token=special[0] if special else None
    )
    tokenizer.chat_template = template

    def text(ids: Any) -> str:
        return str(tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))

    return Dialogue(
        SimpleNamespace(name="a model", tokenizer=tokenizer, end=tokenizer.eos_token_id, text=text), calls
    )


def answered(
    talk: Dialogue, messages: list[Message], said: str, before: Past | None = None, ended: bool = True
) -> tuple[Past, list[Message]]:
    """The conversation after an answer of these words."""
    prompt = talk.prompt(messages, TOOLS, before)
    ids = tuple(talk.model.tokenizer(said, add_special_tokens=False)["input_ids"])
    answer = Completion((*ids, talk.model.end) if ended else ids, (0.0,) * (len(ids) + ended), ended)
    spoken = talk.spoken(answer, TOOLS)
    whole = [*messages, message_of(spoken.message())]
    return Past(prompt, answer, spoken, [*keys(whole, TOOLS)][-1]), whole


def goes_on(talk: Dialogue, said: str, more: list[Message], ended: bool = True) -> Prompt:
    """What is read for a conversation that goes on from an answer; its ids are checked against its text."""
    past, whole = answered(
        talk, [{"role": "system", "content": "be short"}, {"role": "user", "content": "hello"}], said, None, ended
    )
    prompt = talk.prompt([*whole, *more], TOOLS, past)
    read = talk.model.tokenizer.decode(
        list(prompt.context.all_ids()), skip_special_tokens=False, clean_up_tokenization_spaces=False
    )
    if prompt.link in ("start", "clean", "fork"):  # what is read is what the template writes
        assert read == prompt.text
    if prompt.link in ("clean", "realigned"):  # what was read and said comes first, id by id
        before = (*past.prompt.context.all_ids(), *past.answer.ids)
        assert prompt.context.all_ids()[: len(before)] == before
        assert prompt.context.parent is not None
    else:
        assert prompt.context.parent is None
    return prompt
