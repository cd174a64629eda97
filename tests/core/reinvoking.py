"""Admission of one Pod: the calls for it, with the managedFields that the API server records of its creator."""

from copy import deepcopy
from typing import Any

import msgspec

from tests.core.reviewing import Gate, pod, policy_of
from tests.core.rewriting import apply_json_patch, decode_patch
from tests.core.strategies import Json


def record_fields(sent: Json) -> Json:
    """Return the fields of an object as managedFields record them: lists and nodeSelector as a whole."""
    fields: Json = {}
    for key, value in sent.items():
        if key in {"containers", "initContainers"} and value:
            fields[f"f:{key}"] = {f'k:{{"name":"{each["name"]}"}}': record_fields(each) for each in value}
        elif key == "topologySpreadConstraints" and value:
            fields[f"f:{key}"] = {_format_spread_key(each): record_fields(each) for each in value}
        else:
            fields[f"f:{key}"] = record_fields(value) if isinstance(value, dict) and key != "nodeSelector" else {}
    return fields


def _format_spread_key(constraint: Json) -> str:
    key = {name: constraint[name] for name in ("topologyKey", "whenUnsatisfiable")}
    return f"k:{msgspec.json.encode(key).decode()}"


def send(**sent: Any) -> Json:
    """Return a Pod as the API server calls the webhooks for it."""
    made = pod(**sent)
    fields = record_fields({"metadata": made["metadata"], "spec": made["spec"]})
    made["metadata"]["managedFields"] = [{"manager": "kubectl", "operation": "Update", "fieldsV1": fields}]
    return made


class Admission:
    """The calls for one Pod."""

    def __init__(self, services: str, sent: Json) -> None:
        self.gate, self.pod = Gate(policy_of(services)), deepcopy(sent)

    async def mutate(self) -> list[Json]:
        decision = await self.gate.mutate(object=self.pod)
        self.pod = apply_json_patch(self.pod, decision.patch)
        return decode_patch(decision.patch)

    async def validate(self) -> str:
        """Return the message of the denial."""
        self.pod["metadata"] |= {"name": "web-1", "uid": "u1"}
        return (await self.gate.validate(object=self.pod)).status.message

    @property
    def labels(self) -> Json:
        found: Json = self.pod["metadata"]["labels"]
        return found

    @property
    def resources(self) -> Json:
        found: Json = self.pod["spec"]["containers"][0]["resources"]
        return found
