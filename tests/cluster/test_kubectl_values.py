"""kubectl itself: what it sends for the YAML of `tests.harness.kubectl_values`."""

import json
import subprocess
from typing import Any

from tests.cluster.binaries import binaries
from tests.harness.kubectl_values import DECODED_NULLS, DOCUMENTS, NULLS, REFUSED, SCALARS

HEAD = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"


def parse_integer(text: str) -> int | float:
    """Return an integer as the API server reads it."""
    return int(text) if int(text) in range(-(1 << 63), 1 << 63) else float(text)


def send(fields: str) -> Any:
    """Return the fields that kubectl sends, without those of HEAD."""
    command = [binaries().kubectl, "annotate", "--local", "--filename=-", "a=b", "--output=json"]
    done = subprocess.run(command, input=HEAD + fields, check=False, capture_output=True, text=True)
    if done.returncode:
        return REFUSED
    document = json.loads(done.stdout, parse_int=parse_integer)
    return {key: value for key, value in document.items() if key not in {"apiVersion", "kind", "metadata"}}


def test_kubectl_sends_these_values_of_scalars() -> None:
    values = {text: value for text, value, _ in SCALARS}
    sent = [text for text in values if values[text] is not REFUSED]
    refused = values.keys() - set(sent)
    assert send("x:\n" + "".join(f"- {text}\n" for text in sent)) == {"x": [values[text] for text in sent]}
    assert {text for text in refused if send(f"x: {text}") is REFUSED} == refused


def test_kubectl_sends_these_keys() -> None:
    keys = {text: key for text, _, key in SCALARS}
    sent = [text for text in keys if keys[text] is not REFUSED]
    refused = keys.keys() - set(sent)
    assert send("x:\n" + "".join(f"- {{{text}: 0}}\n" for text in sent)) == {"x": [{keys[text]: 0} for text in sent]}
    assert {text for text in refused if send(f"x: {{{text}: 0}}") is REFUSED} == refused


def test_kubectl_sends_these_documents() -> None:
    assert {text: send(text) for text in DOCUMENTS} == DOCUMENTS


def test_kubectl_decodes_nulls_to_these_values() -> None:
    command = [binaries().kubectl, "set", "image", "--local", "--filename=-", "c=other", "--output=json"]
    done = subprocess.run(command, input=NULLS, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout)
    found["spec"]["containers"][0]["image"] = "i"
    assert found == {**DECODED_NULLS, "status": {}}
