"""Contract of `ports.PolicyRevisions`."""

from webhook.ports import PolicyRevisions

ONE, OTHER = "0123456789abcdef", "fedcba9876543210"
DOCUMENT = b"apiVersion: podgate.io/v1alpha1\n# caf\xc3\xa9\n"


async def check_revisions(revisions: PolicyRevisions) -> None:
    """Documents are kept by hash, the newest first; one that is kept again becomes the newest, and stays marked."""
    assert await revisions.list_all() == ()
    await revisions.keep(ONE, DOCUMENT)
    await revisions.keep(ONE, DOCUMENT)
    await revisions.keep(OTHER, b"other")
    assert [(kept.number, kept.hash) for kept in await revisions.list_all()] == [(2, OTHER), (1, ONE)]
    assert await revisions.read(ONE) == DOCUMENT
    assert not any(kept.was_in_force for kept in await revisions.list_all())
    await revisions.mark_in_force(ONE)
    await revisions.mark_in_force(ONE)
    await revisions.keep(ONE, DOCUMENT)
    listed = [(kept.number, kept.hash, kept.was_in_force) for kept in await revisions.list_all()]
    assert listed == [(3, ONE, True), (2, OTHER, False)]
    await revisions.delete(OTHER)
    await revisions.delete(OTHER)
    await revisions.mark_in_force(OTHER)
    assert await revisions.read(OTHER) is None
