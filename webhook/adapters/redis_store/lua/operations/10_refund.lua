-- Operations on the charge of one Pod: `find_charged_us`, `refund`, `withdraw`, `book` and resizes of `ledger/operations.py`, on
-- Redis. Each has the values that `script.py` names, after the plan, the time and the strings; `X_key` is a key's number.

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
local function attach_plan(r, plan, home, now)
  r.plan, r.home, r.now = plan, home, now
end

local function remember(key, p, now, place)
  pods[key], places[key] = {record = p, packed = false, lasts_ms = lasts_ms(p[POD_EXPIRES], now)}, place
end

local function uid_of(plan, pod_key)
  return string.sub(pod_key, plan.uid_at)
end

-- Return the newest RESET of each window, by its seconds: field "r".
local function resets_of(h)
  if not h.resets then
    local packed = redis.call('HGET', h.key, 'r')
    h.resets = packed and cmsgpack.unpack(packed) or {}
  end
  return h.resets
end

-- Return where a Pod was charged; empty for an unknown Pod.
local function find_charge(plan, reading, strings, FIND_CHARGE_FIELDS)
  local p = pod_of(KEYS[pod_key], strings, time_of(hash_of(plan.home), reading))
  return p and CHARGE_ANSWER{service = p[POD_SERVICE], scope = p[POD_SCOPE], fleet = p[POD_FLEET]} or {}
end

-- Return when a Pod was charged, false if it is not; unless it is a `peek`, that confirms the charge.
local function find_charged_us(plan, reading, strings, FIND_CHARGED_US_FIELDS)
  local home = hash_of(plan.home)
  local now = time_of(home, reading)
  pod_key = KEYS[pod_key]
  local p = pod_of(pod_key, strings, now)
  if p and not peek then
    module('waits').confirm(plan, uid_of(plan, pod_key), p, now)
  end
  return {p and shown(home, p[POD_CHARGED_AT]) or false}
end

-- Refund, once, the charge of a Pod that was never created, and free its probe lease. The keys are those of the charge,
-- possibly another service's.
local function refund(plan, reading, strings, REFUND_FIELDS)
  local own, home = hash_of(KEYS[own_key]), hash_of(KEYS[home_key])
  local now = time_of(home, reading)
  pod_key = KEYS[pod_key]
  settle(home, now)
  settle(own, now)
  local p, uid = pod_of(pod_key, strings, now), uid_of(plan, pod_key)
  wait_for(plan.waits_key, uid, false)
  if not p then
    return {false}
  end
  p = {unpack(p)} -- others of this call may share it
  p[POD_REFUNDED] = true
  remember(pod_key, p, now, places[pod_key])
  module('live').remove(module('live').live_of(KEYS[live_key]), uid)
  if pool_live_key then
    module('pools').remove(KEYS[pool_live_key], uid, p[POD_SERVICE])
  end
  if p[POD_PROBE] then
    local r = breaker_of(KEYS[breaker_key], strings)
    if not r.plan then -- otherwise keep its own plan, which its notification needs
      attach_plan(r, plan, home, now)
    end
    breaker.give_back_probe(r, uid, now)
  end
  local given_back, resets = false, resets_of(own)
  for account, windows in ipairs(p[POD_WINDOWS] ~= '' and cjson.decode(p[POD_WINDOWS]) or {}) do
    local h = account == 1 and own or home
    for _, window in ipairs(windows) do
      local seconds = window[CHARGED_WINDOW_SECONDS]
      local w = h.windows[seconds]
      if account == 1 and resets[seconds] and p[POD_CHARGED_AT] <= resets[seconds][RESET_UPTO] then
        w = nil -- reset since the charge
      end
      local counters = window[CHARGED_WINDOW_COUNTERS] or NOTHING
      for index, resource in ipairs(w and window[CHARGED_WINDOW_RESOURCES] or {}) do
        local amount = cost_of(p[POD_COST])[resource] or 0
        local bucket = amount > 0 and module('refusals').bucket_at(h, seconds, p[POD_CHARGED_AT], true)
        if bucket and (bucket[resource] or 0) >= amount then -- lost data cannot be refunded
          local sums = w[WINDOW_SUMS]
          add(bucket, resource, -amount)
          add(sums, resource, -amount)
          local counter = counters[index]
          if counter and (bucket[counter] or 0) >= amount then
            add(bucket, counter, -amount)
            add(sums, counter, -amount)
          end
          h.dirty, home.last, home.dirty, given_back = true, now, true, true
        end
      end
    end
  end
  return {given_back}
end

-- Undo a charge that only the acquire has made which asks for it, as if it had never been made. The keys are as above.
local function withdraw(plan, reading, strings, WITHDRAW_FIELDS)
  local home, record_key = hash_of(plan.home), KEYS[pod_key]
  local now = time_of(home, reading)
  local p = pod_of(record_key, strings, now)
  if not p or p[POD_SERVICE] ~= plan.service or p[POD_FLEET] ~= plan.fleet or p[POD_SCOPE] ~= scope then
    return {false}
  end
  local charged_at, since = p[POD_CHARGED_AT], module('waits').since(plan.waits_key, uid_of(plan, record_key))
  if (at and at + home.offset ~= charged_at) or since ~= charged_at then
    return {false}
  end
  refund(plan, reading, strings, REFUND_FIELDS)
  local held = pods[record_key]
  held.record[POD_EXPIRES], held.lasts_ms = now, lasts_ms(now, now)
  return {true}
end

-- Charge a running Pod for what it uses above its highest charge. The breaker has no part in it.
local function resize(plan, reading, strings, RESIZE_FIELDS)
  own_key, pod_key = KEYS[own_key], KEYS[pod_key]
  local b, cost = bound_of(plan, own_key, reading, not peek, KEYS[live_key]), cost_of(cost_text)
  local now, known = b.now, pod_of(pod_key, strings, b.now)
  local before, more, any = {}, {}, false
  for resource, amount in pairs(old) do
    before[resource] = amount
  end
  for resource, amount in pairs(known and (known[POD_HIGH] or cost_of(known[POD_COST])) or {}) do
    before[resource] = amount
  end
  for resource, amount in pairs(cost) do
    if resource ~= 'pods' and amount > (before[resource] or 0) then
      more[resource], any = amount - (before[resource] or 0), true
    end
  end
  local uid = uid_of(plan, pod_key)
  local live = b.live and module(b.live)
  local used, over = judge(b, more, live and live.more(b, uid, cost, old) or NOTHING)
  local refused, would = 0, 0
  if #over > 0 then
    refused, would = module('refusals').objection(BY_QUOTA, plan.quota_enforced, would)
  end
  local r = breaker.glance(plan.breaker_key, strings)
  local writes = refused == 0 and not peek
  if writes then
    charge(plan, b, scope, more, now, used)
    local p = POD{
      expires = 0, charged_at = 0, generation = r.generation, probe = false, refunded = false, service = plan.service,
      scope = scope, fleet = plan.fleet, cost = '{}', high = false, windows = '', source = '', settled = false,
    }
    for field, value in ipairs(known or {}) do
      p[field] = value
    end
    for resource in pairs(more) do
      before[resource] = cost[resource]
    end
    p[POD_HIGH], p[POD_EXPIRES] = before, now + plan.remember
    remember(pod_key, p, now, known and places[pod_key] or place)
    if live then
      live.raise(plan, b, uid, cost, old, used)
    end
  end
  if plan.breaker then
    breaker.advance(r, plan.breaker, now, {})
  end
  local home, view = b.home, plan.breaker and breaker.seen(r, plan, b.home, now)
  return ACQUIRE_ANSWER{
    at_us = shown(home, now), refused = refused, would = would, charged = writes and any, repeated = false, used = used,
    over = over, view = view, moves = false, born_us = home.born, charged_us = 0,
  }
end

-- Charge a Pod that was admitted without the store, at its own time and past every limit; false for a known uid.
local function book(plan, reading, strings, BOOK_FIELDS)
  own_key, pod_key = KEYS[own_key], KEYS[pod_key]
  local b = bound_of(plan, own_key, reading, false, KEYS[live_key])
  local now = b.now
  at = min(at + b.home.offset, now)
  local _, p = pod_of(pod_key, strings, now)
  if (p and p[POD_EXPIRES] > now) or at + plan.remember <= now then
    if p and p[POD_EXPIRES] > now and not p[POD_REFUNDED] then
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
    module(b.live).add(plan, b, uid, cost, used)
  end
  wait_for(plan.waits_key, uid, at)
  expiring[plan.waits_key] = true
  return {true}
end
