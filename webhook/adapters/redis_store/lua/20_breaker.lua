-- A service's breaker, one record in one key: `core/breaker_states.py` and `core/breaker_triggers.py`, on Redis.
-- A record is always moved to `now` first, as if each boundary had been ticked; it is written only where it changed.

local breakers = {}

local function breaker_of(key, strings)
  if not breakers[key] then
    local packed = strings[key]
    local r = {state = 'CLOSED', generation = 0, since = 0, open_until = 0, reason = '', successes = 0, leases = {}, errors = false, latency = false, events = {}}
    if packed then
      r.state, r.generation, r.since, r.open_until, r.reason, r.successes, r.leases, r.errors, r.latency, r.events =
        unpack(cmsgpack.unpack(packed))
    end
    breakers[key] = r
  end
  return breakers[key]
end

-- A record that has only been looked at stays as it was: what the time does to it is done again when it counts.
local function glance(key, strings)
  local seen = {}
  for field, value in pairs(breaker_of(key, strings)) do
    seen[field] = value
  end
  return seen
end

local function write_breaker(key, r)
  local packed = cmsgpack.pack({
    r.state, r.generation, r.since, r.open_until, r.reason, r.successes, r.leases, r.errors, r.latency, r.events,
  })
  redis.call('SET', key, packed, 'PX', string.format('%.0f', r.ttl))
end

local function forget_windows(r)
  r.errors, r.latency, r.events = false, false, {}
end

-- Enter another state, with nothing left of the former one but its generation.
local function move(r, new, at, reason, open_until, moves)
  local old = r.state
  r.state, r.generation, r.since, r.open_until, r.reason = new, r.generation + 1, at, open_until, reason
  r.successes, r.leases = 0, {}
  forget_windows(r)
  r.changed = true
  moves[#moves + 1] = {old, new, at, reason, r.generation}
end

local function trip(r, plan, at, reason, moves)
  move(r, 'OPEN', at, reason, at + plan.open_for, moves)
end

-- Return a span exactly, in the largest unit that keeps it whole.
local function span(us)
  if us % 1000000 == 0 then
    return string.format('%.0fs', us / 1000000)
  elseif us % 1000 == 0 then
    return string.format('%.0fms', us / 1000)
  end
  return string.format('%.0fus', us)
end

-- What a rule weighs: errors in percent, or microseconds of latency against a mean.
local RULES = {
  errors = {
    crossed = function(rule, run) return 100 * run[4] >= rule[1] * run[3] end,
    reason = function(rule, run) return rule[5] .. string.format('%.0f of %.0f in the last', run[4], run[3]) end,
  },
  latency = {
    crossed = function(rule, run) return run[4] > rule[1] * run[3] end,
    reason = function(rule, run)
      local mean = math.ceil(run[4] / (run[3] * 1000)) * 1000 -- rounded up: what is above is shown above
      return rule[5] .. string.format('%s over %.0f in the last', span(mean), run[3])
    end,
  },
}

-- Let the end of a run's interval pass: the run that goes on (or false), when it tripped, and why.
-- A run is {interval, number of the interval, outcomes, amount, how many in a row before}.
local function pass_boundary(run, rule, now, by)
  if not run or not rule or run[1] ~= rule[2] then
    return false
  end
  local ends = (run[2] + 1) * run[1]
  if now < ends then
    return run
  end
  if run[3] < rule[4] or not by.crossed(rule, run) then
    return false
  end
  if run[5] + 1 >= rule[3] then
    return false, ends, by.reason(rule, run)
  end
  if now >= ends + run[1] then
    return false
  end
  return {run[1], run[2] + 1, 0, 0, run[5] + 1}
end

local function advance(r, plan, now, moves)
  if r.state == 'CLOSED' and (r.errors or r.latency) then
    local errors, errors_at, errors_reason = pass_boundary(r.errors, plan.error_rate, now, RULES.errors)
    local latency, latency_at, latency_reason = pass_boundary(r.latency, plan.latency, now, RULES.latency)
    if errors_at and (not latency_at or errors_at <= latency_at) then
      trip(r, plan, errors_at, errors_reason, moves)
    elseif latency_at then
      trip(r, plan, latency_at, latency_reason, moves)
    elseif errors ~= r.errors or latency ~= r.latency then
      r.errors, r.latency, r.changed = errors, latency, true
    end
  end
  if r.state == 'OPEN' and r.open_until <= now then
    move(r, 'HALF_OPEN', r.open_until, 'openFor passed', 0, moves)
  end
end

local function live_leases(r, now)
  local live = {}
  for _, lease in ipairs(r.leases) do
    if lease[2] > now then
      live[#live + 1] = lease
    end
  end
  return live
end

local function has_room(r, plan, now)
  -- One more at least: where a new policy lowered `probes` to what has succeeded already, that one closes it.
  return r.state == 'HALF_OPEN' and #live_leases(r, now) < math.max(plan.probes - r.successes, 1)
end

local function admits(r, plan, now)
  return r.state == 'CLOSED' or has_room(r, plan, now)
end

local function succeeded(r, plan, now, moves)
  r.successes, r.changed = r.successes + 1, true
  if r.successes >= plan.probes then
    local plural = r.successes > 1 and 's' or ''
    move(r, 'CLOSED', now, string.format('%.0f probe%s succeeded', r.successes, plural), 0, moves)
  end
end

-- Let a Pod that was charged be a probe, if one is wanted; true where it was.
local function take_probe(r, plan, now, uid, moves)
  if not has_room(r, plan, now) then
    return false
  end
  if plan.has_outcomes then
    local leases = live_leases(r, now)
    leases[#leases + 1] = {uid, now + plan.probe_timeout}
    r.leases, r.changed = leases, true
  else
    succeeded(r, plan, now, moves)
  end
  return true
end

local function without_lease(r, unwanted)
  local leases = {}
  for _, lease in ipairs(r.leases) do
    if not unwanted(lease) then
      leases[#leases + 1] = lease
    end
  end
  if #leases < #r.leases then
    r.leases, r.changed = leases, true
  end
end

-- Hear that quota refused a Pod of `source`. Only CLOSED listens: a probe refused by quota proves nothing.
local function quota_event(r, plan, now, source, moves)
  if r.state ~= 'CLOSED' or not plan.quota then
    return
  end
  local count, within, by_controller, reason = unpack(plan.quota)
  local events, heard = {}, false
  for _, event in ipairs(r.events) do
    if event[1] > now - within then
      events[#events + 1] = event
      heard = heard or event[2] == source
    end
  end
  if not by_controller or not heard then
    events[#events + 1] = {now, source}
    if #events >= count then
      return trip(r, plan, now, reason, moves)
    end
  end
  r.events, r.changed = events, true
end

local function counted(run, rule, now, amount)
  if not rule then
    return false
  end
  if not run then
    return {rule[2], math.floor(now / rule[2]), 1, amount, 0}
  end
  return {run[1], run[2], run[3] + 1, run[4] + amount, run[5]}
end

-- Hear how one request or Pod fared. One of another generation, or that nobody waits for, changes nothing.
local function heard(r, plan, now, outcome, moves)
  local ok, latency, uid, generation = unpack(outcome)
  if not plan.has_outcomes or (generation and generation ~= r.generation) then
    return
  end
  if r.state == 'CLOSED' then
    r.errors = counted(r.errors, plan.error_rate, now, ok and 0 or 1)
    r.latency = counted(r.latency, plan.latency, now, latency)
    r.changed = true
    return
  end
  for _, lease in ipairs(live_leases(r, now)) do
    if not uid or lease[1] == uid then
      if ok then
        without_lease(r, function(other) return other == lease end)
        return succeeded(r, plan, now, moves)
      end
      return move(r, 'OPEN', now, 'probe failed', now + plan.open_for, moves)
    end
  end
end

-- Start afresh, once, where the policy took the breaker away.
local function restart(r)
  local fresh = r.state == 'CLOSED' and r.since == 0 and r.reason == '' and not r.errors and not r.latency and #r.events == 0
  if not fresh then
    r.state, r.generation, r.since, r.open_until, r.reason = 'CLOSED', r.generation + 1, 0, 0, ''
    r.successes, r.leases, r.changed = 0, {}, true
    forget_windows(r)
  end
end

local function view(r, now)
  return {r.state, r.generation, r.since, r.open_until, r.reason, #live_leases(r, now), r.successes}
end
