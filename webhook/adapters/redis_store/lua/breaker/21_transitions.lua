-- Transitions of a breaker that is not CLOSED, or may not stay so: `core/breaker/{record,transitions}.py`, on Redis.

-- Return a plan's breaker, decoded once.
local function rules_of(plan)
  local rules = details_of(plan).rules
  if rules and not plan.breaker then
    plan.breaker = {
      home = plan.home, has_outcomes = rules[BREAKER_RULES_HAS_OUTCOMES], error_rate = rules[BREAKER_RULES_ERROR_RATE],
      latency = rules[BREAKER_RULES_LATENCY], open_for = rules[BREAKER_RULES_OPEN_FOR_US],
      probes = rules[BREAKER_RULES_PROBES], probe_timeout = rules[BREAKER_RULES_PROBE_TIMEOUT_US],
      degrades = rules[BREAKER_RULES_DEGRADES], open_max = rules[BREAKER_RULES_OPEN_MAX],
      forcing = rules[BREAKER_RULES_FORCING],
    }
  end
  return plan.breaker
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

local function forget_windows(r)
  r.errors, r.latency, r.events, r.long = false, false, {}, false
end

local function is_forced(state)
  return BREAKER.IS_FORCED[state] or false
end

-- Return the end of the plan's forcing, by the tag's time.
local function until_of(plan)
  return plan.forcing[FORCING_UNTIL_US] + hash_of(plan.home).offset
end

-- Return the forced state, or false. The plan takes precedence: the record may not have applied it yet.
local function forced(r, plan, now)
  if plan.forcing and now < until_of(plan) then
    return plan.forcing[FORCING_STATE]
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

-- Keep the tag's time from going back behind a breaker's transition, as long as its record lasts.
local function keep_time(r)
  written(r.home, r.plan, r.now)
  r.home.last, r.home.begins, r.home.ttl = r.now, true, max(r.home.ttl, module('refusals').lasts_ms(r))
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
  moves[#moves + 1] = MOVE{old = old, new = new, at_us = at, reason = reason, generation = r.generation, cause = cause}
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
    moves[#moves + 1] = MOVE{
      old = r.state, new = r.state, at_us = at, reason = HELD .. reason, generation = r.generation, cause = cause,
    }
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
    if #all <= FAILED_MAX and not contains(all, source) then
      all[#all + 1] = source
    end
  end
  return all
end

-- Return the failed sources; empty unless all of them are known.
local function known(sources)
  return (#sources > FAILED_MAX or contains(sources, '')) and {} or sources
end
