import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from certs.authority import Authority
from certs.ca_generations import Generation, decode, encode, encode_bundle, encode_pem
from certs.errors import CertsError
from tests.harness.nesting import BEYOND_EACH_INTERPRETER, nest

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def generation() -> Generation:
    key_pair = Authority.create(now=NOW).key_pair
    return Generation(key_pair.certificate, key_pair.key, NOW, None)


def test_ca_generations_round_trip_and_the_newest_is_first_in_the_bundle() -> None:
    old, new = replace(generation(), key=None, leaves_end=NOW), generation()
    generations = decode(encode((old, new)), "here")
    assert [replace(generation_row, key=None) for generation_row in generations] == [old, replace(new, key=None)]
    assert generations[0].key is None
    assert generations[1].key is not None
    assert generations[1].key.public_key() == new.certificate.public_key()
    assert encode_bundle(generations) == encode_pem(new.certificate, old.certificate)
    assert decode(encode(()), "here") == ()


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{}",
        b'{"generations": [{}]}',
        pytest.param(b'{"generations": [' + nest(BEYOND_EACH_INTERPRETER).encode() + b"]}", id="nested"),
        b'{"generations": [{"certificate": "x", "key": null, "publishedAt": null, "leavesEnd": null}]}',
        encode((generation(),)).replace(b"2026-01-01", b"yesterday!"),
        json.dumps({"generations": [{**json.loads(encode((generation(),)))["generations"][0], "key": 1}]}).encode(),
        encode((Generation(generation().certificate, generation().key),)),
    ],
)
def test_invalid_ca_generations_are_rejected_by_location_without_quoting(text: bytes) -> None:
    with pytest.raises(CertsError, match=r"^here: not a list of CA generations") as refused:
        decode(text, "here")
    assert "PRIVATE" not in str(refused.value)
    assert "a new CA succeeds the old one" in refused.value.remedy


def test_keys_are_not_shown() -> None:
    assert "PRIVATE" not in repr(generation())
