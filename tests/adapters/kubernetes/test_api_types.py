"""Structs that decode objects of the API server have its fields and types: its OpenAPI documents are recorded."""

import importlib
import pkgutil

import pytest
from msgspec import Struct

from tests.adapters.kubernetes.api_types import ROOTS, find_problems, find_structs, read_golden
from webhook.adapters import kubernetes
from webhook.core.checks import objects as checked
from webhook.core.diagnosis import objects as reported

OTHERS = {
    "ListMetadata": "inside of generic lists",
    "Listed": "generic",
    "_Items": "a list of anything",
    "_Version": "answer of /version, not in a document of a group",
    "_Discovery": "OpenID configuration",
    "_Read": "of service_statuses: an object of a CustomResourceDefinition",
    "UnreadObject": "made from an object, not decoded",
    "_RawList": "a list of anything",
    "_Topology": "of a CustomResourceDefinition of node_topology",
    "_TopologyMetadata": "the same",
    "CustomOwner": "made from an object of a CustomResourceDefinition, not decoded",
    **dict.fromkeys(("_Owned", "_Named", "_Metadata"), "only metadata, of any kind"),
    **dict.fromkeys(("_Group", "_Preferred", "_Resources", "_Served"), "answers of discovery, as _Version"),
    "FoundPod": "made from a Pod, not decoded",
    "_Request": "in the data of a ConfigMap",
    "TaintObject": "not decoded by itself",
    "_JobSet": "of a CustomResourceDefinition, as the next ones",
    **dict.fromkeys(("_JobSetSpec", "_StartupPolicy", "_ReplicatedJob", "_JobTemplate"), "of a JobSet"),
    "_PodGroup": "of a CustomResourceDefinition, or of an API that is off by default",
    **dict.fromkeys(("_PodGroupSpec", "_SchedulingPolicy", "_Gang"), "of a PodGroup"),
}
"""Structs that no root reaches, with the reason."""


@pytest.mark.parametrize(
    "struct", ROOTS, ids=lambda struct: f"{struct.__module__.rpartition('.')[2]}.{struct.__name__}"
)
def test_declared_fields_exist_in_the_api_server_and_have_its_types(struct: type[Struct]) -> None:
    assert list(find_problems(struct, ROOTS[struct], read_golden())) == []


def test_each_struct_of_an_object_is_compared() -> None:
    packages = pkgutil.walk_packages(kubernetes.__path__, f"{kubernetes.__name__}.")
    modules = [checked, reported, *(importlib.import_module(found.name) for found in packages)]
    known = find_structs(ROOTS)
    own = {
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Struct) and value.__module__ == module.__name__
    }
    assert {struct.__name__ for struct in own - known} - {*OTHERS} == set()


class _WrongStatus(Struct):
    active: int | None = None
    ready: str = ""
    invented: bool = False


class _WrongJob(Struct):
    status: _WrongStatus


def test_a_field_of_another_type_or_of_no_kind_is_found() -> None:
    assert list(find_problems(_WrongJob, ("Job", "CronJob"), read_golden())) == [
        "_WrongJob.status.active: the API server writes []#io.k8s.api.core.v1.ObjectReference",
        "_WrongJob.status.ready: the API server writes integer",
        "_WrongJob.status.invented: no field of io.k8s.api.batch.v1.CronJobStatus, io.k8s.api.batch.v1.JobStatus",
    ]
