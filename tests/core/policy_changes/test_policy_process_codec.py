"""A policy encoded and decoded: lossless, including the spelling of amounts."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given

from tests.core.strategies import policies
from webhook.core.document import DocumentError, Purpose
from webhook.core.document.changed_services import NEW, LoadedDocument
from webhook.core.document.loading import load_unproved
from webhook.core.policy.model import LoadedPolicy, Policy
from webhook.core.policy_changes.policy_process_codec import CheckResult, check_policy, decode, decode_service, encode

ROOT = Path(__file__).parents[3]
DOCUMENTS = sorted(
    path
    for pattern in (
        "tests/core/document/good/*.yaml",
        "tests/core/document/complete_example.yaml",
        "docs/**/policy.yaml",
    )
    for path in ROOT.glob(pattern)
)
BAD = sorted(ROOT.glob("tests/core/document/bad/*.yaml"))
PAGE = (ROOT / "docs" / "policy.md").read_text(encoding="utf-8")


def send_and_receive(policy: Policy) -> Policy:
    sent = LoadedPolicy(policy, "0123456789abcdef")
    received = decode_result(encode_policy(sent))
    assert received == sent
    return received.policy


def encode_policy(loaded: LoadedPolicy) -> bytes:
    head, services = msgspec.structs.replace(loaded.policy, services=()), loaded.policy.services
    checked = LoadedDocument(head, loaded.hash, (NEW,) * len(services), services, None)
    return encode(CheckResult.from_checked(checked))


def decode_result(data: bytes) -> LoadedPolicy:
    found = decode(data, CheckResult)
    return found.build_result([decode_service(piece) for piece in found.services])


def convert_policy(policy: Policy) -> Any:
    """Return a policy with each amount in its original spelling."""
    return msgspec.to_builtins(policy, enc_hook=repr)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_round_trip_of_policy_documents_is_lossless(path: Path) -> None:
    policy = load_unproved(path.read_bytes(), None).policy
    assert convert_policy(send_and_receive(policy)) == convert_policy(policy)


def test_round_trip_of_documented_examples_is_lossless() -> None:
    examples = re.findall(r"```yaml\n(apiVersion: podgate.*?)```", PAGE, re.DOTALL)
    assert examples
    for example in examples:
        policy = load_unproved(example.encode(), None).policy
        assert convert_policy(send_and_receive(policy)) == convert_policy(policy)


@given(policies)
def test_round_trip_of_generated_policies_is_lossless(governed: Any) -> None:
    policy = Policy("podgate.io/v1alpha1", "Policy", (governed.service,))
    assert convert_policy(send_and_receive(policy)) == convert_policy(policy)


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_round_trip_of_problems_is_lossless(path: Path) -> None:
    sent = check_policy(path.read_bytes(), Purpose.LINT)
    assert sent.problems
    with pytest.raises(DocumentError) as caught:
        decode_result(encode(sent))
    assert caught.value.problems == sent.problems


@pytest.mark.parametrize(
    "data", [b"", b"\xc0", b"garbage", encode(CheckResult())[:-1], msgspec.json.encode(CheckResult())]
)
def test_data_that_is_no_check_result_is_rejected(data: bytes) -> None:
    with pytest.raises((msgspec.MsgspecError, ValueError)):
        decode(data, CheckResult)


def test_invalid_amount_is_rejected() -> None:
    policy = load_unproved((ROOT / "docs/examples/policy.yaml").read_bytes(), None).policy
    good = encode_policy(LoadedPolicy(policy, "0"))
    assert b"180s" in good
    with pytest.raises((msgspec.MsgspecError, ValueError)):
        decode_result(good.replace(b"180s", b"180x"))
