-- Breaker of one service, one record in one key: `core/breaker/{record,transitions}.py`, on Redis.
-- A record is always advanced to `now` first, as if each boundary had been ticked; it is written only if it changed.
-- Intervals are advanced to `late` before now only: their outcomes may still arrive. `opened` is the number of open
-- breakers among those that breakerGuard counts, as the caller knows it and as this call changes it.

local DAY_MS = 86400000
local breakers = {}
local late, opened = 0, 0

local function breaker_of(key, strings)
  if not breakers[key] then
    local packed = strings[key]
    local r = {
      state = 'CLOSED', generation = 0, since = 0, open_until = 0, reason = '', successes = 0, leases = {},
      errors = false, latency = false, events = {},
    }
    if packed then
      r.state, r.generation, r.since, r.open_until, r.reason, r.successes, r.leases, r.errors, r.latency, r.events,
        r.failed, r.early, r.tripped_at, r.tripped_by, r.reset_at, r.excused, r.asked, r.passed, r.alone =
        unpack(cmsgpack.unpack(packed))
    end
    r.failed, r.early, r.excused = r.failed or {}, r.early or 0, r.excused or {}
    r.tripped_at, r.tripped_by, r.reset_at = r.tripped_at or 0, r.tripped_by or '', r.reset_at or 0
    r.asked, r.passed, r.alone = r.asked or r.reset_at, r.passed or 0, r.alone or 0
    breakers[key] = r
  end
  return breakers[key]
end

-- Return a copy for reading. The stored record stays as it is: a later write advances it again.
local function glance(key, strings)
  local seen = {}
  for field, value in pairs(breaker_of(key, strings)) do
    seen[field] = value
  end
  seen.is_glance = true
  return seen
end

-- Attach the plan to a record that may have changed: the plan and the end of an override determine its TTL.
local function belongs(r, plan, home, now)
  r.plan, r.home, r.now = plan, home, now
end

local function lasts_ms(r)
  return math.max(r.plan.breaker_ttl, (r.open_until - r.now) / 1000 + DAY_MS)
end

local function write_breaker(key, r)
  local packed = cmsgpack.pack({
    r.state, r.generation, r.since, r.open_until, r.reason, r.successes, r.leases, r.errors, r.latency, r.events,
    r.failed, r.early, r.tripped_at, r.tripped_by, r.reset_at, r.excused, r.asked, r.passed, r.alone,
  })
  redis.call('SET', key, packed, 'PX', string.format('%.0f', lasts_ms(r)))
end

local function forget_windows(r)
  r.errors, r.latency, r.events = false, false, {}
end

local function is_forced(state)
  return BREAKER.IS_FORCED[state] or false
end

-- Return the end of the plan's forcing, by the tag's time.
local function until_of(plan)
  return plan.forcing[2] + hash_of(plan.home).offset
end

-- Return the forced state, or false. The plan takes precedence: the record may not have applied it yet.
local function forced(r, plan, now)
  if plan.forcing and now < until_of(plan) then
    return plan.forcing[1]
  end
  return is_forced(r.state) and r.state
end

local function as_opened(state)
  return BREAKER.IS_TRIPPED[state] and 1 or 0
end

local function count_opened(r, plan, new)
  if plan.open_max and not r.is_glance then
    opened = opened + as_opened(new) - as_opened(r.state)
  end
end

-- Correct `opened` for a breaker of this call: its record counts, not what the caller knew.
local function recount(plan, strings)
  if plan.breaker and plan.breaker.open_max then
    local r = breaker_of(plan.breaker_key, strings)
    if not r.is_recounted then
      r.is_recounted, opened = true, opened + as_opened(r.state) - (plan.is_counted and 1 or 0)
    end
  end
end

-- Enter the state that the transition table gives for a cause, with empty windows.
local function move(r, plan, cause, at, reason, open_until, moves, failed)
  local old, new = r.state, BREAKER.NEXT[r.state][cause]
  if not new then
    error('no transition from ' .. old .. ' by ' .. cause)
  end
  count_opened(r, plan, new)
  r.state, r.generation, r.since, r.open_until, r.reason = new, r.generation + 1, at, open_until, reason
  r.failed = failed or (new == 'HALF_OPEN' and r.failed) or {}
  r.successes, r.early, r.leases = 0, 0, cause == BREAKER.CAUSE.OPEN_FOR_PASSED and r.leases or {}
  r.passed, r.alone = 0, 0
  forget_windows(r)
  r.changed, r.moved = true, true
  moves[#moves + 1] = {old, new, at, reason, r.generation, cause}
end

-- Make a transition that every replica makes at the same moment. It does not count as a decision.
local function move_by_time(r, plan, cause, reason, moves)
  local passed, alone = r.passed + 1, r.alone
  move(r, plan, cause, r.open_until, reason, 0, moves)
  r.passed, r.alone = passed, alone
end

-- Open the breaker, unless breakerGuard's limit is reached: then only report the trip.
local function trip(r, plan, cause, at, reason, failed, moves)
  if plan.open_max and opened >= plan.open_max then
    forget_windows(r)
    r.changed = true
    moves[#moves + 1] = {r.state, r.state, at, BREAKER.HELD .. reason, r.generation, cause}
    return
  end
  r.tripped_at, r.tripped_by = at, reason
  move(r, plan, cause, at, reason, at + plan.open_for, moves, failed)
end

local function contains(list, wanted)
  for _, item in ipairs(list) do
    if item == wanted then
      return true
    end
  end
  return false
end

-- Return the union in order, at most FAILED_MAX + 1 sources.
local function joined(sources, more)
  local all = {unpack(sources)}
  for _, source in ipairs(more) do
    if #all <= BREAKER.FAILED_MAX and not contains(all, source) then
      all[#all + 1] = source
    end
  end
  return all
end

-- Return the failed sources; empty unless all of them are known.
local function known(sources)
  return (#sources > BREAKER.FAILED_MAX or contains(sources, '')) and {} or sources
end
