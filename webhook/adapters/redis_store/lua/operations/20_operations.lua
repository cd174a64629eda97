-- Snapshots, ticks, outcomes and overrides: `ledger/operations.py` and `ledger/breaker_operations.py`, on Redis; and
-- the settled marks of replicas.

local function words_of(fault)
  return type(fault) == 'table' and fault.err or tostring(fault)
end

-- Run an operation on a breaker alone: advance it, call `act`, and return the transitions and the view.
local function run_on_breaker(plan, reading, strings, act)
  local home, moves = hash_of(plan.home), {}
  local now = time_of(home, reading)
  local r = breaker_of(plan.breaker_key, strings)
  attach_plan(r, plan, home, now)
  breaker.advance(r, plan.breaker, now, moves)
  act(r, now, moves)
  return BREAKER_ANSWER{
    moves = breaker.show_moves(moves, home), view = breaker.seen(r, plan, home, now), now_us = shown(home, now),
  }
end

-- The keys before the outcomes are the records of those Pods that have a uid.
local function record_outcomes(plan, reading, strings, ...)
  local pod_keys, RECORD_OUTCOMES_FIELDS = {...}, select(-RECORD_OUTCOMES_LENGTH, ...)
  return run_on_breaker(plan, reading, strings, function(r, now, moves)
    for _, outcome in ipairs(outcomes) do
      local number = outcome[OUTCOME_POD_NUMBER]
      local p = number > 0 and pod_of(KEYS[pod_keys[number]], strings, now)
      breaker.record_outcome(r, plan.breaker, now, outcome, p and p[POD_SOURCE] or '', moves)
    end
  end)
end

-- Record the outcome of a Pod's start, once. The Pod's record has its generation and source.
local function record_start(plan, reading, strings, RECORD_START_FIELDS)
  pod_key = KEYS[pod_key]
  local p = pod_of(pod_key, strings, time_of(hash_of(plan.home), reading))
  if not p or p[POD_SERVICE] ~= plan.service or not plan.breaker then
    return {'unknown'}
  elseif p[POD_SETTLED] then
    return {'repeated'}
  end
  local settlement = 'stale'
  local answer = run_on_breaker(plan, reading, strings, function(r, now, moves)
    local source = p[POD_SOURCE] or ''
    p = {unpack(p, 1, POD_WINDOWS)} -- others of this call may share it
    p[POD_SOURCE], p[POD_SETTLED] = source, true
    remember(pod_key, p, now, places[pod_key])
    local outcome = OUTCOME{
      succeeded = ok and 1 or 0, failed = ok and 0 or 1, latency_us = latency, uid = uid_of(plan, pod_key),
      generation = p[POD_GENERATION], age_us = age, pod_number = 0,
    }
    if breaker.record_outcome(r, plan.breaker, now, outcome, source, moves) then
      settlement = 'counted'
    end
  end)
  return START_ANSWER{
    settlement = settlement, moves = answer[BREAKER_ANSWER_MOVES], view = answer[BREAKER_ANSWER_VIEW],
    now_us = answer[BREAKER_ANSWER_NOW_US],
  }
end

local function apply_override(plan, reading, strings, APPLY_OVERRIDE_FIELDS)
  return run_on_breaker(plan, reading, strings, function(r, now, moves)
    breaker.force_or_reset(r, plan.breaker, now, asked, moves)
  end)
end

local function propose(plan, reading, strings, PROPOSE_FIELDS)
  local home = hash_of(plan.home)
  local now, r = time_of(home, reading), breaker_of(plan.breaker_key, strings)
  local due = breaker.glance(plan.breaker_key, strings)
  for _, time in ipairs({VIEW_SINCE_US, VIEW_OPEN_UNTIL_US, VIEW_TRIPPED_AT_US}) do
    view[time] = view[time] > 0 and view[time] + home.offset or 0
  end
  breaker.advance(due, plan.breaker, now, {}) -- compare with the advanced record; a later write reports its transitions
  attach_plan(r, plan, home, now)
  breaker.take_proposal(r, plan.breaker, view, due)
  return BREAKER_ANSWER{moves = {}, view = breaker.seen(r, plan, home, now), now_us = shown(home, now)}
end

local function suppress_quota_events(plan, reading, strings, SUPPRESS_QUOTA_EVENTS_FIELDS)
  local home = hash_of(plan.home)
  local now, r = time_of(home, reading), breaker_of(plan.breaker_key, strings)
  attach_plan(r, plan, home, now)
  breaker.suppress_source_events(r, sources, now)
  return {}
end

local function figures_of(h, home, limits, guarantees)
  local figures = {}
  for index = 1, #limits, LIMIT_LENGTH do
    local seconds, resource = limits[index + LIMIT_SECONDS_OFFSET], limits[index + LIMIT_RESOURCE_OFFSET]
    local hard, w = limits[index + LIMIT_HARD_OFFSET], h.windows[seconds]
    local used = w and w[WINDOW_SUMS][resource] or 0
    local kept, free = guarantees and guarantees[(index - 1) / LIMIT_LENGTH + 1], 0
    if kept then
      free = shown(home, module('guarantees').free_at(h, seconds, resource, hard, 1, kept))
    elseif 1 > hard - used then
      free = shown(home, module('refusals').free_at(h, seconds, resource, hard, 1))
    end
    figures[#figures + 1], figures[#figures + 2] = FIGURES_VALUES{used = used, more = free}
  end
  return figures
end

-- Return a snapshot of the service; writes nothing. Each limit is asked for one unit, to find when any is free.
-- The keys are the ring of each scope; or if live Pods are limited, the ring and the live Pods of each scope.
local function snapshot(plan, reading, strings, ...)
  local home = hash_of(plan.home)
  local now = time_of(home, reading)
  settle(home, now)
  local keys, all = {...}, {}
  for index = 1, #keys, plan.standing and 2 or 1 do
    local figures = figures_of(settle(hash_of(KEYS[keys[index]]), now), home, plan.windows)
    for _, limit in ipairs(plan.standing or {}) do
      local l, resource = module('live').live_of(KEYS[keys[index + 1]]), limit[STANDING_RESOURCE]
      local has = l.sums[resource] or 0
      local surge = module('live').may_surge(l, resource, limit[STANDING_HARD], has, now) and limit[STANDING_SURGE] or 0
      figures[#figures + 1], figures[#figures + 2] = FIGURES_VALUES{used = has, more = surge}
    end
    all[#all + 1] = figures
  end
  local view = false
  if plan.breaker then
    local r = breaker.glance(plan.breaker_key, strings)
    breaker.advance(r, plan.breaker, now, {})
    view = breaker.seen(r, plan, home, now)
  end
  local pooled = plan.pool and figures_of(home, home, plan.pool, plan.guarantees) or {}
  local uses = plan.guarantees and module('guarantees').uses_of(home, plan.pool, plan.guarantees) or {}
  local has_pool_standing = plan.standing and details_of(plan).pool_standing
  if has_pool_standing then
    module('pools').show(plan, pooled, uses)
  end
  return SNAPSHOT_ANSWER{
    now_us = shown(home, now), figures = all, pool = pooled, view = view, guarantees = uses,
    is_standing_known = plan.standing and #plan.standing > 0 and module('live').is_known(plan, now) or false,
    is_pool_standing_known = has_pool_standing and module('pools').is_known(plan, now) or false,
  }
end

-- Return what identifies a breaker's record and the head of a home hash as they are stored; '' if there is neither.
local function fingerprint_of(record, head)
  return (record or head) and redis.sha1hex((record or '') .. (head or '')) or ''
end

-- Whether only another call can change a breaker and the tag's clock, neither time nor a replica that owes nothing now.
local function rests(plan, home, r)
  return r.state == 'CLOSED' and not (r.errors or r.latency or plan.is_forced or home.behind or next(home.returned))
end

-- Apply the passage of time under the current policy. This also observes the server's clock: with an open breaker there
-- may be no other writes. The last value identifies what is stored, if only another call can change it.
local function tick(plan, reading, strings)
  local home, r = hash_of(plan.home), breaker_of(plan.breaker_key, strings)
  observe_clock(home, reading)
  local answer
  if plan.breaker then
    answer = run_on_breaker(plan, reading, strings, function() end)
  else
    local now = time_of(home, reading)
    attach_plan(r, plan, home, now)
    breaker.reset_removed(r)
    answer = BREAKER_ANSWER{moves = {}, view = false, now_us = shown(home, now)}
  end
  return TICK_ANSWER{
    moves = answer[BREAKER_ANSWER_MOVES], view = answer[BREAKER_ANSWER_VIEW], now_us = answer[BREAKER_ANSWER_NOW_US],
    born_us = home.born, charged_us = shown(home, home.last),
    fingerprint = rests(plan, home, r) and fingerprint_of(strings[plan.breaker_key], redis.call('HGET', plan.home, 'h')),
  }
end

-- Return the time, and the positions of the services that are not stored as a tick left them. The keys are the breaker
-- and the home of each of them; `ticked_at` is the time of the newest of those ticks. If the clock is behind that time,
-- all services are returned: it would have to be observed.
local function compare(_, reading, strings, ...)
  local keys, COMPARE_FIELDS = {...}, select(-COMPARE_LENGTH, ...)
  local found, next_key = {}, 1
  for position, fingerprint in ipairs({cmsgpack.unpack(fingerprints)}) do
    local breaker_key, home_key = unpack(keys, next_key, next_key + 1)
    local head = redis.pcall('HGET', KEYS[home_key], 'h')
    if reading < ticked_at or type(head) == 'table' or fingerprint_of(strings[KEYS[breaker_key]], head) ~= fingerprint then
      found[#found + 1] = position
    end
    next_key = next_key + 2
  end
  return COMPARISON_ANSWER{now_us = reading, positions = found}
end

-- Return how many other replicas have reported that they owe nothing, since this one regained the store.
local function count_settled(plan, reading, _, COUNT_SETTLED_FIELDS)
  local home = hash_of(plan.home)
  local returned = home.returned[replica]
  if afresh or not returned then
    local now = time_of(home, reading)
    returned = RETURNED{at = now, others = {}}
    home.returned = home.returned == NOTHING and {} or home.returned
    home.returned[replica], home.begins = returned, true
    written(home, plan, now)
  end
  local count = 0
  for _ in pairs(returned[RETURNED_OTHERS]) do
    count = count + 1
  end
  return {count}
end

-- Record for the replicas in `returned` that this one owed nothing at a moment; unless the tag's data was lost since,
-- which this replica does not know yet.
local function show_settled(plan, home, reading)
  local MARK_FIELDS = unpack(plan.settled)
  if born_us > 0 and born_us ~= home.born then
    return
  end
  local now = time_of(home, reading)
  for other, returned in pairs(home.returned) do
    local at, others = returned[RETURNED_AT], returned[RETURNED_OTHERS]
    if now - at >= RETURNED_US then
      home.returned[other], home.dirty = nil, true
    elseif other ~= replica and at_us + home.offset >= at and not others[replica] then
      others[replica], home.dirty = true, true
    end
  end
end

-- Return the namespaces in which anything counts, and delete those in which nothing has counted for long.
local function list_counting_scopes(plan, reading)
  local now = time_of(hash_of(plan.home), reading)
  local found = redis.call('HGETALL', plan.index)
  local counting, done = {}, {}
  for index = 1, #found, 2 do
    local field = found[index]
    if string.sub(field, 1, 2) == 'n:' then
      local left_us = now - tonumber(found[index + 1])
      if left_us < 0 then
        counting[#counting + 1] = field
      elseif left_us >= LONG_US then
        done[#done + 1] = field
      end
    end
  end
  call_with('HDEL', plan.index, done)
  for index, field in ipairs(counting) do
    counting[index] = string.sub(field, 3)
  end
  return {counting}
end

-- Check that the server accepts writes.
local function probe(_, _, _, PROBE_FIELDS)
  redis.call('SET', KEYS[probe_key], '', 'PX', '1000')
  return {}
end
