"""Document of the policy in force: from the server that has it, else from the cluster."""

from webhook.console.interface.document_reader import DocumentReader
from webhook.errors import UserError


async def read_in_force(reader: DocumentReader) -> bytes:
    """Return the document. UserError: neither the server nor the cluster gives it."""
    policy_hash = (await reader.read_server()).policy.hash
    ports = reader.ports
    if not policy_hash:
        raise UserError("the server has no policy yet", "paste the text of one below")
    if ports.decisions is not None:
        try:
            return await ports.decisions.get(f"/api/v1/policies/{policy_hash}")
        except UserError:
            if ports.policies is None:
                raise
    if ports.policies is None:
        raise UserError(ports.missing.get("decisions", "no decision port was found"), "paste its text below")
    return await ports.policies.read_document(policy_hash)
