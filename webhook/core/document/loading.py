"""Loading of a policy document: parse, merge defaults, check schema and rules, prove. Reports all problems at once."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

from webhook.core.document import feature_gates, rules
from webhook.core.document.defaults import ATOMIC, advise_on_merge, merge_defaults
from webhook.core.document.feature_gates import Purpose
from webhook.core.document.schema_problems import find_schema_problems
from webhook.core.document.yaml.document_kind import POLICY, redact_unless
from webhook.core.document.yaml.nodes import Node
from webhook.core.document.yaml.parts import DocumentPart, InvalidPaths, convert
from webhook.core.document.yaml.problems import DOCUMENT, DocumentError, Problem, sort_problems
from webhook.core.document.yaml.reader import read_yaml
from webhook.core.document.yaml.syntax_errors import find_template
from webhook.core.document.yaml.text import build_syntax_problem, decode_text
from webhook.core.policy.model import LoadedPolicy, Policy
from webhook.core.proof import Flaw, Proof, prove


@dataclass(frozen=True, slots=True)
class LoadResult:
    """A valid policy, and warnings about values that are probably mistakes."""

    policy: LoadedPolicy
    warnings: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class EffectiveDocument:
    """A valid document after the merge: as a tree with line numbers, and as types."""

    document: Node
    policy: Policy
    warnings: tuple[Problem, ...]
    written: Node
    """The tree before the merge."""


def load(raw: bytes, purpose: Purpose) -> LoadResult:
    """Return the policy in `raw`. DocumentError: all problems that prevent its use for `purpose`."""
    effective = load_effective(raw, purpose)
    return LoadResult(LoadedPolicy(effective.policy, compute_hash(raw)), effective.warnings)


def load_again(raw: bytes) -> LoadedPolicy:
    """Return a policy that a server has already loaded, without the proof. DocumentError: it is invalid."""
    return LoadedPolicy(load_unproved(raw, None).policy, compute_hash(raw))


def load_effective(raw: bytes, purpose: Purpose | None) -> EffectiveDocument:
    """Return the merged document after its proof. Without a purpose, unsupported stanzas are accepted."""
    return add_proof(load_unproved(raw, purpose))


def add_proof(effective: EffectiveDocument) -> EffectiveDocument:
    """Return a document after its proof. DocumentError: the proof found flaws."""
    proof = prove(effective.policy)
    refuse_flaws(proof.flaws, effective.document)
    return replace(
        effective, warnings=sort_problems([*effective.warnings, *_check_sampling(proof, effective.document)])
    )


def refuse_flaws(flaws: Sequence[Flaw], document: Node) -> None:
    """DocumentError: there are flaws, each at its stanza."""
    services = document.child("services")
    if flaws:
        raise DocumentError(
            services.child(flaw.service).child(flaw.stanza).build_key_problem(flaw.reason, flaw.remedy)
            for flaw in flaws
        )


def compute_hash(raw: bytes) -> str:
    """Return the hash by which a document is known."""
    return sha256(raw).hexdigest()[:16]


def load_unproved(
    raw: bytes, purpose: Purpose | None, atomic: frozenset[str] = ATOMIC, *, advises: bool = True
) -> EffectiveDocument:
    """Return the merged document without the proof, for documents already proved.

    `atomic`: the fields that a service replaces as a whole. `advises`: whether somebody reads the warnings.
    """
    with redact_unless(POLICY, raw):
        return _check(raw, purpose, atomic, advises=advises)


def _check(raw: bytes, purpose: Purpose | None, atomic: frozenset[str], *, advises: bool) -> EffectiveDocument:
    reading = read_yaml(raw)
    if reading.is_empty:
        remedy = "write apiVersion, kind and services"
        raise DocumentError([Problem(1, 1, DOCUMENT, "(empty)", "there is no document", remedy)])
    _refuse_other_kinds(reading.root)
    try:
        return check_tree(reading.root, purpose, atomic, reading.problems, advises=advises)
    except DocumentError as error:
        raise DocumentError(_find_template_problem(raw) or error.problems) from None


def check_tree(
    tree: Node,
    purpose: Purpose | None,
    atomic: frozenset[str] = ATOMIC,
    problems: Iterable[Problem] = (),
    *,
    advises: bool = True,
) -> EffectiveDocument:
    """Return the merged document of a tree, without the proof. DocumentError: all problems, with those of its text."""
    document = merge_defaults(tree, atomic)
    found = list(find_schema_problems(document))
    errors = [*problems, *(mistake.problem for mistake in found)]
    root = DocumentPart(document, (), InvalidPaths(path for mistake in found for path in mistake.wrong))
    errors += rules.find_errors(root)
    if purpose is not None:
        errors += feature_gates.check_support(root, purpose)
    if errors:
        raise DocumentError(errors)
    advice = (*rules.find_advice(root), *advise_on_merge(tree)) if advises else ()
    return EffectiveDocument(document, _convert_policy(document), sort_problems(advice), tree)


def _find_template_problem(raw: bytes) -> list[Problem]:
    """Return one problem for an unrendered template, instead of one for each of its values."""
    text = decode_text(raw)
    found = find_template(text)
    return [] if found is None else [build_syntax_problem(found, text)]


def _convert_policy(document: Node) -> Policy:
    """Return the document as types, without `defaults`, which are already merged."""
    fields = document.value if isinstance(document.value, dict) else {}
    kept = {key: node for key, node in fields.items() if key != "defaults"}
    return convert(replace(document, value=kept), Policy)


def _refuse_other_kinds(root: Node) -> None:
    """Raise one problem for a document of another kind, instead of one per line."""
    if not isinstance(root.value, dict):
        remedy = "begin with apiVersion: podgate.io/v1alpha1, kind: Policy and services:"
        raise DocumentError([root.build_problem("a policy must be a mapping of fields", remedy)])
    kind = root.value.get("kind")
    if kind is not None and kind.value == "ConfigMap":
        remedy = 'give the document alone: the text under data["policy.yaml"]'
        raise DocumentError([kind.build_problem("a ConfigMap, which only carries a policy", remedy)])


def _check_sampling(proof: Proof, document: Node) -> Iterator[Problem]:
    if proof.is_sampled:
        reason = f"proved on {proof.proved} of {proof.sets} sets of rules"
        remedy = "let services share placement and resources, by `defaults` or aliases, to have each of them proved"
        yield document.child("services").build_key_problem(reason, remedy)
