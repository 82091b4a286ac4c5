"""What a user's handler may be, what it may return, and how states become bytes."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from trimtab.apply.keys.keyed_handler import (
    CODECS,
    KeyedHandler,
    Output,
    StateFormat,
    answer_of,
    counting_handler,
    encoded,
    load_keyed_handler,
    outputs_of,
)
from trimtab.errors import ConfigError
from trimtab.model.key_chain import chain_after
from trimtab.model.record import Record


def record(seq=None, value=b"v"):
    headers = () if seq is None else (("tt-seq", seq.to_bytes(8, "big")),)
    return Record("orders", 0, 5, b"a", value, headers, 1)


@pytest.mark.parametrize(
    ("codec", "state", "value"),
    [
        (StateFormat.JSON, {"é": [1, None, True]}, '{"é":[1,null,true]}'.encode()),
        (StateFormat.JSON, 0, b"0"),
        (StateFormat.MSGPACK, {1: [b"a", "b", 2]}, b"\x81\x01\x93\xc4\x01a\xa1b\x02"),
        (StateFormat.BYTES, b"\0\xff", b"\0\xff"),
        (StateFormat.BYTES, b"", b""),
    ],
)
def test_a_state_becomes_bytes_and_back(codec, state, value):
    assert CODECS[codec].encode(state) == value
    assert CODECS[codec].decode(value) == state


def test_a_state_of_bytes_may_be_any_kind_of_bytes_but_no_text():
    codec = CODECS[StateFormat.BYTES]

    assert encoded(codec, bytearray(b"ab")) == b"ab"
    with pytest.raises(TypeError, match="must be bytes, not str"):
        encoded(codec, "ab")


def test_no_state_is_not_encoded():
    assert encoded(CODECS[StateFormat.BYTES], None) is None


def test_a_codec_that_returns_text_is_refused():
    class TextCodec:
        def encode(self, state):
            return str(state)

        def decode(self, value):
            return value

    with pytest.raises(TypeError, match="returned str instead of bytes"):
        encoded(TextCodec(), 1)


def test_a_handler_has_one_form():
    with pytest.raises(ValueError, match="either"):
        KeyedHandler()
    with pytest.raises(ValueError, match="either"):
        KeyedHandler(lambda *_: (None, None), handle_batch=lambda *_: (None, None))


@pytest.mark.parametrize("found", [None, 1, [1, ()], (1,), (1, (), 2), "ab"])
def test_an_answer_is_a_pair(found):
    with pytest.raises(TypeError, match="returns \\(state, outputs\\)"):
        answer_of(found)


def test_an_answer_that_is_a_coroutine_is_refused_without_a_warning():
    async def handle():
        return 1, ()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(TypeError, match="coroutine"):
            answer_of(handle())


def test_outputs_may_be_any_iterable_of_outputs():
    output = Output("totals", b"1")

    assert outputs_of(None) == ()
    assert outputs_of([output]) == outputs_of(iter([output])) == (output,)
    with pytest.raises(TypeError, match="are a list"):
        outputs_of(output)
    with pytest.raises(TypeError, match="not bytes"):
        outputs_of([b"1"])


def test_the_counting_handler_counts_and_chains_what_it_is_given():
    served: list[Record] = []
    counting = counting_handler(served.append)
    assert counting.handle is not None
    assert counting.chain_of is not None
    state = None
    for seq in (1, 2, 3):
        state, outputs = counting.handle(b"a", state, record(seq))
        assert outputs == ()

    assert state == {"count": 3, "chain": chain_after(3)}
    assert counting.chain_of(state) == chain_after(3)
    assert counting.chain_of(None) is None
    assert len(served) == 3


def test_the_chain_tells_another_order_and_a_gap():
    handle: Any = counting_handler().handle

    def chain(*seqs):
        state: Any = None
        for seq in seqs:
            state, _ = handle(b"a", state, record(seq))
        return state["chain"]

    assert chain(1, 2, 3) == chain(None, None, None) == chain_after(3)
    assert len({chain(1, 2, 3), chain(1, 3, 2), chain(1, 3), chain(1, 2, 2, 3)}) == 4


def test_a_handler_is_loaded_by_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    (tmp_path / "shop_of_keys.py").write_text(
        "from trimtab.apply.keys.keyed_handler import CODECS, KeyedHandler\n"
        "def handle(key, state, record): return state, []\n"
        "def plain(record): pass\n"
        "ready = KeyedHandler(handle, codec=CODECS['bytes'])\n"
    )

    found = load_keyed_handler("shop_of_keys:handle", StateFormat.MSGPACK)
    ready = load_keyed_handler("shop_of_keys:ready", StateFormat.MSGPACK)

    assert found.codec is CODECS[StateFormat.MSGPACK]
    assert ready.codec is CODECS[StateFormat.BYTES]
    with pytest.raises(ConfigError, match="3 arguments"):
        load_keyed_handler("shop_of_keys:plain", StateFormat.JSON)
