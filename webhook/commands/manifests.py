"""Objects in manifest files and the Pods created from them: Pods, workloads, Lists and AdmissionReviews."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from webhook.commands.exported_pods import PodOrigin, find_origin
from webhook.commands.simulator import USER
from webhook.core.kubernetes.api_groups import is_built_in
from webhook.core.kubernetes.controllers import WORKLOAD_KINDS, WorkloadKind
from webhook.core.kubernetes.zero_values import fill_zero_values
from webhook.core.plain_text import escape_line, quote_value
from webhook.core.workloads import simulate
from webhook.core.workloads.custom_kinds import (
    KNOWN_TEMPLATES,
    TemplatePaths,
    build_pod,
    find_templates,
    find_wrong_part,
)
from webhook.errors import UserError
from webhook.support.input_files import read_documents

_SOURCES = {source.kind: source for source in WORKLOAD_KINDS}
_MAKES_NONE = "makes no Pods"
KNOWN_KINDS = ", ".join(["Pod", *_SOURCES, "PodTemplate", "List", "AdmissionReview"])


class Subject(Struct, frozen=True):
    """One object of a file and the Pod created from it; `review` holds an AdmissionReview unchanged."""

    file: str
    at: str
    """Position in the file: the document and the item of a list; "" if the file has only this object."""
    kind: str
    own_name: str
    """The name, or generateName."""
    namespace: str = ""
    document: Mapping[str, Any] = {}
    """The object as the API server decodes it, or, of one that makes no Pods, as it is in the file."""
    written: Mapping[str, Any] = {}
    """The object as it is in the file."""
    pod: dict[str, Any] = {}
    user: str = USER
    review: dict[str, Any] | None = None
    workload: Mapping[str, Any] | None = None
    """The object whose controller creates the Pod."""
    source: WorkloadKind | None = None
    template_at: tuple[str | int, ...] = ()
    """Path of the Pod template in the object, () if the object is the Pod."""
    idle: str = ""
    """Why no Pod is created from the object, "" if a Pod is."""
    is_continued: bool = False
    """Whether another template of the same object follows."""
    is_unknown: bool = False
    """Whether it makes no Pods only as far as is known: its kind is neither Kubernetes' own nor listed."""
    hint: str = ""
    """A note about how it is reviewed."""

    @property
    def where(self) -> str:
        return f"{self.file}: {self.at}" if self.at else self.file

    @property
    def name(self) -> str:
        """Kind, namespace and name."""
        is_in_namespace = self.namespace and self.review is None
        name = f"{self.namespace}/{self.own_name}" if is_in_namespace else self.own_name
        return f"{self.kind} {name}" if name else self.kind


class _Place(NamedTuple):
    """Location of an object: its file, and its position there."""

    file: str
    at: str = ""

    def add_step(self, step: str) -> "_Place":
        return _Place(self.file, ": ".join(filter(None, (self.at, step))))

    def __str__(self) -> str:
        return ": ".join(filter(None, self))


def read_subjects(path: Path, namespace: str, templates: TemplatePaths = KNOWN_TEMPLATES) -> list[Subject | UserError]:
    """Return each object of a file as it would reach the webhook, or its error.

    `namespace` is the default; `templates` are those of custom kinds. UserError: the file cannot be read.
    """
    present = [(index, document) for index, document in enumerate(read_documents(path), 1) if document is not None]
    whole = _Place(str(path))
    return [
        subject
        for index, document in present
        for subject in _parse_each(
            document, whole.add_step(f"document {index}") if len(present) > 1 else whole, namespace, templates
        )
    ]


def parse_subjects(
    document: Any, file: str, at: str, namespace: str, templates: TemplatePaths = KNOWN_TEMPLATES
) -> list[Subject | UserError]:
    """Return each object of a document in a file, or its error; `at` is the document's position in the file."""
    return list(_parse_each(document, _Place(file, at), namespace, templates))


def _parse_each(
    document: Any, where: _Place, namespace: str, templates: TemplatePaths
) -> Iterator[Subject | UserError]:
    """Yield the objects of a document; an invalid one does not hide the others."""
    kind = document.get("kind") if isinstance(document, dict) else None
    if not isinstance(kind, str) or not kind:
        yield UserError(f"{where}: an object without a kind", f"give one of {KNOWN_KINDS}")
    elif not _is_list(document, kind):
        group = str(document.get("apiVersion") or "").rpartition("/")[0]
        paths = templates.get((group, kind))
        try:
            if paths is None:
                yield _parse_subject(document, kind, where, namespace)
            else:
                yield from _parse_custom(document, group, paths, where, namespace)
        except UserError as error:
            yield error
    elif not isinstance(document.get("items") or [], list):
        yield UserError(
            f"{where}: {kind}: items: {quote_value(document['items'])}: expected a list",
            "give a list of objects",
        )
    else:
        for index, item in enumerate(document.get("items") or []):
            # `kubectl get -o json` leaves out the kind of a typed list's items.
            is_typed = isinstance(item, dict) and "kind" not in item and kind != "List"
            of_kind = {"apiVersion": document.get("apiVersion"), "kind": kind.removesuffix("List")}
            yield from _parse_each(
                {**of_kind, **item} if is_typed else item, where.add_step(f"items[{index}]"), namespace, templates
            )


def _is_list(document: Mapping[str, Any], kind: str) -> bool:
    """Whether it is a list of objects: a custom kind such as TaskList may end in List, too, but has no `items`."""
    return kind.endswith("List") and ("items" in document or kind == "List")


def _parse_subject(written: Mapping[str, Any], kind: str, where: _Place, default_namespace: str) -> Subject:
    if kind == "AdmissionReview":
        return _parse_review(dict(written), where)
    _refuse_former_version(kind, written.get("apiVersion"), where)
    idle = _find_idle_reason(kind, written.get("apiVersion"))
    document: Mapping[str, Any] = written if idle else fill_zero_values(written)
    metadata = document.get("metadata") if idle else read_mapping(document, ("metadata",), f"{where}: {kind}")
    words = metadata if isinstance(metadata, Mapping) else {}
    namespace, own_name, generate_name = (
        str(words.get(key) or "") if idle else _read_text(words, key, f"{where}: {kind}")
        for key in ("namespace", "name", "generateName")
    )
    if not idle:  # other kinds may have no namespace
        namespace = namespace or default_namespace
    shown = escape_line(own_name or generate_name)
    subject = Subject(*where, escape_line(kind), shown, namespace, document, written)
    if idle:
        return replace(subject, idle=idle, is_unknown=idle != _MAKES_NONE)
    if kind == "Pod":
        origin = find_origin(document) or PodOrigin("", "")
        return replace(subject, pod=dict(document), user=origin.user or USER, hint=origin.hint)
    source = _SOURCES.get(kind)
    at = source.template_at if source else ("template",)
    template = _read_template(document, at, f"{where}: {subject.name}")
    if source is None:
        metadata = {**(template.get("metadata") or {}), "generateName": f"{own_name}-"}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
        return replace(subject, pod=pod, template_at=at)
    # A name takes precedence over generateName.
    kept = {key: value for key, value in words.items() if key != "generateName" or not own_name}
    workload = {**document, "metadata": {**kept, "namespace": namespace}}
    pod = simulate(source, workload, template, namespace).document
    return replace(subject, pod=pod, user=source.controller, template_at=at, workload=workload, source=source)


def _parse_custom(
    written: Mapping[str, Any], group: str, paths: Sequence[str], where: _Place, default_namespace: str
) -> Iterator[Subject | UserError]:
    """Yield one subject for each Pod template of a kind that is not Kubernetes' own."""
    kind, document = str(written["kind"]), fill_zero_values(written)
    metadata = read_mapping(document, ("metadata",), f"{where}: {kind}")
    namespace, own_name, generate_name = (
        _read_text(metadata, key, f"{where}: {kind}") for key in ("namespace", "name", "generateName")
    )
    shown, namespace = escape_line(own_name or generate_name), namespace or default_namespace
    subject = Subject(*where, escape_line(kind), shown, namespace, document, written)
    found = list(find_templates(document, paths))
    if not found:
        yield replace(subject, idle="it has no Pod template" if paths else _MAKES_NONE)
    for number, (at, template) in enumerate(found, 1):
        place = escape_line(".".join(map(str, at)))
        wrong = find_wrong_part(template)
        if wrong is not None:
            field = f"{place}.{wrong}" if wrong else place
            yield UserError(f"{where}: {subject.name}: {field}: expected a mapping", "give the whole object")
            continue
        made = build_pod(group, document, namespace, at, template)
        at_template = where.add_step(place).at if len(found) > 1 else where.at
        yield replace(
            subject,
            at=at_template,
            pod=made.document,
            user=made.user or USER,
            template_at=at,
            is_continued=number < len(found),
        )


def _read_template(document: Mapping[str, Any], path: tuple[str, ...], where: str) -> Mapping[str, Any]:
    template = read_mapping(document, path, where)
    whole = {".".join(path): template}
    for part in ("metadata", "spec") if template.get("metadata") is not None else ("spec",):
        read_mapping(whole, (*whole, part), where)
    return template


def _refuse_former_version(kind: str, api_version: Any, where: _Place) -> None:
    """Reject a version that no API server serves, such as extensions/v1beta1; other groups have their own kinds."""
    if kind not in {"Pod", "PodTemplate", *_SOURCES} or not api_version or "." in str(api_version):
        return
    served = _SOURCES[kind].api_version if kind in _SOURCES else "v1"
    if api_version != served:
        shown = escape_line(str(api_version))
        raise UserError(f"{where}: {kind}: apiVersion: {shown}: no API server serves it", f"write {served}")


def _find_idle_reason(kind: str, api_version: Any) -> str:
    """Return why no Pod is created from a kind, "" if a Pod is. Other API groups have a Job, too."""
    group, _, version = str(api_version or "").rpartition("/")
    if kind in {"Pod", "PodTemplate", *_SOURCES}:
        is_known = not version or group == (_SOURCES[kind].group if kind in _SOURCES else "")
        return "" if is_known else f"apiVersion {escape_line(str(api_version))} is not Kubernetes' own"
    return _MAKES_NONE if is_built_in(group) else "not one of Kubernetes' own kinds"


def _parse_review(review: dict[str, Any], where: _Place) -> Subject:
    request = review.get("request")
    asked = request if isinstance(request, dict) else {}
    pod, uid = asked.get("object"), asked.get("uid")
    shown = "" if uid is None else escape_line(str(uid))
    subject = Subject(*where, "AdmissionReview", shown, document=review, written=review)
    namespace = str(asked.get("namespace", ""))
    return replace(subject, namespace=namespace, pod=pod if isinstance(pod, dict) else {}, review=review)


def read_mapping(document: Any, path: tuple[str, ...], where: str) -> Mapping[str, Any]:
    """Return the mapping at `path`."""
    found: Mapping[str, Any] = document if isinstance(document, Mapping) else {}
    for depth, key in enumerate(path, 1):
        value = found.get(key)
        if not isinstance(value, Mapping):
            wrong = " is missing" if value is None else f": {quote_value(value)}: expected a mapping"
            raise UserError(f"{where}: {'.'.join(path[:depth])}{wrong}", "give the whole object")
        found = value
    return found


def _read_text(metadata: Mapping[str, Any], key: str, where: str) -> str:
    value = metadata.get(key)
    if value is not None and not isinstance(value, str):
        raise UserError(f"{where}: metadata.{key}: {quote_value(value)}: expected a string", "give it as text")
    return value or ""
