"""Defects of reviews, and of what is told of them."""

from tests.chaos.planted.defect import Defect, of

DEFECTS = (
    Defect(
        "the label of the service is not written",
        "calm",
        of("judged", "failures"),
        "webhook/core/admission/mutation.py",
        "    labels, annotations = {SERVICE_LABEL: service.name}, {HASH_ANNOTATION: policy_hash}",
        "    labels, annotations = dict[str, str](), {HASH_ANNOTATION: policy_hash}",
    ),
    Defect(
        "the scheduler is not written",
        "calm",
        of("judged", "failures"),
        "webhook/core/placement/scalar_fields.py",
        "        if single.is_due and not single.is_conflict:",
        '        if single.is_due and not single.is_conflict and single.name != "schedulerName":',
    ),
    Defect(
        "a review with many processors fails",
        "calm",
        of("failures"),
        "webhook/core/admission/charging.py",
        "    metadata, request, plan = evaluation.pod.metadata, evaluation.request, evaluation.plan\n",
        "    metadata, request, plan = evaluation.pod.metadata, evaluation.request, evaluation.plan\n"
        "    if metadata.uid.endswith('7'):\n        raise KeyError(metadata.uid)\n",
    ),
    Defect(
        "some reviews have no record",
        "calm",
        of("agreement"),
        "webhook/decisions/ring.py",
        "        if request is None:\n            return\n",
        "        if request is None or decision.pod_uid.endswith('3'):\n            return\n",
    ),
    Defect(
        "each review is counted twice",
        "calm",
        of("agreement"),
        "webhook/adapters/metrics/decisions.py",
        "        kind.reviews.value += 1",
        "        kind.reviews.value += 2",
    ),
    Defect(
        "the log tells the password of Redis",
        "calm",
        of("secrets"),
        "webhook/adapters/redis_store/transport/credentials.py",
        "    return await asyncio.to_thread(read)\n",
        "    found = await asyncio.to_thread(read)\n"
        '    print(found.password, file=__import__("sys").stderr, flush=True)\n'
        "    return found\n",
    ),
    Defect(
        "the log tells tokens",
        "calm",
        of("secrets"),
        "webhook/server/call_endpoint.py",
        "        request.client_id = caller.client_id\n        route = ",
        '        self._observer.on_refused("caller", str(request.headers))\n'
        "        request.client_id = caller.client_id\n        route = ",
    ),
)
