"""One document from bytes to a policy in force: read, merge, check, judge, prove. All that is wrong comes at once."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import sha256

from webhook.core.document import feature_gates, rules
from webhook.core.document.defaults import with_defaults
from webhook.core.document.feature_gates import Purpose
from webhook.core.document.structure import mistakes
from webhook.core.document.yaml.fields import Part, Wrong, converted
from webhook.core.document.yaml.nodes import Node
from webhook.core.document.yaml.problems import DOCUMENT, DocumentError, Problem, ordered
from webhook.core.document.yaml.reader import read
from webhook.core.document.yaml.recognition import POLICY, shown_only_as
from webhook.core.document.yaml.syntax import of_template
from webhook.core.document.yaml.text import decoded, syntax_problem
from webhook.core.policy.model import LoadedPolicy, Policy
from webhook.core.proof import Proof, prove


@dataclass(frozen=True, slots=True)
class LoadResult:
    """A good policy, and what is allowed in it but probably not meant."""

    policy: LoadedPolicy
    warnings: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class EffectiveDocument:
    """A good document after the merge: as a tree that knows its places, and as types."""

    document: Node
    policy: Policy
    warnings: tuple[Problem, ...]


def load(raw: bytes, purpose: Purpose) -> LoadResult:
    """Return the policy that `raw` holds; DocumentError with every problem that keeps `purpose` from using it."""
    effective = understand(raw, purpose)
    return LoadResult(LoadedPolicy(effective.policy, sha256(raw).hexdigest()[:16]), effective.warnings)


def understand(raw: bytes, purpose: Purpose | None) -> EffectiveDocument:
    """Return the document in force. Without a purpose no stanza is refused for being too early."""
    effective = unproved(raw, purpose)
    proof = prove(effective.policy)
    if proof.flaws:
        raise DocumentError(_flaws(proof, effective.document))
    return replace(effective, warnings=ordered([*effective.warnings, *_left_out(proof, effective.document)]))


def unproved(raw: bytes, purpose: Purpose | None) -> EffectiveDocument:
    """Return the same without the proof, which takes as long as all the rest: for what was proved already."""
    with shown_only_as(POLICY, raw):
        return _checked(raw, purpose)


def _checked(raw: bytes, purpose: Purpose | None) -> EffectiveDocument:
    reading = read(raw)
    if reading.is_empty:
        remedy = "write apiVersion, kind and services"
        raise DocumentError([Problem(1, 1, DOCUMENT, "(empty)", "there is no document", remedy)])
    _refuse_what_is_no_policy(reading.root)
    document = with_defaults(reading.root)
    found = list(mistakes(document))
    problems = [*reading.problems, *(mistake.problem for mistake in found)]
    root = Part(document, (), Wrong(path for mistake in found for path in mistake.wrong))
    problems += rules.errors(root)
    if purpose is not None:
        problems += feature_gates.objections(root, purpose)
    if problems:
        raise DocumentError(_of_a_template(raw) or problems)
    return EffectiveDocument(document, _policy(document), ordered(rules.advice(root)))


def _of_a_template(raw: bytes) -> list[Problem]:
    """Say what is wrong at once with a template that nobody rendered: each of its values would be."""
    text = decoded(raw)
    found = of_template(text)
    return [] if found is None else [syntax_problem(found, text)]


def _policy(document: Node) -> Policy:
    """Return the types; `defaults` has done its work."""
    fields = document.value if isinstance(document.value, dict) else {}
    kept = {key: node for key, node in fields.items() if key != "defaults"}
    return converted(replace(document, value=kept), Policy)


def _refuse_what_is_no_policy(root: Node) -> None:
    """Say plainly what is wrong where every single line would be."""
    if not isinstance(root.value, dict):
        remedy = "begin with apiVersion: podgate.io/v1alpha1, kind: Policy and services:"
        raise DocumentError([root.problem("a policy must be a mapping of fields", remedy)])
    kind = root.value.get("kind")
    if kind is not None and kind.value == "ConfigMap":
        remedy = 'give the document alone: the text under data["policy.yaml"]'
        raise DocumentError([kind.problem("a ConfigMap, which only carries a policy", remedy)])


def _flaws(proof: Proof, document: Node) -> Iterator[Problem]:
    """Yield what the proof found, each at the stanza that it is about."""
    services = document.child("services")
    for flaw in proof.flaws:
        yield services.child(flaw.service).child(flaw.stanza).problem_at_key(flaw.reason, flaw.remedy)


def _left_out(proof: Proof, document: Node) -> Iterator[Problem]:
    if proof.is_sampled:
        reason = f"proved on {proof.proved} of {proof.sets} sets of rules"
        remedy = "let services share placement and resources, by `defaults` or aliases, to have each of them proved"
        yield document.child("services").problem_at_key(reason, remedy)
