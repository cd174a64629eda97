"""Assembly of the policy from its root document and its parts, into one document that all processes use.

Each part is checked by itself first, with the root's other fields, so that its problems have its own lines. A part with
problems is left out: its services of the former document stay.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from math import isfinite

from msgspec import Struct

from webhook.core.document.feature_gates import Purpose
from webhook.core.document.loading import add_proof, check_tree, load_effective
from webhook.core.document.yaml.document_kind import POLICY, redact_unless
from webhook.core.document.yaml.nodes import ExactNumber, Node
from webhook.core.document.yaml.problems import DOCUMENT, DocumentError, Problem, join_words
from webhook.core.document.yaml.reader import read_yaml
from webhook.core.kubernetes.name_patterns import is_within

PART_KIND = "PolicyPart"
_FIELDS = ("apiVersion", "kind", "services")
_SHARED = ("apiVersion", "kind", "slaClasses", "pools", "defaults", "exemptions", "nodes")
"""Fields of the root that services of a part are checked with."""
_SHAPE = f"begin with apiVersion: podgate.io/v1alpha1, kind: {PART_KIND} and services:"


class Assembly(Struct, frozen=True):
    """The document, and the problems of each part whose newest text is not in it."""

    document: bytes
    problems: Mapping[str, tuple[Problem, ...]] = {}


def declares_parts(root: bytes) -> bool:
    """Return whether a root document declares parts."""
    try:
        tree = read_yaml(root).root
    except DocumentError:
        return False
    return isinstance(tree.value, dict) and bool(_read_declared(tree.value.get("parts")))


class AssemblyRequest(Struct, frozen=True):
    """What to assemble: see `assemble`."""

    root: bytes
    parts: Mapping[str, bytes]
    purpose: Purpose = Purpose.SERVE
    former: bytes = b""

    def assemble(self) -> Assembly:
        return assemble(self.root, self.parts, self.purpose, self.former)


class _Declared(Struct, frozen=True):
    """What the root says of a part."""

    name: str
    namespaces: tuple[str, ...]
    pools: tuple[str, ...]

    def owns(self, service: str) -> bool:
        """Return whether a service of this name belongs to the part."""
        return service == self.name or service.startswith(f"{self.name}-")


def assemble(root: bytes, parts: Mapping[str, bytes], purpose: Purpose, former: bytes = b"") -> Assembly:
    """Return the root with the services of its parts after its own, in the order of the root's `parts`.

    A root that declares no parts is returned as it is, and so is an invalid one: whoever loads it reports its problems.
    `former`: the last valid document, from which the services of an invalid part are taken.
    """
    try:
        tree = read_yaml(root).root
    except DocumentError:
        return Assembly(root)
    fields = tree.value if isinstance(tree.value, dict) else {}
    declared = _read_declared(fields.get("parts"))
    problems: dict[str, tuple[Problem, ...]] = {
        name: (_build_stray_problem(name, declared),) for name in parts if name not in declared
    }
    if not declared:
        return Assembly(root, problems)
    former_services = _read_services(former)
    taken: dict[str, Sequence[Node]] = {}
    for name, part in declared.items():
        try:
            taken[name] = _check_part(part, parts[name], fields, purpose) if name in parts else ()
        except DocumentError as error:
            problems[name] = error.problems
            taken[name] = _take_former(part, former_services, fields, purpose)
    document = _render(fields, taken)
    if _find_problems(document, purpose) and not _find_problems(_render(fields, {}), purpose):
        document = _leave_out(fields, taken, problems, purpose)
    return Assembly(document, problems)


def _leave_out(
    fields: Mapping[str, Node],
    taken: Mapping[str, Sequence[Node]],
    problems: dict[str, tuple[Problem, ...]],
    purpose: Purpose,
) -> bytes:
    """Return the document without the parts that do not fit those before them, and add their problems."""
    kept: dict[str, Sequence[Node]] = {}
    for name, services in taken.items():
        found = _find_problems(_render(fields, {**kept, name: services}), purpose)
        if found:
            problems.setdefault(name, found)
        else:
            kept[name] = services
    return _render(fields, kept)


def _find_problems(document: bytes, purpose: Purpose) -> tuple[Problem, ...]:
    try:
        load_effective(document, purpose)
    except DocumentError as error:
        return error.problems
    return ()


def _read_declared(node: Node | None) -> dict[str, _Declared]:
    """Return the valid entries of `parts`, by name; the root's own check reports the others."""
    found: dict[str, _Declared] = {}
    for item in node.value if node is not None and isinstance(node.value, list) else ():
        plain = item.strip_positions()
        if isinstance(plain, dict) and isinstance(plain.get("name"), str):
            namespaces, pools = plain.get("namespaces"), plain.get("pools")
            found[plain["name"]] = _Declared(plain["name"], _list_texts(namespaces), _list_texts(pools))
    return found


def _list_texts(plain: object) -> tuple[str, ...]:
    return tuple(text for text in plain if isinstance(text, str)) if isinstance(plain, list) else ()


def _build_stray_problem(name: str, declared: Mapping[str, _Declared]) -> Problem:
    known = f"the root declares {join_words(list(declared))}" if declared else "the root declares no parts"
    return Problem(1, 1, DOCUMENT, name, f"not a part of the policy: {known}", f"add it to parts: - {{name: {name}}}")


def _check_part(part: _Declared, raw: bytes, root: Mapping[str, Node], purpose: Purpose) -> Sequence[Node]:
    """Return the services of a part. DocumentError: all its problems."""
    with redact_unless(POLICY, raw):
        reading = read_yaml(raw)
        fields = reading.root.value
        if not isinstance(fields, dict) or not isinstance((fields.get("services") or reading.root).value, list):
            raise DocumentError([*reading.problems, reading.root.build_problem("a part is a list of services", _SHAPE)])
        problems = [*reading.problems, *_check_shape(fields)]
        services = fields["services"]
        problems += _check_bounds(part, services, _list_names(root.get("services")))
        try:
            _check_alone(services, root, purpose)
        except DocumentError as error:
            problems += error.problems
        if problems:
            raise DocumentError(problems)
        return services.value if isinstance(services.value, list) else ()


def _check_alone(services: Node, root: Mapping[str, Node], purpose: Purpose) -> None:
    """Check services with the root's other fields. DocumentError: they are invalid, or the proof found flaws."""
    fields = {key: root[key] for key in _SHARED if key in root}
    tree = Node({**fields, "services": services}, (), 1, 1, 1, 1)
    add_proof(check_tree(tree, purpose))


def _check_shape(fields: Mapping[str, Node]) -> Iterator[Problem]:
    for key, node in fields.items():
        if key not in _FIELDS:
            yield node.build_key_problem("a part has services only", f"remove {key}: the root document decides it")
    kind = fields.get("kind")
    if kind is None or kind.value != PART_KIND:
        node = kind or next(iter(fields.values()))
        yield node.build_problem("the kind of a part is another", f"write kind: {PART_KIND}")


def _check_bounds(part: _Declared, services: Node, others: frozenset[str]) -> Iterator[Problem]:
    """Yield the problems of services that leave what the root allows the part."""
    for service in services.value if isinstance(services.value, list) else ():
        fields = service.value if isinstance(service.value, dict) else {}
        name, match, pool = fields.get("name"), fields.get("match"), fields.get("pool")
        guaranteed = fields.get("guaranteed")
        if name is not None and isinstance(name.value, str):
            if not part.owns(name.value):
                remedy = f"write {part.name}, or a name that begins with {part.name}-"
                yield name.build_problem(f"no name for a service of part {part.name}", remedy)
            elif name.value in others:
                yield name.build_problem("a service of the root document has this name", "choose another name")
        if pool is not None and pool.value not in part.pools:
            known = f"use {join_words(part.pools)}" if part.pools else "remove it"
            yield pool.build_problem(f"part {part.name} may not join this pool", f"{known}, or let the root allow it")
        if guaranteed is not None:
            reason = "only the root document gives parts of its pools away"
            yield guaranteed.build_key_problem(reason, "remove it, or let the root have the service")
        if match is not None and isinstance(match.value, dict):
            yield from _check_match(part, match, match.value)


def _check_match(part: _Declared, match: Node, fields: Mapping[str, Node]) -> Iterator[Problem]:
    allowed = join_words(part.namespaces) if part.namespaces else "none"
    anywhere, namespaces = fields.get("anyNamespace"), fields.get("namespaces")
    if anywhere is not None and anywhere.value is not False:
        yield anywhere.build_problem(f"part {part.name} is bound to namespaces", f"name some of {allowed}")
    named = namespaces.value if namespaces is not None and isinstance(namespaces.value, list) else []
    if not named:
        yield match.build_missing_problem("namespaces", f"part {part.name} is bound to namespaces", f"write {allowed}")
    for entry in named:
        if isinstance(entry.value, str) and not any(is_within(entry.value, outer) for outer in part.namespaces):
            reason = f"outside the namespaces of part {part.name}"
            yield entry.build_problem(reason, f"name some of {allowed}, or let the root allow it")


def _list_names(services: Node | None) -> frozenset[str]:
    items = services.value if services is not None and isinstance(services.value, list) else []
    return frozenset(name for service in items if (name := _read_name(service)))


def _read_name(service: Node) -> str:
    name = service.value.get("name") if isinstance(service.value, dict) else None
    return name.value if name is not None and isinstance(name.value, str) else ""


def _read_services(document: bytes) -> Sequence[Node]:
    """Return the services of a document; none if it cannot be read."""
    try:
        fields = read_yaml(document).root.value
    except DocumentError:
        return ()
    services = fields.get("services") if isinstance(fields, dict) else None
    return services.value if services is not None and isinstance(services.value, list) else ()


def _take_former(part: _Declared, former: Sequence[Node], root: Mapping[str, Node], purpose: Purpose) -> Sequence[Node]:
    """Return the services that a part had in the former document, without those that are no longer allowed."""
    others = _list_names(root.get("services"))
    kept = []
    for service in former:
        alone = Node([service], ("services",), 1, 1, 1, 1)
        if not part.owns(_read_name(service)) or any(_check_bounds(part, alone, others)):
            continue
        try:
            _check_alone(alone, root, purpose)
        except DocumentError:
            continue
        kept.append(service)
    return kept


def _render(root: Mapping[str, Node], parts: Mapping[str, Sequence[Node]]) -> bytes:
    """Return the document as JSON text: equal for equal root and parts."""
    own = root.get("services")
    services = [_simplify(node) for node in (own.value if own is not None and isinstance(own.value, list) else ())]
    services += [_simplify(node) for part in parts.values() for node in part]
    fields = {key: _simplify(node) for key, node in root.items() if key != "services"}
    return f"{json.dumps({**fields, 'services': services}, indent=2, ensure_ascii=False)}\n".encode()


def _simplify(node: Node) -> object:
    """Return the value of a node for JSON, in which it means the same; an exact number that JSON lacks is a text."""
    if isinstance(node.value, dict):
        return {key: _simplify(inner) for key, inner in node.value.items()}
    if isinstance(node.value, list):
        return [_simplify(inner) for inner in node.value]
    if isinstance(node.value, ExactNumber):
        text = str(node.value)
        number = float(text)
        return number if isfinite(number) and Fraction(repr(number)) == Fraction(text) else text
    return node.value
