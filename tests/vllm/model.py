"""Makes a tiny model of seeded weights in a folder, with a tokenizer: `model.py FOLDER [SHAPE]`. Needs NumPy alone. SHAPE is
`llama`, or `gemma`: of three layers two have a window, which vLLM keeps in three groups of KV.

The weights are spread wider than a trained model's, so that attention is sharp and an answer depends on the KV of single
tokens. A token is a word `t7`; a prompt of token ids needs none.
"""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

VOCAB, HIDDEN, INTER, HEADS, KV_HEADS, HEAD_DIM = 1024, 256, 512, 4, 2, 64
LAYERS = {"llama": 4, "gemma": 6}
QK_GAIN, HEAD_GAIN = 2.0, 3.0  # sharper attention; log-probabilities that differ

CONFIG: dict[str, Any] = {
    "hidden_size": HIDDEN,
    "intermediate_size": INTER,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "vocab_size": VOCAB,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
SHAPES: dict[str, dict[str, Any]] = {
    "llama": {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu"},
    "gemma": {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "hidden_activation": "gelu_pytorch_tanh",
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2,
        "sliding_window": 64,
        "query_pre_attn_scalar": HEAD_DIM,
    },
}

Matrix = npt.NDArray[np.float32]


def norms(shape: str, layer: int) -> dict[str, Matrix]:
    """A Gemma adds 1 to their weights, and has some between q and k, which make attention sharp there."""
    at, one = f"model.layers.{layer}.", np.ones(HIDDEN, np.float32)
    if shape == "llama":
        return {f"{at}{norm}_layernorm.weight": one for norm in ("input", "post_attention")}
    outer = ("input", "post_attention", "pre_feedforward", "post_feedforward")
    gain = np.full(HEAD_DIM, QK_GAIN - 1, np.float32)
    return {f"{at}{norm}_layernorm.weight": 0 * one for norm in outer} | {
        f"{at}self_attn.{norm}_norm.weight": gain for norm in "qk"
    }


def weights(shape: str) -> dict[str, Matrix]:
    rng = np.random.default_rng(1)

    def random(out: int, into: int, gain: float = 1.0) -> Matrix:
        drawn: Matrix = (rng.standard_normal((out, into)) * gain / np.sqrt(into)).astype(np.float32)
        return drawn

    scale = 1 if shape == "llama" else np.sqrt(HIDDEN)  # by which a Gemma multiplies them
    w = {"model.embed_tokens.weight": (rng.standard_normal((VOCAB, HIDDEN)) / scale).astype(np.float32)}
    for i in range(LAYERS[shape]):
        at, mlp = f"model.layers.{i}.self_attn.", f"model.layers.{i}.mlp."
        w[f"{at}q_proj.weight"] = random(HEADS * HEAD_DIM, HIDDEN, QK_GAIN)
        w[f"{at}k_proj.weight"] = random(KV_HEADS * HEAD_DIM, HIDDEN, QK_GAIN)
        w[f"{at}v_proj.weight"] = random(KV_HEADS * HEAD_DIM, HIDDEN)
        w[f"{at}o_proj.weight"] = random(HIDDEN, HEADS * HEAD_DIM)
        w[f"{mlp}gate_proj.weight"] = random(INTER, HIDDEN)
        w[f"{mlp}up_proj.weight"] = random(INTER, HIDDEN)
        w[f"{mlp}down_proj.weight"] = random(HIDDEN, INTER)
        w |= norms(shape, i)
    w["model.norm.weight"] = np.full(HIDDEN, 1 if shape == "llama" else 0, np.float32)
    w["lm_head.weight"] = random(VOCAB, HIDDEN, HEAD_GAIN)
    return w


def bfloat16(values: Matrix) -> npt.NDArray[np.uint16]:
    """The upper half of each float32, rounded to nearest, to even where it is between."""
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def write_safetensors(path: Path, tensors: dict[str, Matrix]) -> None:
    """A header's length, the header as JSON, and all tensors one after the other."""
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


def write(folder: Path, shape: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    words, told = tokenizer()
    config = CONFIG | SHAPES[shape] | {"num_hidden_layers": LAYERS[shape]}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(json.dumps(words))
    (folder / "tokenizer_config.json").write_text(json.dumps(told))
    write_safetensors(folder / "model.safetensors", weights(shape))


if __name__ == "__main__":
    write(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "llama")
