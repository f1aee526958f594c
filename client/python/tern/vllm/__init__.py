"""Stock vLLM keeps its prefixes in Tern: name the class `TernConnector` of `tern.vllm.connector` as its KV connector.

docs/vllm.md shows how. The connector and metrics alone import vLLM; what is decided is in the other modules:

settings    what the user says, and what of a vLLM configuration cannot be carried
pages       the groups of a model's KV, and which bytes of vLLM's tensors are one page of Tern
pool        the pool that all vLLM instances of this host share
jobs        what the scheduler asks of the worker in one step, and what the worker reports
scheduler   sessions of requests: what Tern has of a prompt, what is saved, when pages may go
handing     what prefill and decode instances tell each other, and
fetches     how a prompt is brought from another host
rejoin      the way back to a daemon that was started again
worker      copies between vLLM's blocks and Tern's pages, and the number of the last finished step
metrics     counters for vLLM's log and /metrics

Apart from all that, for routers:

event_blocks  what Tern tells of its chunks, by vLLM's names of blocks
events        a program that publishes it as vLLM publishes its own events
"""
