"""vLLM instances, forked from one process that has imported vLLM once: `serve.py SOCKET`. Each connection to the socket
is an instance. Its first line is {"model": FOLDER, "transfer": OPTIONS OF KVTransferConfig OR null, "engine": OPTIONS OF LLM
BESIDE THOSE HERE}. It is told {"pid": ...}, then {"ready": true}, and each request {"prompt": [...], "tokens": ..., "transfer": kv_transfer_params OR null} is answered with
tokens, their log-probabilities, how much of the prompt was not computed, and kv_transfer_params.

An instance is one process and one thread: equal requests have equal bits, and SIGKILL ends all of it.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import socket
import sys
from typing import Any, TextIO

os.environ |= {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
}
ENGINE = {
    "enforce_eager": True,
    "max_model_len": 2048,
    "max_num_seqs": 8,
    "block_size": 32,
    "seed": 0,
    "enable_prefix_caching": False,  # so that what is not computed comes from Tern
}
IMPORTED = ("vllm.v1.engine.core", "vllm.v1.worker.cpu_worker")
MODELS = ("vllm.model_executor.models.llama", "vllm.model_executor.models.gemma3", "vllm.model_executor.models.qwen3_next")


def instance(asked: TextIO, say: TextIO) -> None:
    from vllm import LLM, SamplingParams
    from vllm.config import KVTransferConfig

    def tell(**told: Any) -> None:
        print(json.dumps(told), file=say, flush=True)

    tell(pid=os.getpid())
    options = json.loads(asked.readline())
    llm = LLM(
        options["model"],
        kv_transfer_config=KVTransferConfig(**options["transfer"]) if options["transfer"] else None,
        **ENGINE | options["engine"],
    )
    tell(ready=True)
    for line in asked:
        request = json.loads(line)
        llm.reset_prefix_cache()  # vLLM's own, where a model needs it
        params = SamplingParams(
            max_tokens=request["tokens"],
            temperature=0,
            detokenize=False,
            ignore_eos=True,
            logprobs=3,
            extra_args={"kv_transfer_params": request["transfer"]} if request["transfer"] else None,
        )
        out = llm.generate([{"prompt_token_ids": request["prompt"]}], params, use_tqdm=False)[0]
        answer = out.outputs[0]
        best = [sorted((token, one.logprob) for token, one in at.items()) for at in answer.logprobs]
        tell(tokens=list(answer.token_ids), logprobs=best, cached=out.num_cached_tokens, transfer=out.kv_transfer_params)
    llm.llm_engine.engine_core.shutdown()
    tell(ended=True)


def main() -> None:
    importlib.import_module("vllm").LLM
    for name in IMPORTED + MODELS:
        importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(sys.argv[1])
    listener.listen()
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            instance(connection.makefile("r"), connection.makefile("w"))
            return
        connection.close()


if __name__ == "__main__":
    main()
