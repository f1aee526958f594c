"""ctypes declarations of libtern: its structs and calls, without any behaviour of their own.

The library is the one whose path TERN_LIBRARY names, else the installed one. The layouts are those
of client/libtern/include/tern.h; tests/test_layout.py compares them with the C compiler's layouts.
"""

from __future__ import annotations

import ctypes as ct
import ctypes.util
import os

GROUPS_MAX = 16
RANKS_MAX = 64
INFLIGHT_MAX = 64
BATCH_OPS_MAX = 1024
BLOBS_MAX = 4
BLOB_NAME_MAX = 31
RECORD_SPANS_MAX = 8
STEP_NONE = 2**64 - 1
PEER_DISK = "/disk"
PEER_ANY = "/any"

u32, u64 = ct.c_uint32, ct.c_uint64


class Axis(ct.Structure):
    _fields_ = [("name", ct.c_char_p), ("length", u64), ("stride_bytes", u64)]


class Channels(ct.Structure):
    _fields_ = [("name", ct.c_char_p), ("count", u32), ("width", u32)]


class Field(ct.Structure):
    _fields_ = [
        ("name", ct.c_char_p),
        ("over", ct.c_int),
        ("element_bytes", u32),
        ("offset", u64),
        ("axes", ct.POINTER(Axis)),
        ("naxes", u32),
        ("sections", ct.POINTER(Channels)),
        ("nsections", u32),
    ]


class Group(ct.Structure):
    _fields_ = [
        ("name", ct.c_char_p),
        ("family", ct.c_int),
        ("page_tokens", u32),
        ("page_bytes", u64),
        ("units", u32),
        ("cap_pages", u32),
        ("axes", ct.POINTER(Axis)),
        ("naxes", u32),
        ("window", u32),
        ("reserve", u32),
        ("fields", ct.POINTER(Field)),
        ("nfields", u32),
    ]


class Layout(ct.Structure):
    _fields_ = [
        ("groups", ct.POINTER(Group)),
        ("ngroups", u32),
        ("shard", ct.c_int),
        ("bytes", u64),
        ("supersede", ct.c_int),
        ("host_bytes", u64),
        ("stages", u32),
        ("align_tokens", u32),
    ]


class PoolInfo(ct.Structure):
    _fields_ = [("base", ct.c_void_p), ("bytes", u64), ("device", ct.c_char_p), ("ordinal", ct.c_int)]


class Namespace(ct.Structure):
    _fields_ = [(name, ct.c_char_p) for name in ("model", "revision", "kv_dtype", "lora", "salt")]


class ExtraKey(ct.Structure):
    _fields_ = [("position", u32), ("zero", u32), ("hi", u64), ("lo", u64)]


class Tokens(ct.Structure):
    _fields_ = [
        ("v", ct.POINTER(u32)),
        ("n", u32),
        ("base", u32),
        ("keys", ct.POINTER(ExtraKey)),
        ("nkeys", u32),
    ]


class Lengths(ct.Structure):
    _fields_ = [("committed", u32), ("written", u32), ("allocated", u32)]


class Page(ct.Structure):
    _fields_ = [("index", u32), ("generation", u32)]


class Run(ct.Structure):
    # `from` is a keyword of Python, so the field is named from_page here.
    _fields_ = [
        ("group", u32),
        ("first", u32),
        ("n", u32),
        ("pages", ct.POINTER(Page)),
        ("from_page", Page),
    ]


class Shortage(ct.Structure):
    _fields_ = [
        ("group", u32),
        ("needed", u32),
        ("free", u32),
        ("evictable", u32),
        ("retiring", u32),
        ("until_step", u64),
    ]


class Result(ct.Structure):
    _fields_ = [
        ("err", ct.c_int),
        ("lengths", Lengths),
        ("tokens", u32),
        ("matched", u32),
        ("fetched_kib", u32),
        ("retry_ms", u32),
        ("host_depth", u32),
        ("disk_depth", u32),
        ("runs", ct.POINTER(Run)),
        ("nruns", u32),
        ("blob_bytes", u32),
        ("blob", ct.c_void_p),
        ("shortage", Shortage),
        ("align", u32),
        ("handed", u32),
        ("arriving", u32),
        ("host", ct.c_char_p),
    ]


class Depths(ct.Structure):
    _fields_ = [("resumable", u32), ("history", u32), ("host", u32), ("disk", u32)]


TICKET_BYTES = 256


class Subscription(ct.Structure):
    _fields_ = [("ns", ct.POINTER(Namespace)), ("from_", u64), ("tokens", ct.c_bool)]


class Fetch(ct.Structure):
    _fields_ = [
        ("step", u64),
        ("peer", ct.c_char_p),
        ("ticket", ct.c_char_p),
        ("at_least", u32),
        ("depth", u32),
        ("prefetch", ct.c_bool),
        ("follow", ct.c_bool),
    ]


class Ticket(ct.Structure):
    _fields_ = [("text", ct.c_char * TICKET_BYTES), ("stands_ms", u32)]


class Stored(ct.Structure):
    _fields_ = [("depth", u32), ("written", u64)]


class Retracted(ct.Structure):
    _fields_ = [
        ("lengths", Lengths),
        ("free_now", u32),
        ("free_at_step", u32),
        ("shortage", Shortage),
    ]


class SessionOptions(ct.Structure):
    _fields_ = [("blobs_kept", u32), ("merging", ct.c_bool)]


class Span(ct.Structure):
    _fields_ = [("at", ct.c_void_p), ("bytes", u64)]


class Checksums(ct.Structure):
    _fields_ = [("step", u64), ("page_bytes", u64), ("units", u32), ("n", u32), ("pages", ct.POINTER(Page))]


class Section(ct.Structure):
    _fields_ = [("bytes", u64), ("nspans", u32), ("span", Span * RECORD_SPANS_MAX)]


class RecordBlob(ct.Structure):
    _fields_ = [("name", ct.c_char * (BLOB_NAME_MAX + 1)), ("dropped", ct.c_bool), ("at", Section)]


class Record(ct.Structure):
    # `from` is a keyword of Python.
    _fields_ = [
        ("from_", u32),
        ("length", u32),
        ("before", Section),
        ("tokens", Section),
        ("logprobs", Section),
        ("nblobs", u32),
        ("blobs", RecordBlob * BLOBS_MAX),
    ]


class Blob(ct.Structure):
    _fields_ = [("name", ct.c_char_p), ("bytes", u64), ("from_", ct.c_void_p)]


class Recorded(ct.Structure):
    _fields_ = [
        ("length", u32),
        ("records", u32),
        ("part", ct.c_int),
        ("index", u32),
        ("lengths", Lengths),
        ("tokens", u32),
    ]


class NewRecord(ct.Structure):
    _fields_ = [
        ("tokens", ct.POINTER(u32)),
        ("ntokens", u32),
        ("nlogprobs", u32),
        ("logprobs", ct.POINTER(ct.c_float)),
        ("blobs", ct.POINTER(Blob)),
        ("nblobs", u32),
    ]


class Event(ct.Structure):
    _fields_ = [
        ("number", u64),
        ("kind", ct.c_int),
        ("depth", u32),
        ("chain", u64),
        ("parent_chain", u64),
        ("ns_hi", u64),
        ("ns_lo", u64),
        ("pool", u64),
        ("on_device", ct.c_bool),
        ("on_host", ct.c_bool),
        ("tenant", ct.c_char_p),
        ("tokens", ct.POINTER(u32)),
        ("keys", ct.POINTER(ExtraKey)),
        ("ntokens", u32),
        ("nkeys", u32),
    ]


class Events(ct.Structure):
    _fields_ = [("v", ct.POINTER(Event)), ("n", u32), ("lost", u64), ("next", u64)]


class Answer(ct.Structure):
    _fields_ = [
        ("cookie", u64),
        ("err", ct.c_int),
        ("results", ct.POINTER(Result)),
        ("n", u32),
        ("stored", Stored),
        ("events", ct.POINTER(Events)),
    ]


class LeaseMarks(ct.Structure):
    _fields_ = [("low", u32), ("high", u32)]


class LeaseTold(ct.Structure):
    _fields_ = [
        ("slot", u32),
        ("session", u64),
        ("failed", ct.c_bool),
        ("result", Result),
        ("text", ct.c_char_p),
        ("numbers", u64 * 2),
    ]


class Blocks(ct.Structure):
    _fields_ = [("base", ct.c_void_p), ("stride", u64), ("at", ct.POINTER(u32))]


class BlockConfig(ct.Structure):
    _fields_ = [
        ("ns", Namespace),
        ("group", ct.c_char_p),
        ("value_bytes", u64),
        ("pool_bytes", u64),
        ("host_bytes", u64),
        ("threads", u32),
        ("populate", ct.c_bool),
        ("device", ct.c_char_p),
        ("hosts", ct.c_char_p),
    ]


class BlockKey(ct.Structure):
    _fields_ = [("bytes", ct.c_char_p), ("n", u32)]


class IoVec(ct.Structure):  # of <sys/uio.h>
    _fields_ = [("iov_base", ct.c_void_p), ("iov_len", ct.c_size_t)]


class BlockValue(ct.Structure):
    _fields_ = [("iov", ct.POINTER(IoVec)), ("niov", u32)]


class BlockCounts(ct.Structure):
    _fields_ = [(name, u64) for name in ("gets", "hits", "puts", "there", "loads", "again", "damaged", "requests")]


class BlockCall(ct.Structure):
    _fields_ = [
        ("what", ct.c_int),
        ("n", u32),
        ("keys", ct.POINTER(BlockKey)),
        ("values", ct.POINTER(BlockValue)),
        ("marks", ct.POINTER(ct.c_uint8)),
        ("deadline_ms", u32),
        ("tag", u64),
    ]


class BlockResult(ct.Structure):
    _fields_ = [("id", u64), ("tag", u64), ("err", ct.c_int), ("count", u32), ("text", ct.c_char * 256)]


# The structs of tern.h by their C names, for the test that compares them.
STRUCTS: dict[str, type[ct.Structure]] = {
    "tern_axis": Axis,
    "tern_channels": Channels,
    "tern_field": Field,
    "tern_group": Group,
    "tern_layout": Layout,
    "tern_pool_info": PoolInfo,
    "tern_namespace": Namespace,
    "tern_extra_key": ExtraKey,
    "tern_tokens": Tokens,
    "tern_lengths": Lengths,
    "tern_page": Page,
    "tern_run": Run,
    "tern_shortage": Shortage,
    "tern_result": Result,
    "tern_depths": Depths,
    "tern_fetch": Fetch,
    "tern_stored": Stored,
    "tern_ticket": Ticket,
    "tern_retracted": Retracted,
    "tern_session_options": SessionOptions,
    "tern_span": Span,
    "tern_checksums": Checksums,
    "tern_blocks": Blocks,
    "tern_section": Section,
    "tern_record_blob": RecordBlob,
    "tern_record": Record,
    "tern_blob": Blob,
    "tern_recorded": Recorded,
    "tern_new_record": NewRecord,
    "tern_event": Event,
    "tern_events": Events,
    "tern_answer": Answer,
    "tern_subscription": Subscription,
    "tern_lease_marks": LeaseMarks,
    "tern_lease_told": LeaseTold,
    "tern_block_config": BlockConfig,
    "tern_block_key": BlockKey,
    "tern_block_value": BlockValue,
    "tern_block_counts": BlockCounts,
    "tern_block_call": BlockCall,
    "tern_block_result": BlockResult,
}

_P, _S, _J = ct.c_void_p, ct.c_char_p, ct.POINTER(ct.c_char_p)
_RESULT, _TOKENS, _NS = ct.POINTER(Result), ct.POINTER(Tokens), ct.POINTER(Namespace)
_KEYS, _VALUES, _MARKS = ct.POINTER(BlockKey), ct.POINTER(BlockValue), ct.POINTER(ct.c_uint8)

# The result type and the argument types of each call. An enum tern_err is a ct.c_int.
_CALLS: dict[str, tuple[object, list[object]]] = {
    "tern_strerror": (_S, [ct.c_int]),
    "tern_version": (_S, []),
    "tern_error_text": (_S, [_P, _RESULT]),
    "tern_error_numbers": (None, [_P, _RESULT, ct.POINTER(u64)]),
    "tern_connect": (ct.c_int, [_S, u32, ct.POINTER(_P)]),
    "tern_destroy": (None, [_P]),
    "tern_incarnation": (u64, [_P]),
    "tern_trace": (None, [_P, u64]),
    "tern_join": (ct.c_int, [_P, _S, ct.c_int, u32, u32, _S, u32]),
    "tern_pool_open": (ct.c_int, [_P, ct.POINTER(Layout), u32, ct.POINTER(u64), ct.POINTER(u32)]),
    "tern_pool_close": (ct.c_int, [_P, u64, u32]),
    "tern_pool_map": (ct.c_int, [_P, u64, u32, ct.POINTER(_P)]),
    "tern_pool_info": (ct.POINTER(PoolInfo), [_P]),
    "tern_copy_blocks": (None, [ct.POINTER(Blocks), ct.POINTER(Blocks), u32, u64]),
    "tern_done_step": (ct.c_int, [_P, u64]),
    "tern_done_step_on_stream": (ct.c_int, [_P, u64, _P, ct.POINTER(ct.c_int)]),
    "tern_checksums_on_stream": (ct.c_int, [_P, ct.POINTER(Checksums), _P]),
    "tern_wait_published": (ct.c_int, [_P, u64, u32]),
    "tern_session_open": (ct.c_int, [_P, u64, _NS, ct.POINTER(SessionOptions), u32, ct.POINTER(u64)]),
    "tern_peek": (ct.c_int, [_P, u64, _NS, _TOKENS, u32, ct.POINTER(Depths)]),
    "tern_match": (ct.c_int, [_P, u64, _TOKENS, u64, u32, _RESULT]),
    "tern_extend": (ct.c_int, [_P, u64, _TOKENS, u32, u32, u32, _RESULT]),
    "tern_commit": (ct.c_int, [_P, u64, u32, u64, u32, _RESULT]),
    "tern_rewind": (ct.c_int, [_P, u64, u32, u64, u32, _RESULT]),
    "tern_finish": (ct.c_int, [_P, u64, u32, u64, u32, _RESULT]),
    "tern_slide": (ct.c_int, [_P, u64, u32, u64, u32, _RESULT]),
    "tern_snapshot_release": (ct.c_int, [_P, u64, u32, _RESULT]),
    "tern_abort": (ct.c_int, [_P, u64, u64, u32, _RESULT]),
    "tern_session_close": (ct.c_int, [_P, u64, u64, u32, _RESULT]),
    "tern_turn_begin": (ct.c_int, [_P, u64, u32, ct.POINTER(u64)]),
    "tern_turn_end": (ct.c_int, [_P, u64, u64, u32]),
    "tern_record_get": (ct.c_int, [_P, u64, u32, ct.POINTER(Record), u32, u32, ct.POINTER(u32), ct.POINTER(u32)]),
    "tern_record_put": (ct.c_int, [_P, u64, ct.POINTER(NewRecord), u32, ct.POINTER(Recorded)]),
    "tern_record_rollback": (ct.c_int, [_P, u64, _TOKENS, u64, u32, ct.POINTER(Recorded)]),
    "tern_section_read": (ct.c_int, [ct.POINTER(Section), u64, _P, u64]),
    "tern_batch_create": (ct.c_int, [_P, ct.POINTER(_P)]),
    "tern_batch_destroy": (None, [_P]),
    "tern_batch_clear": (None, [_P]),
    "tern_batch_count": (u32, [_P]),
    "tern_batch_extend": (ct.c_int, [_P, u64, _TOKENS, u32, u32]),
    "tern_batch_commit": (ct.c_int, [_P, u64, u32, u64]),
    "tern_batch_rewind": (ct.c_int, [_P, u64, u32, u64]),
    "tern_batch_finish": (ct.c_int, [_P, u64, u32, u64]),
    "tern_batch_slide": (ct.c_int, [_P, u64, u32, u64]),
    "tern_batch_snapshot_release": (ct.c_int, [_P, u64]),
    "tern_batch_abort": (ct.c_int, [_P, u64, u64]),
    "tern_batch_session_close": (ct.c_int, [_P, u64, u64]),
    "tern_batch_barrier": (None, [_P]),
    "tern_batch_run": (ct.c_int, [_P, u32, ct.POINTER(_RESULT), ct.POINTER(u32)]),
    "tern_batch_submit": (ct.c_int, [_P, u64]),
    "tern_lease_begin": (
        ct.c_int,
        [_P, u64, ct.POINTER(Layout), ct.POINTER(LeaseMarks), u32, ct.POINTER(_P)],
    ),
    "tern_lease_end": (ct.c_int, [ct.POINTER(_P), u32]),
    "tern_lease_add": (ct.c_int, [_P, u64, _RESULT, ct.POINTER(u32)]),
    "tern_lease_remove": (ct.c_int, [_P, u32, u64]),
    "tern_lease_extend": (
        ct.c_int,
        [_P, u32, ct.POINTER(u32), u32, u32, u32, ct.POINTER(ct.POINTER(Run)), ct.POINTER(u32)],
    ),
    "tern_lease_rewind": (ct.c_int, [_P, u32, u32, u64]),
    "tern_lease_commit": (ct.c_int, [_P, u32, u32, u64]),
    "tern_lease_submit": (ct.c_int, [_P, u64]),
    "tern_lease_wait": (ct.c_int, [_P, u32]),
    "tern_lease_stock": (u32, [_P, u32]),
    "tern_lease_told": (ct.c_int, [_P, ct.POINTER(LeaseTold)]),
    "tern_fetch": (ct.c_int, [_P, u64, ct.POINTER(Fetch), u32, _RESULT]),
    "tern_fetch_cancel": (ct.c_int, [_P, u64, u32]),
    "tern_fetch_wait": (ct.c_int, [_P, u64, u32, u32, _RESULT]),
    "tern_fetch_pages": (ct.c_int, [_P, u64, u32, _RESULT]),
    "tern_ticket_open": (ct.c_int, [_P, u64, u32, u32, ct.POINTER(Ticket)]),
    "tern_handoff": (ct.c_int, [_P, u64, u64, _S, u32, u32, u32, ct.POINTER(Ticket)]),
    "tern_ticket_renew": (ct.c_int, [_P, _S, u32, u32, ct.POINTER(u32)]),
    "tern_ticket_drop": (ct.c_int, [_P, _S, u32]),
    "tern_store": (ct.c_int, [_P, u64, u32, u32, ct.POINTER(Stored)]),
    "tern_retract": (ct.c_int, [_P, u64, ct.c_int, u64, u32, ct.POINTER(Retracted)]),
    "tern_recover": (ct.c_int, [_P, u64, u32, _RESULT]),
    "tern_namespace_reset": (ct.c_int, [_P, _NS, u32, ct.POINTER(u32), ct.POINTER(u32)]),
    "tern_stats": (ct.c_int, [_P, u32, _J]),
    "tern_ping": (ct.c_int, [_P, u32]),
    "tern_submit_match": (ct.c_int, [_P, u64, _TOKENS, u64, u64]),
    "tern_submit_fetch": (ct.c_int, [_P, u64, ct.POINTER(Fetch), u64]),
    "tern_submit_fetch_wait": (ct.c_int, [_P, u64, u32, u64]),
    "tern_submit_recover": (ct.c_int, [_P, u64, u64]),
    "tern_submit_store": (ct.c_int, [_P, u64, u32, u64]),
    "tern_submit_wait_published": (ct.c_int, [_P, u64, u64]),
    "tern_fd": (ct.c_int, [_P, ct.POINTER(ct.c_short)]),
    "tern_poll": (ct.c_int, [_P, ct.POINTER(Answer)]),
    "tern_subscribe": (ct.c_int, [_P, ct.POINTER(Subscription), u64]),
    "tern_chains": (u32, [_NS, _TOKENS, u32, ct.POINTER(u64), u32]),
    "tern_unsubscribe": (ct.c_int, [_P, u64, u32]),
    "tern_blocks_open": (ct.c_int, [_S, ct.POINTER(BlockConfig), u32, ct.POINTER(_P)]),
    "tern_blocks_close": (None, [_P]),
    "tern_blocks_error_text": (_S, [_P]),
    "tern_blocks_find": (ct.c_int, [_P, _KEYS, u32, u32, _MARKS, ct.POINTER(u32)]),
    "tern_blocks_host": (_S, [_P, u32]),
    "tern_blocks_get": (ct.c_int, [_P, _KEYS, _VALUES, u32, u32, _MARKS]),
    "tern_blocks_put": (ct.c_int, [_P, _KEYS, _VALUES, u32, u32, _MARKS]),
    "tern_blocks_touch": (ct.c_int, [_P, _KEYS, u32, u32, ct.POINTER(u32)]),
    "tern_blocks_remove": (ct.c_int, [_P, _KEYS, u32, u32, ct.POINTER(u32)]),
    "tern_blocks_pin": (ct.c_int, [_P, _KEYS, u32, u32, _MARKS, ct.POINTER(_P)]),
    "tern_blocks_unpin": (ct.c_int, [ct.POINTER(_P), u32]),
    "tern_blocks_counts": (None, [_P, ct.POINTER(BlockCounts)]),
}


def _open() -> ct.CDLL:
    path = os.environ.get("TERN_LIBRARY") or ctypes.util.find_library("tern") or "libtern.so.0.2"
    try:
        lib = ct.CDLL(path)
    except OSError as why:
        raise ImportError(
            f"libtern was not found ({why}): install Tern, or set TERN_LIBRARY to the path of a built library"
        ) from None
    for name, (result, takes) in _CALLS.items():
        try:
            call = getattr(lib, name)
        except AttributeError:
            raise ImportError(f"{path} has no {name}: update Tern and this package together") from None
        call.restype, call.argtypes = result, takes
    return lib


lib = _open()
