"""Defects of the counters in Redis: windows, charges, pools, namespaces."""

from tests.chaos.planted.defect import Defect, of

_LUA = "webhook/adapters/redis_store/lua"

DEFECTS = (
    Defect(
        "a window is half as long",
        "calm",
        of("windows"),
        f"{_LUA}/00_constants.lua",
        "local LIVE = 65 -- buckets of a window",
        "local LIVE = 33 -- buckets of a window",
    ),
    Defect(
        "a window is half longer",
        "calm",
        of("denials"),
        f"{_LUA}/00_constants.lua",
        "local LIVE = 65 -- buckets of a window",
        "local LIVE = 97 -- buckets of a window",
    ),
    Defect(
        "one Pod more than the limit",
        "calm",
        of("windows"),
        f"{_LUA}/31_limits.lua",
        "if asked > 0 and asked > hard - has then",
        "if asked > 0 and asked > hard - has + 1 then",
    ),
    Defect(
        "a repeated review is charged again",
        "calm",
        of("charges"),
        f"{_LUA}/40_acquire.lua",
        "  if known then\n    if not peek then",
        "  if known and peek then\n    if not peek then",
        past="each uid once",
    ),
    Defect(
        "a dry run is charged",
        "calm",
        of("charges"),
        "webhook/core/admission/charging.py",
        "            request.dry_run or peek,",
        "            peek,",
    ),
    Defect(
        "a pool counts nothing",
        "calm",
        of("windows", "agreement"),
        f"{_LUA}/32_charging.lua",
        "    guarantees, h, limits = b.guarantees, home, h ~= home and b.pool",
        "    guarantees, h, limits = b.guarantees, home, false",
    ),
    Defect(
        "namespaces that count apart count as one",
        "calm",
        of("denials", "agreement"),
        "webhook/adapters/redis_store/keys.py",
        '        return f"{self.ring}:{scope}" if scope else self.ring',
        "        return self.ring",
    ),
    Defect(
        "a denial tells a moment that is too late",
        "calm",
        of("denials"),
        f"{_LUA}/refusals/10_buckets.lua",
        "  return (first + index - 1 + LIVE) * seconds * BUCKET_US_PER_SECOND",
        "  return (first + index - 1 + LIVE + 16) * seconds * BUCKET_US_PER_SECOND",
    ),
    Defect(
        "a denial is repeated from the cache after there is room",
        "calm",
        of("denials"),
        "webhook/core/ledger/deny_cache.py",
        "            until_us = min(until_us, now_us - late_us + receipt.free_at_us - receipt.at_us)",
        "            until_us = now_us + DENIAL_US_MAX",
    ),
    Defect(
        "fractions of a processor are not counted",
        "calm",
        of("windows", "agreement"),
        "webhook/core/quota/pod_cost.py",
        "    return -(-compute_total(pod, side, name) // unit)",
        "    return compute_total(pod, side, name) // unit // 1000 * 1000",
    ),
    Defect(
        "a page shows one Pod less than was charged",
        "calm",
        of("agreement"),
        f"{_LUA}/operations/20_operations.lua",
        "    local used = w and w[WINDOW_SUMS][resource] or 0\n    local kept, free",
        "    local used = max(0, (w and w[WINDOW_SUMS][resource] or 0) - 1)\n    local kept, free",
    ),
)
