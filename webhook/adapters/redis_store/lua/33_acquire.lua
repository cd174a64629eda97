-- Operation `acquire`, for new Pods and for resizes: `ledger/operations.py`, on Redis.

local BREAKER, QUOTA = 1, 2 -- the guard that denied; `would` is their sum

-- Return (refused, would) after a guard's objection: a guard that is not enforced denies nothing but is reported.
local function objection(guard, enforced, would)
  if enforced then
    return guard, would
  end
  return 0, would + guard
end

local function seen(r, plan, home, now)
  local v = view(r, plan.breaker, now)
  v[3], v[4], v[8] = shown(home, v[3]), shown(home, v[4]), v[8] and shown(home, v[8])
  return v
end

local function moved(moves, home)
  for _, move in ipairs(moves) do
    move[3] = shown(home, move[3])
  end
  return moves
end

local function resize(plan, b, pod_key, scope, place, cost, peek, old, strings)
  local now, known = b.now, pod_of(pod_key, strings, b.now)
  local before, more, any = {}, {}, false
  for resource, amount in pairs(old) do
    before[resource] = amount
  end
  for resource, amount in pairs(known and (known[HIGH] or cost_of(known[COST])) or {}) do
    before[resource] = amount
  end
  for resource, amount in pairs(cost) do
    if resource ~= 'pods' and amount > (before[resource] or 0) then
      more[resource], any = amount - (before[resource] or 0), true
    end
  end
  local uid = uid_of(plan, pod_key)
  local live_cost = more_live(b, uid, cost, old)
  local used, over = judge(b, more, live_cost)
  local refused, would = 0, 0
  if #over > 0 then
    refused, would = objection(QUOTA, plan.quota_enforced, would)
  end
  local r = glance(plan.breaker_key, strings)
  local writes = refused == 0 and not peek
  if writes then
    charge(plan, b, scope, more, now, used)
    local p = {0, 0, r.generation, false, false, plan.service, scope, plan.fleet, '{}', false, '', '', false}
    for field, value in ipairs(known or {}) do
      p[field] = value
    end
    for resource in pairs(more) do
      before[resource] = cost[resource]
    end
    p[HIGH], p[EXPIRES] = before, now + plan.remember
    remember(pod_key, p, now, known and places[pod_key] or place)
    add_live_and_wait(plan, b, uid, cost, false, used)
  end
  if plan.breaker then
    advance(r, plan.breaker, now, {})
  end
  local home, breaker = b.home, plan.breaker and seen(r, plan, b.home, now)
  return {shown(home, now), refused, would, writes and any, false, used, over, breaker, false, home.born}
end

-- Store the record of a Pod that is no probe. Pods of a call with the same cost share one record, packed once.
local function remember_shared(plan, b, pod_key, generation, scope, cost_text, source, place)
  local shared = b.records[cost_text]
  if not shared or shared.record[GENERATION] ~= generation or shared.record[SOURCE] ~= source then
    shared = {record = new_record(plan, b.now, generation, scope, cost_text, source), now = b.now}
    b.records[cost_text] = shared
  end
  pods[pod_key], places[pod_key] = shared, place
end

-- Check one Pod and, unless `peek`, charge it: all or nothing, each uid once.
local function acquire(plan, operation, reading, strings)
  local _, _, own_key, pod_key, live_key, scope, place, cost_text, source, peek, old = unpack(operation)
  local cost = cost_of(cost_text)
  own_key, pod_key = KEYS[own_key], KEYS[pod_key]
  local b = bound_of(plan, own_key, reading, not peek, KEYS[live_key])
  if old then
    return resize(plan, b, pod_key, scope, place, cost, peek, old, strings)
  end
  local home, now = b.home, b.now
  local known = pod_of(pod_key, strings, now)
  local r, moves = ((known or peek) and glance or breaker_of)(plan.breaker_key, strings), NOTHING
  if plan.breaker then
    moves = {}
    advance(r, plan.breaker, now, moves)
  end
  if known then
    local used = judge(b, NOTHING, NOTHING)
    return {shown(home, now), 0, 0, false, true, used, NOTHING, plan.breaker and seen(r, plan, home, now), false, home.born}
  end

  local refused, would = 0, 0
  if plan.breaker and not admits(r, plan.breaker, now, source) and not plan.breaker.degrades then
    refused, would = objection(BREAKER, plan.breaker_enforced, would)
  end
  local asked, uid = refused == 0 and cost or NOTHING, uid_of(plan, pod_key)
  local live_cost = more_live(b, uid, asked, NOTHING)
  local used, over = judge(b, asked, live_cost)
  if #over > 0 then
    refused, would = objection(QUOTA, plan.quota_enforced, would)
  end
  if not peek then
    if refused == 0 then
      charge(plan, b, scope, cost, now, used)
      local generation, maker = r.generation, plan.breaker and plan.breaker.has_outcomes and source or ''
      if plan.breaker and take_probe(r, plan.breaker, now, uid, source, moves) then
        local p = new_record(plan, now, generation, scope, cost_text, maker)
        p[PROBE] = true
        remember(pod_key, p, now, place)
      else
        remember_shared(plan, b, pod_key, generation, scope, cost_text, maker, place)
      end
      add_live_and_wait(plan, b, uid, cost, now, used)
    elseif refused == QUOTA and plan.breaker and is_of_its_own(b, over) then
      quota_event(r, plan.breaker, now, source, moves) -- if only the pool is exceeded, another member may be the cause
    end
    belongs(r, plan, home, now)
  end
  local breaker = plan.breaker and seen(r, plan, home, now)
  local reported = not peek and #moves > 0 and moved(moves, home)
  return {shown(home, now), refused, would, refused == 0 and not peek, false, used, over, breaker, reported, home.born}
end
