"""Policy page: what is in force, the policies that are kept, the difference of two of them, and the rollout."""

import asyncio
from collections.abc import Sequence

from webhook.commands.policy_argument import load_valid
from webhook.console.interface.console_policies import ConsolePolicies
from webhook.console.interface.document_reader import DocumentReader
from webhook.console.interface.page import Page, PageRequest
from webhook.core.console_views.policy import PolicyComparison, PolicyPage, build_policy
from webhook.core.lru_cache import LruCache
from webhook.core.policy_changes.differences import compare
from webhook.core.reporting.candidate_document import StoredRollout
from webhook.core.reporting.rollout_reports import RevisionEntry
from webhook.errors import UserError

NO_CLUSTER = (
    "This console knows the policy in force alone. For history and rollout, run podgate console with a kubeconfig,"
    " or podgate policy history"
)
_COMPARED_MAX = 32
_NAME_MAX = 63
_compared: LruCache[tuple[str, str], PolicyComparison] = LruCache(_COMPARED_MAX)


async def build(request: PageRequest) -> PolicyPage:
    server = await request.reader.read_server()
    stored, obstacle, metrics = await request.reader.share(_read_stored)
    names = request.query.get("a", "")[:_NAME_MAX], request.query.get("b", "")[:_NAME_MAX]
    policies = request.reader.ports.policies
    compared = None
    if policies is not None and stored is not None and all(names):
        compared = await _compare(policies, stored.entries, names)
    return build_policy(server, stored, obstacle, metrics, compared)


async def _read_stored(reader: DocumentReader) -> tuple[StoredRollout | None, str, str]:
    """Return history and rollout, why they are missing, and the metrics of the process that leads a canary."""
    ports = reader.ports
    if ports.policies is None:
        return None, NO_CLUSTER, ""
    try:
        stored = await ports.policies.read_rollout()
    except UserError as error:
        return None, " ".join((f"{error}: {error.remedy}" if error.remedy else str(error)).split()), ""
    if stored.rollout is None or not stored.rollout.symptoms:
        return stored, "", ""
    try:
        return stored, "", (await (ports.leader or ports.plain).get("/metrics")).decode(errors="replace")
    except UserError:
        return stored, "", ""


async def _compare(
    policies: ConsolePolicies, entries: Sequence[RevisionEntry], names: tuple[str, str]
) -> PolicyComparison:
    """Return what changes between two policies. A hash names the same document always, so results are kept."""
    before, after = (_find_hash(entries, name) for name in names)
    if not (before and after):
        unknown = names[1] if before else names[0]
        return PolicyComparison(*names, problem=f"{unknown}: no such revision: choose one of the history below")
    found = _compared.get((before, after))
    if found is not None:
        return found
    try:
        documents = await asyncio.gather(policies.read_document(before), policies.read_document(after))
        old, new = (load_valid(name, raw) for name, raw in zip((before, after), documents, strict=True))
    except UserError as error:
        return PolicyComparison(before, after, problem=" ".join(f"{error} {error.remedy}".split()))
    found = PolicyComparison(before, after, tuple(compare(old, new).format_lines()))
    _compared.keep((before, after), found)
    return found


def _find_hash(entries: Sequence[RevisionEntry], name: str) -> str:
    """Return the hash of a revision by its number or its hash; "" if it is not in the history."""
    return next((entry.hash for entry in entries if name in {entry.hash, str(entry.number or "-")}), "")


PAGE = Page("policy", "/policy", "Policy", build, menu_place=40, menu_text="Policy")
