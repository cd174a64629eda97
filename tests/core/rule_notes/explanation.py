"""Helpers of the `explanation` tests that other tests use, too."""

from typing import Any

import jsonpatch
import msgspec

from tests.core.strategies import HASH, Json
from webhook.core.admission.mutation import rewrite
from webhook.core.kubernetes.pod import Pod
from webhook.core.policy.model import Service


def decode_pod(document: Json) -> Pod:
    return msgspec.json.decode(msgspec.json.encode(document), type=Pod)


def rewrite_pod(document: Json, service: Service) -> Any:
    operations = msgspec.to_builtins(rewrite(decode_pod(document), service, HASH))
    copy = msgspec.json.decode(msgspec.json.encode(document))
    return msgspec.json.decode(msgspec.json.encode(jsonpatch.apply_patch(copy, operations, in_place=True)))
