"""Defects of breakers: transitions, probes, causes, and what replicas share."""

from tests.chaos.planted.defect import Defect, of

_LUA = "webhook/adapters/redis_store/lua/breaker"

DEFECTS = (
    Defect(
        "an open breaker closes by time",
        "breaker",
        of("breakers"),
        "webhook/core/breaker/transitions.py",
        "    (State.OPEN, TransitionCause.OPEN_FOR_PASSED): State.HALF_OPEN,",
        "    (State.OPEN, TransitionCause.OPEN_FOR_PASSED): State.FORCED_CLOSED,",
    ),
    Defect(
        "a half-open breaker admits all",
        "breaker",
        of("breakers"),
        f"{_LUA}/23_advance.lua",
        "  return r.state == 'HALF_OPEN' and live_count(r, now) < math.max(plan.probes - r.successes, 1)",
        "  return r.state == 'HALF_OPEN'",
    ),
    Defect(
        "one bad interval opens a breaker",
        "breaker",
        of("breakers"),
        f"{_LUA}/22_triggers.lua",
        "    if streak >= rule[TRIGGER_CONSECUTIVE] then",
        "    if streak >= 1 then",
    ),
    Defect(
        "a breaker opens by fewer failures than outcomes",
        "breaker",
        of("breakers"),
        f"{_LUA}/22_triggers.lua",
        "100 * run[RUN_AMOUNT] >= rule[TRIGGER_THRESHOLD] * run[RUN_OUTCOMES] end,",
        "100 * run[RUN_AMOUNT] >= 0 * run[RUN_OUTCOMES] end,",
    ),
    Defect(
        "failures open no breaker",
        "breaker",
        of("breakers"),
        f"{_LUA}/22_triggers.lua",
        "    local streak, next_number, sources = crossed and run[RUN_STREAK] + 1 or 0,",
        "    local streak, next_number, sources = crossed and 1 or 0,",
    ),
    Defect(
        "denials open no breaker",
        "breaker",
        of("breakers"),
        "webhook/adapters/redis_store/lua/refusals/20_quota_events.lua",
        "    if #events >= trip_count then",
        "    if #events >= trip_count + 40 then",
    ),
    Defect(
        "a breaker is open for twice its time",
        "breaker",
        of("breakers"),
        f"{_LUA}/23_advance.lua",
        "  if r.state == 'OPEN' and r.open_until <= now then",
        "  if r.state == 'OPEN' and r.open_until + plan.open_for <= now then",
    ),
    Defect(
        "a transition keeps the generation",
        "breaker",
        of("breakers"),
        f"{_LUA}/21_transitions.lua",
        "r.state, r.generation, r.since, r.open_until, r.reason = new, r.generation + 1, at, open_until, reason",
        "r.state, r.generation, r.since, r.open_until, r.reason = new, r.generation, at, open_until, reason",
    ),
)
