-- Snapshots, ticks, outcomes and overrides: `ledger/operations.py` and `ledger/breaker_operations.py`, on Redis; and
-- the settled marks of replicas.

local function words_of(fault)
  return type(fault) == 'table' and fault.err or tostring(fault)
end

-- Run an operation on a breaker alone: advance it, call `act`, and return the transitions and the view.
local function moving(plan, reading, strings, act)
  local home, moves = hash_of(plan.home), {}
  local now = time_of(home, reading)
  local r = breaker_of(plan.breaker_key, strings)
  belongs(r, plan, home, now)
  breaker.advance(r, plan.breaker, now, moves)
  act(r, now, moves)
  return {breaker.moved(moves, home), breaker.seen(r, plan, home, now), shown(home, now)}
end

local function record_outcomes(plan, operation, reading, strings)
  return moving(plan, reading, strings, function(r, now, moves)
    for _, outcome in ipairs(operation[#operation]) do
      local record = outcome[7] > 0 and pod_of(KEYS[operation[outcome[7] + 2]], strings, now)
      breaker.record_outcome(r, plan.breaker, now, outcome, record and record[SOURCE] or '', moves)
    end
  end)
end

-- Record the outcome of a Pod's start, once. The Pod's record has its generation and source.
local function started(plan, operation, reading, strings)
  local _, _, pod_key, good, latency, age = unpack(operation)
  pod_key = KEYS[pod_key]
  local p = pod_of(pod_key, strings, time_of(hash_of(plan.home), reading))
  if not p or p[SERVICE] ~= plan.service or not plan.breaker then
    return {'unknown'}
  elseif p[SETTLED] then
    return {'repeated'}
  end
  local result = 'stale'
  local answer = moving(plan, reading, strings, function(r, now, moves)
    local source = p[SOURCE] or ''
    p = {unpack(p, 1, WINDOWS)} -- others of this call may share it
    p[SOURCE], p[SETTLED] = source, true
    remember(pod_key, p, now, places[pod_key])
    local outcome = {good and 1 or 0, good and 0 or 1, latency, uid_of(plan, pod_key), p[GENERATION], age}
    if breaker.record_outcome(r, plan.breaker, now, outcome, source, moves) then
      result = 'counted'
    end
  end)
  return {result, unpack(answer)}
end

local function apply_override(plan, operation, reading, strings)
  return moving(plan, reading, strings, function(r, now, moves)
    breaker.force_or_reset(r, plan.breaker, now, operation[3], moves)
  end)
end

local function propose(plan, operation, reading, strings)
  local home, v = hash_of(plan.home), operation[3]
  local now, r = time_of(home, reading), breaker_of(plan.breaker_key, strings)
  local due = breaker.glance(plan.breaker_key, strings)
  for _, index in ipairs({3, 4, 8}) do
    v[index] = v[index] > 0 and v[index] + home.offset or 0
  end
  breaker.advance(due, plan.breaker, now, {}) -- compare with the advanced record; a later write reports its transitions
  belongs(r, plan, home, now)
  breaker.take_proposal(r, plan.breaker, v, due)
  return {{}, breaker.seen(r, plan, home, now), shown(home, now)}
end

local function suppress_quota_events(plan, operation, reading, strings)
  local home = hash_of(plan.home)
  local now, r = time_of(home, reading), breaker_of(plan.breaker_key, strings)
  belongs(r, plan, home, now)
  breaker.suppress_source_events(r, operation[3], now)
  return {}
end

local function figures_of(h, home, limits)
  local figures = {}
  for index = 1, #limits, 3 do
    local seconds, resource, hard = limits[index], limits[index + 1], limits[index + 2]
    local w = h.windows[seconds]
    local used = w and w[SUMS][resource] or 0
    local free = used + 1 > hard and shown(home, module('refusals').free_at(h, seconds, resource, hard, 1)) or 0
    figures[#figures + 1], figures[#figures + 2] = used, free
  end
  return figures
end

-- Return a snapshot of the service; writes nothing. Each limit is asked for one unit, to find when any is free.
local function snapshot(plan, operation, reading, strings)
  local home = hash_of(plan.home)
  local now = time_of(home, reading)
  settle(home, now)
  local uses, step = {}, plan.standing and 2 or 1
  for index = 3, #operation, step do
    local figures = figures_of(settle(hash_of(KEYS[operation[index]]), now), home, plan.windows)
    for _, limit in ipairs(plan.standing or {}) do
      local l = module('live').live_of(KEYS[operation[index + 1]])
      local has = l.sums[limit[1]] or 0
      figures[#figures + 1] = has
      figures[#figures + 1] = module('live').may_surge(l, limit[1], limit[2], has, now) and limit[3] or 0
    end
    uses[#uses + 1] = figures
  end
  local view = false
  if plan.breaker then
    local r = breaker.glance(plan.breaker_key, strings)
    breaker.advance(r, plan.breaker, now, {})
    view = breaker.seen(r, plan, home, now)
  end
  local known = plan.standing and module('live').is_known(plan, now) or false
  return {shown(home, now), uses, plan.pool and figures_of(home, home, plan.pool) or {}, view, known}
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
local function tick(plan, _, reading, strings)
  local home, r = hash_of(plan.home), breaker_of(plan.breaker_key, strings)
  observe_clock(home, reading)
  local answer
  if plan.breaker then
    answer = moving(plan, reading, strings, function() end)
  else
    local now = time_of(home, reading)
    belongs(r, plan, home, now)
    breaker.reset_removed(r)
    answer = {{}, false, shown(home, now)}
  end
  answer[4], answer[5] = home.born, shown(home, home.last)
  answer[6] = rests(plan, home, r) and fingerprint_of(strings[plan.breaker_key], redis.call('HGET', plan.home, 'h'))
  return answer
end

-- Return the time, and the positions of the services that are not stored as a tick left them. The operation has for
-- each of them the keys of its breaker and its home; then the time of the newest of those ticks, and all fingerprints.
-- If the clock is behind that time, all services are returned: it would have to be observed.
local function changed(_, operation, reading, strings)
  local since, fingerprints, found = operation[#operation - 1], {cmsgpack.unpack(operation[#operation])}, {}
  for index, fingerprint in ipairs(fingerprints) do
    local record = strings[KEYS[operation[2 * index + 1]]]
    local head = redis.pcall('HGET', KEYS[operation[2 * index + 2]], 'h')
    if reading < since or type(head) == 'table' or fingerprint_of(record, head) ~= fingerprint then
      found[#found + 1] = index
    end
  end
  return {reading, found}
end

-- Return how many other replicas have reported that they owe nothing, since this one regained the store.
local function others_settled(plan, operation, reading)
  local home, id, afresh = hash_of(plan.home), operation[3], operation[4]
  local returned = home.returned[id]
  if afresh or not returned then
    local now = time_of(home, reading)
    returned = {now, {}}
    home.returned = home.returned == NOTHING and {} or home.returned
    home.returned[id], home.begins = returned, true
    written(home, plan, now)
  end
  local count = 0
  for _ in pairs(returned[2]) do
    count = count + 1
  end
  return {count}
end

-- Record for the replicas in `returned` that this one owed nothing at a moment; unless the tag's data was lost since,
-- which this replica does not know yet.
local function show_settled(plan, home, reading)
  local id, at, born = unpack(plan.settled)
  if born > 0 and born ~= home.born then
    return
  end
  local now = time_of(home, reading)
  for other, returned in pairs(home.returned) do
    if now - returned[1] >= RETURNED_US then
      home.returned[other], home.dirty = nil, true
    elseif other ~= id and at + home.offset >= returned[1] and not returned[2][id] then
      returned[2][id], home.dirty = true, true
    end
  end
end

-- Return the namespaces in which anything counts, and delete those in which nothing has counted for long.
local function scopes(plan, _, reading)
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
  if #done > 0 then
    redis.call('HDEL', plan.index, unpack(done))
  end
  for index, field in ipairs(counting) do
    counting[index] = string.sub(field, 3)
  end
  return {counting}
end

-- Check that the server accepts writes.
local function probe(_, operation)
  redis.call('SET', KEYS[operation[3]], '', 'PX', '1000')
  return {}
end
