"""A model of the Llama family out of a GGUF file, as a folder that transformers reads: weights as they were before
they were packed, and the tokenizer.

llama.cpp turns rows of q and k so that its rotary embedding pairs neighbours; here they are turned back. Its files
do not say that digits are split one by one before byte-level BPE, which SmolLM2's tokenizer does: that is told by
the name of the pre-tokenizer.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGUFReader
from gguf.quants import dequantize
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from podium.engine.models import BadModel

__all__ = ["convert", "restored", "tokenizer_of"]

NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
CONTROL = 3  # the type of tokens that are no text
DIGITS = ("smollm",)  # pre-tokenizers that split digits one by one


def convert(file: Path, folder: Path) -> None:
    """Writes the folder of a GGUF file, whole or not at all."""
    try:
        reader = GGUFReader(file)
        facts = {name: entry.contents() for name, entry in reader.fields.items()}
    except (OSError, ValueError) as error:
        raise BadModel(f"{file} cannot be read as GGUF: {error}") from None
    if facts.get("general.architecture") != "llama":
        raise BadModel(f"{file} holds a model of the kind {facts.get('general.architecture')!r}; expected llama")
    config = _config(facts, tied=not any(t.name == "output.weight" for t in reader.tensors))
    with torch.device("meta"):
        module = LlamaForCausalLM(config)
    weights = {weight_name(t.name): torch.from_numpy(_weight(t, config)) for t in reader.tensors}
    if config.tie_word_embeddings:
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    module.load_state_dict(weights, strict=True, assign=True)
    module.tie_weights()
    folder.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        module.save_pretrained(beside)
        tokenizer_of(facts).save_pretrained(beside)
        os.replace(beside, folder)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise


def _config(facts: dict[str, Any], tied: bool) -> LlamaConfig:
    def of(name: str) -> Any:
        return facts[f"llama.{name}"]

    return LlamaConfig(
        vocab_size=len(facts["tokenizer.ggml.tokens"]),
        hidden_size=of("embedding_length"),
        intermediate_size=of("feed_forward_length"),
        num_hidden_layers=of("block_count"),
        num_attention_heads=of("attention.head_count"),
        num_key_value_heads=of("attention.head_count_kv"),
        max_position_embeddings=of("context_length"),
        rms_norm_eps=of("attention.layer_norm_rms_epsilon"),
        rope_parameters={"rope_type": "default", "rope_theta": of("rope.freq_base")},
        tie_word_embeddings=tied,
        bos_token_id=facts.get("tokenizer.ggml.bos_token_id"),
        eos_token_id=facts.get("tokenizer.ggml.eos_token_id"),
        pad_token_id=facts.get("tokenizer.ggml.padding_token_id"),
    )


def weight_name(name: str) -> str:
    """The name of a tensor in transformers.

    >>> weight_name("blk.3.attn_q.weight")
    'model.layers.3.self_attn.q_proj.weight'
    """
    match = re.fullmatch(r"(?:blk\.(\d+)\.)?(\w+)\.weight", name)
    if match is None or match[2] not in NAMES:
        raise BadModel(f"no place for the tensor {name!r}")
    return (f"model.layers.{match[1]}." if match[1] else "") + NAMES[match[2]] + ".weight"


def _weight(tensor: Any, config: LlamaConfig) -> Any:
    values = np.array(dequantize(tensor.data, tensor.tensor_type), np.float32)
    if ".attn_q." in tensor.name:
        return restored(values, config.num_attention_heads)
    if ".attn_k." in tensor.name:
        return restored(values, config.num_key_value_heads)
    return values


def restored(values: Any, heads: int) -> Any:
    """Rows in the order of transformers: of each head the first halves of all pairs, then the second.

    >>> restored(np.array([[0], [2], [1], [3]]), 1).ravel().tolist()
    [0, 1, 2, 3]
    """
    half = values.shape[0] // heads // 2
    turned = values.reshape(heads, half, 2, *values.shape[1:]).swapaxes(1, 2)
    return np.ascontiguousarray(turned.reshape(values.shape))


def tokenizer_of(facts: dict[str, Any]) -> Any:
    """The byte-level BPE that a GGUF file describes."""
    words, types = facts["tokenizer.ggml.tokens"], facts["tokenizer.ggml.token_type"]
    if facts.get("tokenizer.ggml.model") != "gpt2":
        raise BadModel(
            f"a tokenizer of the kind {facts.get('tokenizer.ggml.model')!r}; expected gpt2, byte-level BPE"
        )
    merges = [tuple(pair.split(" ", 1)) for pair in facts["tokenizer.ggml.merges"]]
    inner = Tokenizer(models.BPE(vocab={w: i for i, w in enumerate(words)}, merges=merges))
    split: Any = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if facts.get("tokenizer.ggml.pre") in DIGITS:
        split = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), split])
    inner.pre_tokenizer, inner.decoder = split, decoders.ByteLevel()
    inner.add_special_tokens(
        [AddedToken(w, special=True) for w, t in zip(words, types, strict=True) if t == CONTROL]
    )

    def word(which: str) -> str | None:
        number = facts.get(f"tokenizer.ggml.{which}_token_id")
        return None if number is None else words[number]

    fast = PreTrainedTokenizerFast(
        tokenizer_object=inner,
        bos_token=word("bos"),
        eos_token=word("eos"),
        unk_token=word("unknown"),
        pad_token=word("padding"),
    )
    fast.chat_template = facts.get("tokenizer.chat_template")
    return fast
