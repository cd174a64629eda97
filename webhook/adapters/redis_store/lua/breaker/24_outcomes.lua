-- Outcomes, quota denials and overrides of a breaker: `core/breaker/{outcome_counting,manual}.py`, on Redis; and its
-- views.

-- Return the sources of quota events in order, at most FAILED_MAX + 1.
local function sources_of(events)
  local sources = {}
  for _, event in ipairs(events) do
    if #sources <= FAILED_MAX and not contains(sources, event[EVENT_SOURCE]) then
      sources[#sources + 1] = event[EVENT_SOURCE]
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
    if lease[LEASE_UID] == uid then
      return (not generation or generation == (lease[LEASE_GENERATION] or r.generation)) and lease
    end
  end
end

-- Record outcomes of one source, an OUTCOME; return whether they counted. Ignore those of another generation, or without
-- a probe that waits for them.
local function record_outcome(r, plan, now, outcome, source, moves)
  local good, bad = outcome[OUTCOME_SUCCEEDED], outcome[OUTCOME_FAILED]
  local generation, at = outcome[OUTCOME_GENERATION], now - max(0, outcome[OUTCOME_AGE_US])
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
    local lease = lease_of(r, outcome[OUTCOME_UID], generation, at)
    if not lease then
      break
    end
    settle_probe(r, plan, now, lease, source, number > bad, moves)
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
    local state, reason = forcing[FORCING_STATE], forcing[FORCING_REASON]
    if r.state ~= state then
      move(r, plan, BREAKER.FORCED_BY[state], now, reason, until_of(plan), moves)
    elseif r.open_until ~= until_of(plan) or r.reason ~= reason then
      r.open_until, r.reason, r.changed, r.moved = until_of(plan), reason, true, true
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
  for _, excuse in ipairs(r.excused) do
    if excuse[EXCUSE_UNTIL_US] > now and not asked[excuse[EXCUSE_SOURCE]] then
      excused[#excused + 1] = excuse
    end
  end
  for _, source in ipairs(sources) do
    if asked[source] == 'pending' then
      excused[#excused + 1], asked[source] = EXCUSE{source = source, until_us = now + EXCUSED_US}, 'added'
    end
  end
  if #excused > EXCUSED_MAX then
    excused = {EXCUSE{source = EVERY_SOURCE, until_us = now + EXCUSED_US}}
  end
  for _, event in ipairs(module('refusals').events_of(r)) do
    if not asked[event[EVENT_SOURCE]] then
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
  v[VIEW_STATE], v[VIEW_SINCE_US] = held, shown(home, r.state == held and r.since or now)
  v[VIEW_OPEN_UNTIL_US], v[VIEW_REASON] = shown(home, until_of(rules)), rules.forcing[FORCING_REASON]
  v[VIEW_PROBES_SUCCEEDED] = 0
  return v
end

-- Return transitions as callers see them.
local function show_moves(moves, home)
  for _, move in ipairs(moves) do
    move[MOVE_AT_US] = shown(home, move[MOVE_AT_US])
  end
  return moves
end

-- Publish a breaker's state. A subscriber that misses it polls each second.
local function announce(r)
  local plan = r.plan
  local details = details_of(plan)
  if plan.has_rules and details.channel ~= '' then
    local message = ANNOUNCEMENT{
      tag = details.tag, service = plan.service, at_us = shown(r.home, r.now), view = seen(r, plan, r.home, r.now),
    }
    redis.pcall('PUBLISH', details.channel, cmsgpack.pack(message))
  end
end
