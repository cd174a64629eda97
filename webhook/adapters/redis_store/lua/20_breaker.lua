-- Breaker of one service, one record in one key: `core/breaker/{record,advance}.py`, on Redis.
-- A record is always advanced to `now` first, as if each boundary had been ticked; it is written only if it changed.
-- Intervals are advanced to `late` before now only: their outcomes may still arrive. `opened` is the number of open
-- breakers among those that breakerGuard counts, as the caller knows it and as this call changes it.

local function breaker_of(key, strings)
  local r = breakers[key]
  if not r then
    local packed, f, long = strings[key], NOTHING, false
    if packed and string.byte(packed, 1) == LONG_RECORD and string.byte(packed, 3) == LONG_RECORD_LENGTH then
      f, long = module('refusals').long_record(packed)
    elseif packed then
      f = cmsgpack.unpack(packed)
    end
    local reset_at = f[BREAKER_RECORD_RESET_AT] or 0
    r = { -- every field is here: a table that grows costs more
      state = f[BREAKER_RECORD_STATE] or 'CLOSED', generation = f[BREAKER_RECORD_GENERATION] or 0,
      since = f[BREAKER_RECORD_SINCE] or 0, open_until = f[BREAKER_RECORD_OPEN_UNTIL] or 0,
      reason = f[BREAKER_RECORD_REASON] or '', successes = f[BREAKER_RECORD_SUCCESSES] or 0,
      leases = f[BREAKER_RECORD_LEASES] or NOTHING, errors = f[BREAKER_RECORD_ERRORS] or false,
      latency = f[BREAKER_RECORD_LATENCY] or false, events = f[BREAKER_RECORD_EVENTS] or NOTHING,
      failed = f[BREAKER_RECORD_FAILED] or NOTHING, early = f[BREAKER_RECORD_EARLY] or 0,
      tripped_at = f[BREAKER_RECORD_TRIPPED_AT] or 0, tripped_by = f[BREAKER_RECORD_TRIPPED_BY] or '',
      reset_at = reset_at, excused = f[BREAKER_RECORD_EXCUSED] or NOTHING, asked = f[BREAKER_RECORD_ASKED] or reset_at,
      passed = f[BREAKER_RECORD_PASSED] or 0, alone = f[BREAKER_RECORD_ALONE] or 0,
      plan = false, home = false, now = 0, changed = false, moved = false, is_glance = false, is_recounted = false,
      is_stored = packed ~= nil, long = long,
    }
    breakers[key] = r
  end
  return r
end

local function shown(home, at)
  return at > 0 and at - home.offset or at
end

-- Whether a breaker is CLOSED, and `advance` would change nothing: no boundary of an interval has passed.
local function is_quiet(r, plan, now)
  local judged, errors, latency = now - late, r.errors, r.latency
  return r.state == 'CLOSED' and not plan.is_forced and #r.leases == 0
    and (not errors or (errors[RUN_INTERVAL] == plan.errors_interval
      and judged < (errors[RUN_NUMBER] + 1) * errors[RUN_INTERVAL]))
    and (not latency or (latency[RUN_INTERVAL] == plan.latency_interval
      and judged < (latency[RUN_NUMBER] + 1) * latency[RUN_INTERVAL]))
end

-- Correct `opened` for a breaker of this call: its record counts, not what the caller knew.
local function recount(plan, strings)
  local r = breaker_of(plan.breaker_key, strings)
  if not r.is_recounted then
    local is_opened = r.state == 'CLOSED' and 0 or module('breaker').as_opened(r.state)
    r.is_recounted, opened = true, opened + is_opened - (plan.is_counted and 1 or 0)
  end
end

-- Return what callers see: true of a breaker without a record, which is CLOSED. Of any other the first fields of a VIEW.
-- A breaker that has ever tripped adds those of the trip, and one whose newest transition was not the store's decision
-- `passed` and `alone`.
local function view_of(r, home, leased, early)
  if not (r.is_stored or r.moved) then
    return true
  end
  local v = VIEW_START{
    state = r.state, generation = r.generation, since_us = shown(home, r.since), reason = r.reason,
    open_until_us = shown(home, r.open_until), probes_leased = leased, probes_succeeded = r.successes,
  }
  if r.tripped_by ~= '' or r.passed > 0 or r.alone > 0 then
    v[VIEW_TRIPPED_AT_US], v[VIEW_TRIPPED_BY] = shown(home, r.tripped_at), r.tripped_by
    v[VIEW_EARLY], v[VIEW_FAILED] = early, early > 0 and r.failed or {}
  end
  if r.passed > 0 or r.alone > 0 then
    v[VIEW_PASSED], v[VIEW_ALONE] = r.passed, r.alone
  end
  return v
end
