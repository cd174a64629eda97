"""Fields of `workloads`: kinds that are not Kubernetes' own, and where their objects have Pod templates."""

from typing import Annotated

from msgspec import Meta, Struct

from webhook.core.kubernetes.types import format_of
from webhook.core.policy_fields.field_types import describe

_TEMPLATES_MAX = 20


class CustomWorkload(Struct, frozen=True, rename="camel"):
    """One kind. `templates` replace the paths that Podgate knows of it; without any the kind makes no Pods."""

    api_group: Annotated[str, format_of("api-group"), describe("Its API group, without the version.")]
    kind: Annotated[str, format_of("kind")]
    templates: Annotated[
        tuple[Annotated[str, format_of("template-path")], ...],
        Meta(extra_json_schema={"maxItems": _TEMPLATES_MAX}),
        describe("Paths of its Pod templates, as spec.workers.*.template: * is each entry of a list or a mapping."),
    ]
    resource: Annotated[
        str | None, format_of("dns-label"), describe("Its name in the API, if that is not the plural of its kind.")
    ] = None
