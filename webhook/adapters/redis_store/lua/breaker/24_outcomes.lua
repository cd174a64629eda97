-- Outcomes, quota denials and overrides of a breaker: `core/breaker/{outcome_counting,manual}.py`, on Redis; and its
-- views.

-- Return the sources of quota events in order, at most FAILED_MAX + 1.
local function sources_of(events)
  local sources = {}
  for _, event in ipairs(events) do
    if #sources <= FAILED_MAX and not contains(sources, event[2]) then
      sources[#sources + 1] = event[2]
    end
  end
  return sources
end

-- Open the breaker because of quota events, of which there are as many as its plan allows.
local function trip_by_quota(r, plan, now, reason, events, moves)
  trip(r, plan, BREAKER.CAUSE.QUOTA_EXCEEDED, now, reason, known(sources_of(events)), moves)
end

-- Return the probe of an outcome: the one with its uid; for an outcome without uid in HALF_OPEN, the oldest.
local function lease_of(r, uid, generation, at)
  if not uid then
    local fits = r.state == 'HALF_OPEN' and (not generation or generation == r.generation) and at >= r.since
    return fits and r.leases[1]
  end
  for _, lease in ipairs(r.leases) do
    if lease[1] == uid then
      return (not generation or generation == (lease[3] or r.generation)) and lease
    end
  end
end

-- Record outcomes of one source, {succeeded, failed, latency, uid, generation, age}; return whether they counted.
-- Ignore those of another generation, or without a probe that waits for them.
local function record_outcome(r, plan, now, outcome, source, moves)
  local good, bad, _, uid, generation, age = unpack(outcome)
  local at = now - max(0, age)
  if not plan.has_outcomes or forced(r, plan, now) then
    return false
  end
  if r.state == 'CLOSED' then
    if at < max(r.since, r.reset_at) or (generation and generation ~= r.generation) then
      return false
    end
    return count_outcomes(r, plan, at, outcome, source, now - late)
  end
  local any = false
  for number = 1, bad + math.min(good, plan.probes) do
    local lease = lease_of(r, uid, generation, at)
    if not lease then
      break
    end
    settled(r, plan, now, lease, source, number > bad, moves)
    any = true
  end
  return any
end

-- Reset a breaker that the policy removed, once.
local function reset_removed(r)
  local fresh = r.state == 'CLOSED' and r.since == 0 and r.reason == '' and not r.errors and not r.latency
    and #r.events == 0 and not r.long and r.tripped_at == 0 and r.reset_at == 0 and #r.excused == 0
  if not fresh then
    r.state, r.generation, r.since, r.open_until, r.reason = 'CLOSED', r.generation + 1, 0, 0, ''
    r.successes, r.leases, r.failed, r.early, r.passed, r.alone = 0, {}, {}, 0, 0, 0
    r.tripped_at, r.tripped_by, r.reset_at, r.asked, r.excused = 0, '', 0, 0, {}
    r.changed, r.moved = true, true
    forget_windows(r)
  end
end

-- Enter the state that the plan forces, or leave a forced state that has ended; then reset, once for each request. The
-- time of a request is by another clock, which may be ahead of the tag's.
local function force_or_reset(r, plan, now, asked, moves)
  local forcing = plan.forcing
  if forcing and now < until_of(plan) then
    if r.state ~= forcing[1] then
      move(r, plan, BREAKER.FORCED_BY[forcing[1]], now, forcing[3], until_of(plan), moves)
    elseif r.open_until ~= until_of(plan) or r.reason ~= forcing[3] then
      r.open_until, r.reason, r.changed, r.moved = until_of(plan), forcing[3], true, true
    end
  elseif is_forced(r.state) then
    move(r, plan, BREAKER.CAUSE.RELEASED, now, 'released manually', 0, moves)
  end
  local reset_at = math.min(asked + hash_of(plan.home).offset, now)
  if asked <= r.asked or reset_at <= r.since or is_forced(r.state) then
    return
  end
  r.reset_at, r.asked, r.changed = reset_at, asked, true
  if r.state == 'CLOSED' then
    forget_windows(r)
  else
    move(r, plan, BREAKER.CAUSE.RESET, now, 'reset manually', 0, moves)
  end
end

-- Ignore quota events of these sources for EXCUSED_US, and discard those already counted.
local function suppress_source_events(r, sources, now)
  local excused, events, asked = {}, {}, {}
  for _, source in ipairs(sources) do
    asked[source] = 'pending'
  end
  for _, one in ipairs(r.excused) do
    if one[2] > now and not asked[one[1]] then
      excused[#excused + 1] = one
    end
  end
  for _, source in ipairs(sources) do
    if asked[source] == 'pending' then
      excused[#excused + 1], asked[source] = {source, now + EXCUSED_US}, 'added'
    end
  end
  if #excused > EXCUSED_MAX then
    excused = {{EVERY_SOURCE, now + EXCUSED_US}}
  end
  for _, event in ipairs(module('refusals').events_of(r)) do
    if not asked[event[2]] then
      events[#events + 1] = event
    end
  end
  r.excused, r.events, r.changed = excused, events, true
end

-- Return what callers see of any breaker, as `view_of` does. What the plan forces takes precedence over the record.
local function seen(r, plan, home, now)
  local rules = rules_of(plan)
  local held = forced(r, rules, now)
  if not held or not rules.forcing or now >= until_of(rules) then
    return view_of(r, home, live_count(r, now), early_left(r, rules))
  end
  r.is_stored = true
  local v = view_of(r, home, 0, 0)
  v[1], v[3], v[4], v[5], v[7] =
    held, shown(home, r.state == held and r.since or now), shown(home, until_of(rules)), rules.forcing[3], 0
  return v
end

local function moved(moves, home)
  for _, move in ipairs(moves) do
    move[3] = shown(home, move[3])
  end
  return moves
end

-- Publish a breaker's state. A subscriber that misses it polls each second.
local function announce(r)
  local plan = r.plan
  local details = details_of(plan)
  if plan.has_rules and details.channel ~= '' then
    local message = {details.tag, plan.service, shown(r.home, r.now), seen(r, plan, r.home, r.now)}
    redis.pcall('PUBLISH', details.channel, cmsgpack.pack(message))
  end
end
