"""Defects of the controller: refunds, releases, groups, slots."""

from tests.chaos.planted.defect import Defect, of

DEFECTS = (
    Defect(
        "a Pod is refunded although the watch has not reached the lookup",
        "refunds",
        of("charges"),
        "webhook/controller/never_created_pods.py",
        "            if absence is None or not self._is_confirmed(absence):\n"
        "                continue\n"
        "            # Checked again: meanwhile the watch may have shown it, or restarted.\n"
        "            if self._may_be_absent(pod) and await",
        "            if absence is None or self._is_seen(pod):\n                continue\n            if await",
    ),
    Defect(
        "what was never created keeps its place",
        "refunds",
        of("charges"),
        "webhook/controller/never_created_pods.py",
        "        waiting = await self._ledger.list_overdue(plan, age_us, self._timing.overdue_max)\n",
        "        waiting = (await self._ledger.list_overdue(plan, age_us, self._timing.overdue_max))[:0]\n",
    ),
    Defect(
        "a Pod is refunded after a second",
        "refunds",
        of("charges"),
        "webhook/controller/never_created_pods.py",
        "        age_us = int(self._timing.overdue_seconds * _SECOND_US)",
        "        age_us = _SECOND_US // 10",
    ),
    Defect(
        "a gate is removed before its Pod is charged",
        "queue",
        of("gates", "windows"),
        "webhook/controller/release/releaser.py",
        "            is_charged = receipt is not None and receipt.refused is None and not receipt.repeated",
        "            is_charged = receipt is not None and not receipt.repeated",
    ),
    Defect(
        "a group is released before all of it is there",
        "queue",
        of("gates"),
        "webhook/core/groups/completeness.py",
        "    left = max(1, wanted - succeeded)",
        "    left = max(1, wanted - succeeded - 1)",
    ),
    Defect(
        "a Pod that could not be released is forgotten",
        "queue",
        of("gates"),
        "webhook/controller/release/removal.py",
        "            self.backoff.add(pod, until_us)",
        "            self._forget_wait(pod.waiting.uid)",
        past="Pods whose release the API server refuses stay in podgate queue, explain, status and metrics",
    ),
    Defect(
        "a refusal after a lost answer refunds a Pod that may run",
        "queue",
        of("charges", "windows", "gates"),
        "webhook/controller/release/removal.py",
        "        may_be_released = uid in self._charged if group is None else group.has_begun or uid in self._silent",
        "        may_be_released = False",
        past="a refusal after a lost answer no longer refunds a Pod that may run",
    ),
    Defect(
        "a slot that is free is not given again",
        "shares",
        of("shares"),
        "webhook/core/shares/owner_slots.py",
        "            self._lowest = min(self._lowest, slot)",
        "            pass",
    ),
    Defect(
        "the controller frees no slots of Pods that end",
        "shares",
        of("shares"),
        "webhook/controller/shares/slot_reconciler.py",
        "        for is_held, tell in ((False, self._slots.free), (True, self._slots.confirm)):",
        "        for is_held, tell in ((True, self._slots.confirm),):",
    ),
    Defect(
        "of equals the last variant gets the slot",
        "shares",
        of("shares"),
        "webhook/core/shares/split.py",
        "            chosen = lacking.index(max(lacking))",
        "            chosen = lacking.index(min(lacking))",
    ),
)
