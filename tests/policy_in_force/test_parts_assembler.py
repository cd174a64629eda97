"""The assembler of parts: when it waits for them, and what it passes on."""

from collections.abc import Sequence

import pytest

from webhook.core.document import Purpose
from webhook.core.document.assembly import Assembly, AssemblyRequest
from webhook.errors import CheckFailedError
from webhook.policy_in_force.parts_assembler import PartsAssembler

PLACE = "configmap podgate-system/podgate-policy: policy.yaml"
ROOT = b"""apiVersion: podgate.io/v1alpha1
kind: Policy
parts:
- {name: shop, namespaces: [shop]}
services: []
"""
PART = b"""apiVersion: podgate.io/v1alpha1
kind: PolicyPart
services:
- {name: shop, match: {namespaces: [shop]}}
"""
NESTED = b"""apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: web
  match:
    namespaces: [web]
    podSelector:
      matchLabels:
        parts: spare
"""


class InProcess:
    """A check that assembles in this process, or fails."""

    def __init__(self) -> None:
        self.failure = ""

    async def assemble(self, request: AssemblyRequest) -> Assembly:
        if self.failure:
            raise CheckFailedError(self.failure)
        return request.assemble()


class Receiver:
    """The last document and the last obstacle that were passed on."""

    def __init__(self) -> None:
        self.documents: list[bytes] = []
        self.unreadable: list[str] = []
        self.problems: list[object] = []

    async def on_document(self, raw: bytes, place: str) -> bool:
        assert place == PLACE
        self.documents.append(raw)
        return True

    async def on_unreadable(self, errors: Sequence[str]) -> None:
        self.unreadable.extend(errors)

    def on_policy_parts_checked(self, problems: object) -> None:
        self.problems.append(problems)


class Assembled:
    def __init__(self, *, is_signed: bool = False) -> None:
        self.receiver, self.check = Receiver(), InProcess()
        parts: tuple[object, ...] = (self.receiver, self.check, self.receiver)
        self.assembler = PartsAssembler(*parts, Purpose.SERVE, is_signed=is_signed)  # type: ignore[arg-type]


@pytest.mark.parametrize("root", [NESTED, NESTED.replace(b"parts: spare", b'"parts": spare')])
async def test_a_root_with_a_nested_key_of_that_name_waits_for_no_parts(root: bytes) -> None:
    made = Assembled()

    assert await made.assembler.on_document(root, PLACE)

    assert made.receiver.documents == [root]
    assert not made.assembler.are_wanted.is_set()


async def test_a_root_with_parts_waits_for_them() -> None:
    made = Assembled()

    assert not await made.assembler.on_document(ROOT, PLACE)
    assert made.assembler.are_wanted.is_set()
    assert made.receiver.documents == []

    await made.assembler.on_parts({"shop": PART}, {})
    [whole] = made.receiver.documents
    assert b'"shop"' in whole


async def test_a_root_that_loses_its_parts_waits_no_more() -> None:
    made = Assembled()
    await made.assembler.on_document(ROOT, PLACE)

    await made.assembler.on_document(NESTED, PLACE)

    assert not made.assembler.are_wanted.is_set()
    assert made.receiver.documents == [NESTED]


async def test_a_signed_root_has_no_parts() -> None:
    made = Assembled(is_signed=True)

    assert not await made.assembler.on_document(ROOT, PLACE)
    [reason] = made.receiver.unreadable
    assert reason.startswith(f"{PLACE}: parts: with --policy-keys the policy is one signed document")

    assert await made.assembler.on_document(NESTED, PLACE)


async def test_it_is_reported_that_a_root_could_not_be_read_for_parts() -> None:
    made = Assembled()
    made.check.failure = "the process was killed"

    assert not await made.assembler.on_document(ROOT, PLACE)

    assert made.receiver.unreadable == [f"{PLACE}: it is not known whether it has parts: the process was killed"]
