"""Makes a tiny model with seeded weights and a tokenizer in a folder: `model.py FOLDER [SHAPE]`.
Needs only NumPy. SHAPE is `llama`; `deep`: the same with 32 KiB of KV a token in float32; `gemma`:
two of three layers have a window, and vLLM keeps them in three groups of KV; or `qwen`, like
Qwen3-Next: three layers have linear attention and one has full attention, and vLLM's blocks have
640 tokens.

The weights are spread wider than a trained model's, so that attention is sharp and an answer
depends on the KV of single tokens. A token is a word `t7`; a prompt of token ids needs none.
"""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

VOCAB, HIDDEN, INTER, HEADS, KV_HEADS = 1024, 256, 512, 4, 2
LAYERS = {"llama": 4, "gemma": 6, "qwen": 4, "deep": 16}
HEAD_DIM = {"llama": 64, "gemma": 64, "qwen": 128, "deep": 128}
LINEAR_HEADS, VALUE_HEADS, LINEAR_DIM, CONV = 4, 8, 128, 4  # of qwen; its state has 8 * 128 * 128 elements a layer
EXPERTS, EXPERT_INTER = 2, 128  # of qwen's last layer; every token goes to all of them
QK_GAIN, HEAD_GAIN = 2.0, 3.0  # sharper attention; log-probabilities that differ

CONFIG: dict[str, Any] = {
    "hidden_size": HIDDEN,
    "intermediate_size": INTER,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "vocab_size": VOCAB,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu"}
SHAPES: dict[str, dict[str, Any]] = {
    "llama": LLAMA,
    "deep": LLAMA,
    "gemma": {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "hidden_activation": "gelu_pytorch_tanh",
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2,
        "sliding_window": 64,
        "query_pre_attn_scalar": HEAD_DIM["gemma"],
    },
    "qwen": {
        "architectures": ["Qwen3NextForCausalLM"],
        "model_type": "qwen3_next",
        "hidden_act": "silu",
        "layer_types": ["linear_attention"] * 3 + ["full_attention"],
        "linear_num_key_heads": LINEAR_HEADS,
        "linear_num_value_heads": VALUE_HEADS,
        "linear_key_head_dim": LINEAR_DIM,
        "linear_value_head_dim": LINEAR_DIM,
        "linear_conv_kernel_dim": CONV,
        "mlp_only_layers": [0, 1, 2],
        "num_experts": EXPERTS,
        "num_experts_per_tok": EXPERTS,
        "moe_intermediate_size": EXPERT_INTER,
        "shared_expert_intermediate_size": EXPERT_INTER,
    },
}

Matrix = npt.NDArray[np.float32]


class Drawn:
    """Seeded weights of one shape."""

    def __init__(self, shape: str) -> None:
        self.shape, self.rng, self.w = shape, np.random.default_rng(1), dict[str, Matrix]()

    def draw(self, name: str, out: int, into: int, gain: float = 1.0) -> None:
        self.w[name] = (self.rng.standard_normal((out, into)) * gain / np.sqrt(into)).astype(np.float32)

    def mlp(self, at: str, inter: int) -> None:
        self.draw(f"{at}gate_proj.weight", inter, HIDDEN)
        self.draw(f"{at}up_proj.weight", inter, HIDDEN)
        self.draw(f"{at}down_proj.weight", HIDDEN, inter)

    def experts(self, at: str) -> None:
        self.draw(f"{at}gate.weight", EXPERTS, HIDDEN)
        self.draw(f"{at}shared_expert_gate.weight", 1, HIDDEN)
        self.mlp(f"{at}shared_expert.", EXPERT_INTER)
        for i in range(EXPERTS):
            self.mlp(f"{at}experts.{i}.", EXPERT_INTER)

    def attention(self, at: str) -> None:
        dim = HEAD_DIM[self.shape]
        gate = 2 if self.shape == "qwen" else 1  # beside each query
        self.draw(f"{at}q_proj.weight", gate * HEADS * dim, HIDDEN, QK_GAIN)
        self.draw(f"{at}k_proj.weight", KV_HEADS * dim, HIDDEN, QK_GAIN)
        self.draw(f"{at}v_proj.weight", KV_HEADS * dim, HIDDEN)
        self.draw(f"{at}o_proj.weight", HIDDEN, HEADS * dim)
        if self.shape in ("gemma", "qwen"):  # norms of q and k, whose weights are increased by 1, make attention sharp there
            self.w |= {f"{at}{norm}_norm.weight": np.full(dim, QK_GAIN - 1, np.float32) for norm in "qk"}

    def linear_attention(self, at: str) -> None:
        """Adds linear attention whose heads forget within tens to thousands of tokens."""
        keys, values = LINEAR_HEADS * LINEAR_DIM, VALUE_HEADS * LINEAR_DIM
        self.draw(f"{at}in_proj_qkvz.weight", 2 * (keys + values), HIDDEN)
        self.draw(f"{at}in_proj_ba.weight", 2 * VALUE_HEADS, HIDDEN)
        self.draw(f"{at}out_proj.weight", HIDDEN, values, 2.0)
        self.draw(f"{at}conv1d.weight", 2 * keys + values, CONV)
        self.w[f"{at}conv1d.weight"].shape = (2 * keys + values, 1, CONV)
        self.w[f"{at}A_log"] = np.zeros(VALUE_HEADS, np.float32)
        self.w[f"{at}dt_bias"] = np.linspace(-8, -3, VALUE_HEADS, dtype=np.float32)
        self.w[f"{at}norm.weight"] = np.ones(LINEAR_DIM, np.float32)

    def layer(self, i: int) -> None:
        at = f"model.layers.{i}."
        is_qwen, is_last = self.shape == "qwen", i == LAYERS[self.shape] - 1
        if is_qwen and not is_last:
            self.linear_attention(f"{at}linear_attn.")
        else:
            self.attention(f"{at}self_attn.")
        if is_qwen and is_last:
            self.experts(f"{at}mlp.")
        else:
            self.mlp(f"{at}mlp.", INTER)
        norms = ["input", "post_attention"]
        norms += ["pre_feedforward", "post_feedforward"] if self.shape == "gemma" else []
        self.w |= {f"{at}{norm}_layernorm.weight": self.norm() for norm in norms}

    def norm(self) -> Matrix:
        """Returns the weights of a norm: all shapes except llama and deep add 1 to them."""
        return np.full(HIDDEN, 1 if self.shape in ("llama", "deep") else 0, np.float32)


def weights(shape: str) -> dict[str, Matrix]:
    drawn = Drawn(shape)
    scale = np.sqrt(HIDDEN) if shape == "gemma" else 1  # Gemma multiplies embeddings by it
    drawn.draw("model.embed_tokens.weight", VOCAB, HIDDEN, np.sqrt(HIDDEN) / scale)
    for i in range(LAYERS[shape]):
        drawn.layer(i)
    drawn.w["model.norm.weight"] = drawn.norm()
    drawn.draw("lm_head.weight", VOCAB, HIDDEN, HEAD_GAIN)
    return drawn.w


def bfloat16(values: Matrix) -> npt.NDArray[np.uint16]:
    """Returns the upper half of each float32, rounded to nearest, ties to even."""
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def write_safetensors(path: Path, tensors: dict[str, Matrix]) -> None:
    """Writes the header's length, the header as JSON, and all tensors one after the other."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, values in tensors.items():
        header[name] = {"dtype": "BF16", "shape": list(values.shape), "data_offsets": [at, at + 2 * values.size]}
        at += 2 * values.size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for values in tensors.values():
            file.write(bfloat16(values).tobytes())


def tokenizer() -> tuple[dict[str, Any], dict[str, Any]]:
    special = {"<unk>": 0, "<s>": 1, "</s>": 2}
    vocab = special | {f"t{i}": i for i in range(len(special), VOCAB)}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    words = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": i, "content": word, **flags} for word, i in special.items()],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "<unk>"},
    }
    told = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": "<unk>",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "model_max_length": CONFIG["max_position_embeddings"],
    }
    return words, told


def write_adapter(folder: Path, shape: str, n: int) -> None:
    """Writes LoRA adapter n of the attention of this folder's model, beside the model."""
    rng, rank, dim = np.random.default_rng(100 + n), 8, HEAD_DIM[shape]
    out_of = {"q": HEADS * dim, "k": KV_HEADS * dim, "v": KV_HEADS * dim}
    w = {}
    for i in range(LAYERS[shape]):
        for name, out in out_of.items():
            at = f"base_model.model.model.layers.{i}.self_attn.{name}_proj.lora_"
            w[f"{at}A.weight"] = (rng.standard_normal((rank, HIDDEN)) / np.sqrt(HIDDEN)).astype(np.float32)
            w[f"{at}B.weight"] = (rng.standard_normal((out, rank)) / np.sqrt(rank)).astype(np.float32)
    beside = folder.with_name(f"{folder.name}-adapter-{n}")
    beside.mkdir()
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": rank, "target_modules": [f"{name}_proj" for name in out_of]}
    (beside / "adapter_config.json").write_text(json.dumps(config))
    write_safetensors(beside / "adapter_model.safetensors", w)


def write(folder: Path, shape: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    words, told = tokenizer()
    config = CONFIG | SHAPES[shape] | {"num_hidden_layers": LAYERS[shape], "head_dim": HEAD_DIM[shape]}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(json.dumps(words))
    (folder / "tokenizer_config.json").write_text(json.dumps(told))
    write_safetensors(folder / "model.safetensors", weights(shape))


if __name__ == "__main__":
    write(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "llama")
