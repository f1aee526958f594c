"""Makes a tiny model of seeded weights in a folder, with a tokenizer: `model.py FOLDER [SEED]`. Needs NumPy alone.

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

VOCAB, HIDDEN, INTER, LAYERS, HEADS, KV_HEADS, HEAD_DIM = 1024, 256, 512, 4, 4, 2, 64
QK_GAIN, HEAD_GAIN = 2.0, 3.0  # sharper attention; log-probabilities that differ

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": INTER,
    "num_hidden_layers": LAYERS,
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
    "hidden_act": "silu",
}

Matrix = npt.NDArray[np.float32]


def weights(seed: int) -> dict[str, Matrix]:
    rng = np.random.default_rng(seed)

    def random(out: int, into: int, gain: float = 1.0) -> Matrix:
        drawn: Matrix = (rng.standard_normal((out, into)) * gain / np.sqrt(into)).astype(np.float32)
        return drawn

    w = {"model.embed_tokens.weight": rng.standard_normal((VOCAB, HIDDEN)).astype(np.float32)}
    for i in range(LAYERS):
        at, mlp = f"model.layers.{i}.self_attn.", f"model.layers.{i}.mlp."
        w[f"{at}q_proj.weight"] = random(HEADS * HEAD_DIM, HIDDEN, QK_GAIN)
        w[f"{at}k_proj.weight"] = random(KV_HEADS * HEAD_DIM, HIDDEN, QK_GAIN)
        w[f"{at}v_proj.weight"] = random(KV_HEADS * HEAD_DIM, HIDDEN)
        w[f"{at}o_proj.weight"] = random(HIDDEN, HEADS * HEAD_DIM)
        w[f"{mlp}gate_proj.weight"] = random(INTER, HIDDEN)
        w[f"{mlp}up_proj.weight"] = random(INTER, HIDDEN)
        w[f"{mlp}down_proj.weight"] = random(HIDDEN, INTER)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            w[f"model.layers.{i}.{norm}.weight"] = np.ones(HIDDEN, np.float32)
    w["model.norm.weight"] = np.ones(HIDDEN, np.float32)
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


def write(folder: Path, seed: int = 1) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    words, told = tokenizer()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "tokenizer.json").write_text(json.dumps(words))
    (folder / "tokenizer_config.json").write_text(json.dumps(told))
    write_safetensors(folder / "model.safetensors", weights(seed))


if __name__ == "__main__":
    write(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1)
