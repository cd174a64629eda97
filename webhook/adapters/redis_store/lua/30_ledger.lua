-- One Pod against its service's counters: `core/ledger.py` and `core/service_state.py`, on Redis.
-- A service's hash also holds `last`, the newest time it was written at, and "n:NAMESPACE", until when that one counts.

local BREAKER, QUOTA = 1, 2 -- who refused; in `would` they are added up
local NEVER = -1

-- While a clock is behind, time stands still.
local function time_of(service, now)
  local last = redis.call('HGET', service, 'last')
  return last and math.max(now, cmsgpack.unpack(last)) or now
end

local function pod_of(key, now)
  local packed = redis.call('GET', key)
  if not packed then
    return nil
  end
  local p = cmsgpack.unpack(packed)
  if p[1] <= now or p[8] then
    return nil
  end
  return {
    expires = p[1], high_water = p[2], scope = p[3], charged_at = p[4],
    charges = p[5], generation = p[6], probe = p[7], refunded = p[8],
  }
end

local function remember(key, p, now)
  local packed = cmsgpack.pack({
    p.expires, p.high_water, p.scope, p.charged_at, p.charges, p.generation, p.probe, p.refunded,
  })
  -- Whether it still counts is decided by what it says; this only collects garbage.
  redis.call('SET', key, packed, 'PX', string.format('%.0f', math.ceil((p.expires - now) / 1000) + 1000))
end

-- Hold `cost` against every limit: used, asked and from when it fits, in the plan's order; whether all do; the rings.
local function judge(plan, ring_key, cost, now)
  local judged, fits, rings = {}, true, {}
  for number, window in ipairs(plan.windows) do
    local ring = ring_of(ring_key, window[1])
    rings[number] = ring
    local used = ring_used(ring, now)
    for _, limit in ipairs(window[2]) do
      local resource, hard = limit[1], limit[2]
      local asked, has, free_at = cost[resource] or 0, used[resource] or 0, 0
      if asked > 0 and asked > hard - has then -- a sum might be above what a double holds exactly
        free_at = ring.head and ring_free_at(ring, now, used, resource, hard, asked) or NEVER
        fits = false
      end
      judged[#judged + 1], judged[#judged + 2], judged[#judged + 3] = has, asked, free_at
    end
  end
  return judged, fits, rings
end

-- Count `cost` in every window that limits any of it, in the rings as they were judged; return what went where.
local function charge(plan, service, ring_key, scope, cost, now, rings)
  local charges, begins, counts_until = {}, false, 0
  for number, window in ipairs(plan.windows) do
    local amounts, any = {}, false
    for _, limit in ipairs(window[2]) do
      local amount = cost[limit[1]]
      if amount and amount > 0 then
        amounts[limit[1]], any = amount, true
      end
    end
    if any then
      local ring = rings[number]
      begins = ring_add(ring, now, amounts) or begins
      counts_until = math.max(counts_until, ring_idle_at(ring))
      charges[#charges + 1] = {window[1], amounts}
    end
  end
  if #charges > 0 then
    redis.call('HSET', service, 'last', cmsgpack.pack(now))
  end
  if begins then
    redis.call('PEXPIRE', service, plan.ttl)
    if ring_key ~= service then
      redis.call('PEXPIRE', ring_key, plan.ttl)
      redis.call('HSET', service, 'n:' .. scope, cmsgpack.pack(counts_until))
    end
  end
  return charges
end

-- What follows from an objection of a guard: refused or not, and who else would have.
local function objection(guard, enforced, would)
  if enforced then
    return guard, would
  end
  return 0, would + guard
end

local function resize(plan, keys, request, now)
  local service, ring_key, breaker_key, pod_key = unpack(keys)
  local _, scope, uid, cost, _, peek, old = unpack(request)
  local known = pod_of(pod_key, now)
  local before = {}
  for resource, amount in pairs(old) do
    before[resource] = amount
  end
  for resource, amount in pairs(known and known.high_water or {}) do
    before[resource] = amount
  end
  local more, any = {}, false
  for resource, amount in pairs(cost) do
    if resource ~= 'pods' and amount > (before[resource] or 0) then
      more[resource], any = amount - (before[resource] or 0), true
    end
  end
  local judged, fits, rings = judge(plan, ring_key, more, now)
  local refused, would = 0, 0
  if not fits then
    refused, would = objection(QUOTA, plan.quota_enforced, would)
  end
  local r = breaker_of(breaker_key)
  local written = refused == 0 and not peek
  if written then
    charge(plan, service, ring_key, scope, more, now, rings)
    local record = known or {scope = '', charged_at = 0, charges = {}, generation = r.generation, probe = false, refunded = false}
    for resource in pairs(more) do
      before[resource] = cost[resource]
    end
    record.high_water, record.expires = before, now + plan.remember
    remember(pod_key, record, now)
  end
  if plan.breaker then
    advance(r, plan.breaker, now, {})
  end
  return {now, refused, would, written and any, false, judged, plan.breaker and view(r, now), {}}
end

-- Judge one Pod and, unless it only peeks, charge it: all or nothing, each uid once.
local function acquire(plan, keys, request, now)
  local service, ring_key, breaker_key, pod_key = unpack(keys)
  now = time_of(service, now)
  if request[7] then
    return resize(plan, keys, request, now)
  end
  local _, scope, uid, cost, source, peek = unpack(request)
  local r, moves = breaker_of(breaker_key), {}
  if plan.breaker then
    advance(r, plan.breaker, now, moves)
  end
  if pod_of(pod_key, now) then
    local judged = judge(plan, ring_key, {}, now)
    return {now, 0, 0, false, true, judged, plan.breaker and view(r, now), {}}
  end

  local refused, would = 0, 0
  if plan.breaker and not admits(r, plan.breaker, now) then
    refused, would = objection(BREAKER, plan.breaker_enforced, would)
  end
  local judged, fits, rings = judge(plan, ring_key, refused == 0 and cost or {}, now)
  if not fits then
    refused, would = objection(QUOTA, plan.quota_enforced, would)
  end
  if peek then
    return {now, refused, would, false, false, judged, plan.breaker and view(r, now), {}}
  end

  if refused == 0 then
    local record = {
      expires = now + plan.remember, high_water = cost, scope = scope, charged_at = now,
      charges = charge(plan, service, ring_key, scope, cost, now, rings), generation = r.generation,
      probe = false, refunded = false,
    }
    record.probe = plan.breaker and take_probe(r, plan.breaker, now, uid, moves)
    remember(pod_key, record, now)
  elseif refused == QUOTA and plan.breaker then
    quota_event(r, plan.breaker, now, source, moves)
  end
  breaker_write(breaker_key, r, plan.breaker_ttl)
  return {now, refused, would, refused == 0, false, judged, plan.breaker and view(r, now), moves}
end

-- Give back, once, what a Pod that never came to be was charged, and its place as a probe.
local function refund(plan, keys, request, now)
  local service, ring_key, breaker_key, pod_key = unpack(keys)
  now = time_of(service, now)
  local record = pod_of(pod_key, now)
  if not record then
    return {false}
  end
  record.refunded = true
  remember(pod_key, record, now)
  if record.probe then
    local r = breaker_of(breaker_key)
    without_lease(r, function(lease) return lease[1] == request[2] end)
    breaker_write(breaker_key, r, plan.breaker_ttl)
  end
  local given_back = false
  for _, charged in ipairs(record.charges) do
    given_back = ring_refund(ring_of(ring_key, charged[1]), now, record.charged_at, charged[2]) or given_back
  end
  return {given_back}
end

local function outcome(plan, keys, request, now)
  local service, breaker_key = unpack(keys)
  local moves = {}
  if not plan.breaker then
    return {moves}
  end
  now = time_of(service, now)
  local r = breaker_of(breaker_key)
  advance(r, plan.breaker, now, moves)
  heard(r, plan.breaker, now, request[2], moves)
  breaker_write(breaker_key, r, plan.breaker_ttl)
  return {moves, view(r, now), now}
end

-- Say how the service stands; writes nothing. One unit is asked of each limit, to say when any is free.
local function look(plan, keys, _, now)
  local service, breaker_key = unpack(keys)
  now = time_of(service, now)
  local one_of_each = {}
  for _, window in ipairs(plan.windows) do
    for _, limit in ipairs(window[2]) do
      one_of_each[limit[1]] = 1
    end
  end
  local uses = {}
  for index = 3, #keys do
    uses[#uses + 1] = judge(plan, keys[index], one_of_each, now)
  end
  local r = breaker_of(breaker_key)
  if plan.breaker then
    advance(r, plan.breaker, now, {})
  end
  return {now, uses, plan.breaker and view(r, now)}
end

-- Do what the time alone brings about under the policy of today.
local function tick(plan, keys, _, now)
  local service, breaker_key = unpack(keys)
  local r, moves = breaker_of(breaker_key), {}
  now = time_of(service, now)
  if plan.breaker then
    advance(r, plan.breaker, now, moves)
  else
    restart(r)
  end
  breaker_write(breaker_key, r, plan.breaker_ttl)
  return {moves, plan.breaker and view(r, now), now}
end

-- Return the namespaces in which anything counts, and forget the others.
local function scopes(_, keys, _, now)
  local service = keys[1]
  now = time_of(service, now)
  local found = redis.call('HGETALL', service)
  local counting, done = {}, {}
  for index = 1, #found, 2 do
    local field = found[index]
    if string.sub(field, 1, 2) == 'n:' then
      local into = cmsgpack.unpack(found[index + 1]) > now and counting or done
      into[#into + 1] = field
    end
  end
  for _, field in ipairs(done) do
    redis.call('HDEL', service, field)
  end
  for index, field in ipairs(counting) do
    counting[index] = string.sub(field, 3)
  end
  return {counting}
end
