"""vLLM instances, forked from one process that has imported vLLM once: `serve.py SOCKET`. Each
connection to the socket is an instance. The client's first line is {"model": FOLDER, "transfer":
OPTIONS OF KVTransferConfig OR null, "engine": OPTIONS OF LLM BESIDE THOSE HERE}; it receives
{"pid": ...}, then {"ready": true}. Each further line is a list of requests, which run together and
are answered with a list (instances.py defines both), or the word "counters", which is answered with
vLLM's and Tern's counters. An instance is one process and one thread: equal requests have equal
bits, and SIGKILL ends all of it.

With {"environment": {...}} the instance has these variables beside others; with {"keeps_cache":
true} vLLM's own prefix cache is not reset before each list.

With {"port": ...} in the first line the instance is vLLM's own server at that port instead, in a
process group of its own.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import socket
import sys
import time
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
    "enable_prefix_caching": False,  # so that tokens that are not computed come from Tern
}
IMPORTED = ("vllm.v1.engine.core", "vllm.v1.worker.cpu_worker")
MODELS = ("vllm.model_executor.models.llama", "vllm.model_executor.models.gemma3", "vllm.model_executor.models.qwen3_next")
COUNTED = ("vllm:tern_", "vllm:num_preemptions")


def add(engine: Any, name: str, asked: dict[str, Any]) -> None:
    from vllm import SamplingParams

    params = SamplingParams(
        max_tokens=asked["tokens"],
        temperature=0,
        detokenize=False,
        ignore_eos=True,
        logprobs=3,
        extra_args={"kv_transfer_params": asked["transfer"]} if asked["transfer"] else None,
    )
    prompt = {"prompt_token_ids": asked["prompt"]} | ({"cache_salt": asked["salt"]} if asked["salt"] else {})
    engine.add_request(name, prompt, params, lora_request=adapter(engine, asked["adapter"]))


def adapter(engine: Any, n: int) -> Any:
    made = importlib.import_module("vllm.lora.request").LoRARequest
    return made(f"adapter-{n}", n, f"{engine.model_config.model}-adapter-{n}") if n else None


def answer(out: Any) -> dict[str, Any]:
    if out is None:  # the request was aborted before its first token
        return {"tokens": [], "logprobs": [], "cached": 0, "transfer": None}
    one = out.outputs[0]
    best = [sorted((token, entry.logprob) for token, entry in at.items()) for at in one.logprobs]
    return {
        "tokens": list(one.token_ids),
        "logprobs": best,
        "cached": out.num_cached_tokens,
        "transfer": out.kv_transfer_params,
    }


def run(llm: Any, requests: list[dict[str, Any]], first: int) -> list[dict[str, Any]]:
    """Runs all requests, which vLLM admits as it can. A request with `steps` is aborted after that
    step."""
    engine, last = llm.llm_engine, dict[str, Any]()
    for i, asked in enumerate(requests):
        add(engine, str(first + i), asked)
    step = 0
    while engine.has_unfinished_requests():
        outs = engine.step()
        if not outs:
            time.sleep(0.001)  # as in vLLM's own loop, if a step has nothing to compute
        last |= {out.request_id: out for out in outs}
        step += 1
        engine.abort_request([str(first + i) for i, asked in enumerate(requests) if asked["steps"] == step])
    return [answer(last.get(str(first + i))) for i in range(len(requests))]


def counters(llm: Any) -> dict[str, int]:
    return {m.name: int(m.value) for m in llm.get_metrics() if m.name.startswith(COUNTED) and hasattr(m, "value")}


def server(options: dict[str, Any]) -> None:
    os.setsid()
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "1"  # the server has no other mode
    sys.argv = ["api_server", "--model", options["model"], "--port", str(options["port"])]
    sys.argv += ["--kv-transfer-config", json.dumps(options["transfer"])]
    for name, value in (ENGINE | options["engine"]).items():
        flag = name.replace("_", "-")
        sys.argv += [f"--{'' if value else 'no-'}{flag}"] if isinstance(value, bool) else [f"--{flag}", str(value)]
    importlib.import_module("vllm.entrypoints.launchers.api_server.entry").main()


def instance(asked: TextIO, say: TextIO) -> None:
    from vllm import LLM
    from vllm.config import KVTransferConfig

    def tell(told: Any) -> None:
        print(json.dumps(told), file=say, flush=True)

    tell({"pid": os.getpid()})
    options = json.loads(asked.readline())
    os.environ |= options.get("environment", {})
    if options["port"]:
        return server(options)
    llm = LLM(
        options["model"],
        kv_transfer_config=KVTransferConfig(**options["transfer"]) if options["transfer"] else None,
        disable_log_stats=False,
        **ENGINE | options["engine"],
    )
    tell({"ready": True})
    n = 0
    for line in asked:
        requests = json.loads(line)
        if requests == "counters":
            tell(counters(llm))
            continue
        if not options.get("keeps_cache"):
            llm.reset_prefix_cache()  # vLLM's own, if enabled
        tell(run(llm, requests, n))
        n += len(requests)
    llm.llm_engine.engine_core.shutdown()
    tell({"ended": True})


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
