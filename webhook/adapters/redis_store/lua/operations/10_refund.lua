-- Operations on the charge of one Pod: `record`, `knows`, `refund`, `withdraw`, `book` and resizes of `ledger/operations.py`, on Redis.

local breaker = module('breaker')

-- Detect that the server's clock is behind the tag's, and rebase it if that persists.
local function observe_clock(home, reading)
  local behind = home.last - (reading + home.offset)
  if behind <= BEHIND_US then
    if home.behind then
      home.behind, home.last, home.dirty = false, time_of(home, reading), true
    end
  elseif not home.behind or reading < home.behind then
    home.behind, home.dirty = reading, true
  elseif reading - home.behind >= PATIENCE_US then
    home.offset, home.behind, home.dirty = home.offset + behind, false, true
  end
end

-- Attach the plan to a record that may have changed: the plan and the end of an override determine its TTL.
local function belongs(r, plan, home, now)
  r.plan, r.home, r.now = plan, home, now
end

local function remember(key, p, now, place)
  pods[key], places[key] = {record = p, packed = false, lasts_ms = lasts_ms(p[EXPIRES], now)}, place
end

local function uid_of(plan, pod_key)
  return string.sub(pod_key, plan.uid_at)
end

-- Return the newest reset of each window, by its seconds, {requested at, effective up to}: field "r".
local function resets_of(h)
  if not h.resets then
    local packed = redis.call('HGET', h.key, 'r')
    h.resets = packed and cmsgpack.unpack(packed) or {}
  end
  return h.resets
end

-- Return where a Pod was charged: {service, scope, whether in the fleet's rings}; empty for an unknown Pod.
local function record(plan, operation, reading, strings)
  local p = pod_of(KEYS[operation[3]], strings, time_of(hash_of(plan.home), reading))
  return p and {p[SERVICE], p[SCOPE], p[FLEET]} or {}
end

-- Whether a Pod is charged; unless it is a `peek`, that confirms the charge.
local function knows(plan, operation, reading, strings)
  local pod_key, now = KEYS[operation[3]], time_of(hash_of(plan.home), reading)
  local p = pod_of(pod_key, strings, now)
  if p and not operation[4] then
    module('waits').confirm(plan, uid_of(plan, pod_key), p, now)
  end
  return {p ~= nil}
end

-- Refund, once, the charge of a Pod that was never created, and free its probe lease. The keys are those of the charge,
-- possibly another service's.
local function refund(plan, operation, reading, strings)
  local own, pod_key, home, breaker_key, live_key =
    hash_of(KEYS[operation[3]]), KEYS[operation[4]], hash_of(KEYS[operation[5]]), KEYS[operation[6]], KEYS[operation[7]]
  local now = time_of(home, reading)
  settle(home, now)
  settle(own, now)
  local p, uid = pod_of(pod_key, strings, now), uid_of(plan, pod_key)
  wait_for(plan.waits_key, uid, false)
  if not p then
    return {false}
  end
  p = {unpack(p)} -- others of this call may share it
  p[REFUNDED] = true
  remember(pod_key, p, now, places[pod_key])
  module('live').remove(module('live').live_of(live_key), uid)
  if p[PROBE] then
    local r = breaker_of(breaker_key, strings)
    if not r.plan then -- otherwise keep its own plan, which its notification needs
      belongs(r, plan, home, now)
    end
    breaker.give_back_probe(r, uid, now)
  end
  local given_back, resets = false, resets_of(own)
  for account, windows in ipairs(p[WINDOWS] ~= '' and cjson.decode(p[WINDOWS]) or {}) do
    local h = account == 1 and own or home
    for _, window in ipairs(windows) do
      local seconds = window[1]
      local w = h.windows[seconds]
      if account == 1 and resets[seconds] and p[CHARGED_AT] <= resets[seconds][2] then
        w = nil -- reset since the charge
      end
      for _, resource in ipairs(w and window[2] or {}) do
        local amount = cost_of(p[COST])[resource] or 0
        local bucket = amount > 0 and module('refusals').bucket_at(h, seconds, p[CHARGED_AT], true)
        if bucket and (bucket[resource] or 0) >= amount then -- lost data cannot be refunded
          bucket[resource], w[SUMS][resource] = bucket[resource] - amount, w[SUMS][resource] - amount
          h.dirty, home.last, home.dirty, given_back = true, now, true, true
        end
      end
    end
  end
  return {given_back}
end

-- Undo a charge that only the acquire has made which asks for it, as if it had never been made. The keys are as above.
local function withdraw(plan, operation, reading, strings)
  local home, pod_key, scope, at = hash_of(plan.home), KEYS[operation[4]], operation[8], operation[9]
  local now = time_of(home, reading)
  local p = pod_of(pod_key, strings, now)
  if not p or p[SERVICE] ~= plan.service or p[FLEET] ~= plan.fleet or p[SCOPE] ~= scope then
    return {false}
  end
  local charged_at, since = p[CHARGED_AT], module('waits').since(plan.waits_key, uid_of(plan, pod_key))
  if (at and at + home.offset ~= charged_at) or since ~= charged_at then
    return {false}
  end
  refund(plan, operation, reading, strings)
  local held = pods[pod_key]
  held.record[EXPIRES], held.lasts_ms = now, lasts_ms(now, now)
  return {true}
end

-- Charge a running Pod for what it uses above its highest charge. The breaker has no part in it.
local function resize(plan, operation, reading, strings)
  local _, _, own_key, pod_key, live_key, scope, place, cost_text, peek, old = unpack(operation)
  own_key, pod_key = KEYS[own_key], KEYS[pod_key]
  local b, cost = bound_of(plan, own_key, reading, not peek, KEYS[live_key]), cost_of(cost_text)
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
  local live = b.live and module('live')
  local used, over = judge(b, more, live and live.more(b, uid, cost, old) or NOTHING)
  local refused, would = 0, 0
  if #over > 0 then
    refused, would = module('refusals').objection(BY_QUOTA, plan.quota_enforced, would)
  end
  local r = breaker.glance(plan.breaker_key, strings)
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
    if live then
      live.add(plan, b, uid, cost, used)
    end
  end
  if plan.breaker then
    breaker.advance(r, plan.breaker, now, {})
  end
  local home, view = b.home, plan.breaker and breaker.seen(r, plan, b.home, now)
  return {shown(home, now), refused, would, writes and any, false, used, over, view, false, home.born}
end

-- Charge a Pod that was admitted without the store, at its own time and past every limit; false for a known uid.
local function book(plan, operation, reading, strings)
  local _, _, own_key, pod_key, live_key, scope, place, cost_text, at = unpack(operation)
  own_key, pod_key = KEYS[own_key], KEYS[pod_key]
  local b = bound_of(plan, own_key, reading, false, KEYS[live_key])
  local now = b.now
  at = min(at + b.home.offset, now)
  local _, p = pod_of(pod_key, strings, now)
  if (p and p[EXPIRES] > now) or at + plan.remember <= now then
    if p and p[EXPIRES] > now and not p[REFUNDED] then
      module('waits').confirm(plan, uid_of(plan, pod_key), p, now)
    end
    return {false}
  end
  local cost, used = cost_of(cost_text), judge(b, NOTHING, NOTHING)
  charge(plan, b, scope, cost, at, used)
  local generation = breaker_of(plan.breaker_key, strings).generation
  pods[pod_key], places[pod_key] = new_pod(plan, at, now, generation, false, scope, cost_text, ''), place
  local uid = uid_of(plan, pod_key)
  if b.live then
    module('live').add(plan, b, uid, cost, used)
  end
  wait_for(plan.waits_key, uid, at)
  expiring[plan.waits_key] = true
  return {true}
end
