"""Stock vLLM keeps its prefixes in Tern: `TernConnector` of `tern.vllm.connector` is its KV
connector.

docs/vllm.md shows how to configure it. Only connector and metrics import vLLM:

settings    the user's settings, and the checks of a vLLM configuration
pages       the groups of a model's KV, and which bytes of vLLM's tensors are one page of Tern
pool        the pool that all vLLM instances of this host share
jobs        the scheduler's work for the worker in one step, and the worker's report
scheduler   sessions of requests: what Tern has of a prompt, what is saved, when pages are freed
handing     the parameters that prefill and decode instances exchange
fetches     fetches of prompts from another host
rejoin      joining a daemon that was started again
worker      copies between vLLM's blocks and Tern's pages, and the last finished step
metrics     counters for vLLM's log and /metrics

Separate from these, for routers:

event_blocks  changes of Tern's chunks, by vLLM's names of blocks
events        a program that publishes them in the form of vLLM's own events
"""
