-- Breaker of one service, one record in one key: `core/breaker/{record,advance}.py`, on Redis.
-- A record is always advanced to `now` first, as if each boundary had been ticked; it is written only if it changed.
-- Intervals are advanced to `late` before now only: their outcomes may still arrive. `opened` is the number of open
-- breakers among those that breakerGuard counts, as the caller knows it and as this call changes it.

local function breaker_of(key, strings)
  local r = breakers[key]
  if not r then
    local packed, f, long = strings[key], NOTHING, false
    if packed and string.byte(packed, 1) == LONG_RECORD and string.byte(packed, 3) == LONG_FIELDS then
      f, long = module('refusals').long_record(packed)
    elseif packed then
      f = cmsgpack.unpack(packed)
    end
    local reset_at = f[15] or 0
    r = { -- every field is here: a table that grows costs more
      state = f[1] or 'CLOSED', generation = f[2] or 0, since = f[3] or 0, open_until = f[4] or 0, reason = f[5] or '',
      successes = f[6] or 0, leases = f[7] or NOTHING, errors = f[8] or false, latency = f[9] or false,
      events = f[10] or NOTHING, failed = f[11] or NOTHING, early = f[12] or 0,
      tripped_at = f[13] or 0, tripped_by = f[14] or '', reset_at = reset_at,
      excused = f[16] or NOTHING, asked = f[17] or reset_at, passed = f[18] or 0, alone = f[19] or 0,
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
    and (not errors or (errors[1] == plan.errors_length and judged < (errors[2] + 1) * errors[1]))
    and (not latency or (latency[1] == plan.latency_length and judged < (latency[2] + 1) * latency[1]))
end

-- Correct `opened` for a breaker of this call: its record counts, not what the caller knew.
local function recount(plan, strings)
  local r = breaker_of(plan.breaker_key, strings)
  if not r.is_recounted then
    local is_opened = r.state == 'CLOSED' and 0 or module('breaker').as_opened(r.state)
    r.is_recounted, opened = true, opened + is_opened - (plan.is_counted and 1 or 0)
  end
end

-- Return what callers see: true of a breaker without a record, which is CLOSED. Of any other {state, generation, since,
-- open until, reason, pending probes, succeeded probes}. A breaker that has ever tripped adds {trip time, trip reason,
-- early probes left, failed sources}. If its newest transition was not the store's decision, it adds {transitions by time
-- alone, decisions of a replica alone before them}.
local function view_of(r, home, leased, early)
  if not (r.is_stored or r.moved) then
    return true
  end
  local v = {r.state, r.generation, shown(home, r.since), shown(home, r.open_until), r.reason, leased, r.successes}
  if r.tripped_by ~= '' or r.passed > 0 or r.alone > 0 then
    v[8], v[9], v[10], v[11] = shown(home, r.tripped_at), r.tripped_by, early, early > 0 and r.failed or {}
  end
  if r.passed > 0 or r.alone > 0 then
    v[12], v[13] = r.passed, r.alone
  end
  return v
end
