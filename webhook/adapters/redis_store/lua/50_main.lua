-- KEYS: those of all operations, each once. ARGV[1]: {now, or false for this server's time; plans; numbers of the keys
-- that hold strings; operations; `late`; `opened`}. A plan is {packed plan; numbers of its keys: home, index, breaker,
-- Pods not seen yet, live Pods; offset of the uid in a record's key; whether `opened` counts it; settled}. `settled` is
-- false, or of a replica that owes nothing {its id, since when at least, when the home hash was created as far as it
-- knows}. An operation is {kind, number of its plan, numbers of its own keys, arguments}.
-- The answer is a list of the operations' results in order, or their error messages. Writes are sent at the end: a
-- Redis that rejects writes (full, a replica) has then accepted none of them.

local KINDS = {
  acquire = acquire, record = record, refund = refund, book = book,
  record_outcomes = record_outcomes, started = started, apply_override = apply_override, propose = propose, suppress_quota_events = suppress_quota_events,
  snapshot = snapshot, tick = tick, scopes = scopes, probe = probe, observe = observe_pod, overdue = overdue,
  others_settled = others_settled, place = place, stop_waiting = stop_waiting, mark_complete = mark_complete, lived = lived, standing = standing, page = page, reset = reset,
}

local function plan_of(description)
  local packed, home, index, breaker_key, waits_key, live_key, uid_at, is_counted, settled = unpack(description)
  local service, windows, pool, quota_enforced, breaker, breaker_enforced, remember_us, ttl_ms, breaker_ttl_ms, fleet,
    packed_windows, standing_limits, cluster, tag, channel = unpack(packed)
  local plan = {
    service = service, windows = windows, pool = pool, quota_enforced = quota_enforced, breaker = false,
    breaker_enforced = breaker_enforced, remember = remember_us, ttl = ttl_ms, breaker_ttl = breaker_ttl_ms, fleet = fleet, packed_windows = packed_windows,
    home = KEYS[home], index = KEYS[index], breaker_key = KEYS[breaker_key], uid_at = uid_at, bound = {},
    waits_key = KEYS[waits_key], live_key = KEYS[live_key], standing = standing_limits, cluster = cluster,
    tag = tag, channel = channel, settled = settled,
  }
  if breaker then
    local b = {home = plan.home}
    b.has_outcomes, b.error_rate, b.latency, b.quota, b.open_for, b.probes, b.probe_timeout, b.degrades, b.open_max,
      b.forcing = unpack(breaker)
    plan.breaker, plan.is_counted = b, is_counted
  end
  return plan
end

local function strings_of(numbers)
  local keys, strings = {}, {}
  for index, number in ipairs(numbers) do
    keys[index] = KEYS[number]
  end
  if #keys > 0 then
    for index, value in ipairs(redis.call('MGET', unpack(keys))) do
      strings[keys[index]] = value
    end
  end
  return strings
end

-- Publish a breaker's state. A subscriber that misses it polls each second.
local function announce(r)
  local plan = r.plan
  if plan.breaker and plan.channel ~= '' then
    local message = {plan.tag, plan.service, shown(r.home, r.now), seen(r, plan, r.home, r.now)}
    redis.pcall('PUBLISH', plan.channel, cmsgpack.pack(message))
  end
end

-- Keep the tag's time from going back behind a breaker's transition, as long as its record lasts.
local function keep_time(r)
  written(r.home, r.plan, r.now)
  r.home.last, r.home.begins, r.home.ttl = r.now, true, max(r.home.ttl, lasts_ms(r))
end

-- Commands that Redis may reject go first: once one is accepted, all are.
local function write()
  for _, r in pairs(breakers) do
    if r.moved then
      keep_time(r)
    end
  end
  for _, h in pairs(hashes) do
    if h.dirty then
      write_hash(h)
    end
  end
  for key, p in pairs(pods) do
    if p.now then
      p.packed = p.packed or cmsgpack.pack(p.record)
      p.lasts_ms = p.lasts_ms or string.format('%.0f', math.ceil((p.record[1] - p.now) / 1000) + 1000)
      redis.call('SET', key, p.packed .. places[key], 'PX', p.lasts_ms)
    end
  end
  for key, r in pairs(breakers) do
    if r.changed then
      write_breaker(key, r)
    end
  end
  for _, l in pairs(lives) do
    if l.dirty then
      write_live(l)
    end
  end
  for key, waited in pairs(waits) do
    write_waits(key, waited)
  end
  for index, noted in pairs(notes) do
    for scope, counts_until in pairs(noted) do
      local before = tonumber(redis.call('HGET', index, 'n:' .. scope) or 0)
      redis.call('HSET', index, 'n:' .. scope, string.format('%.0f', max(before, counts_until)))
    end
  end
  for _, h in pairs(hashes) do
    if h.dirty then
      delete_slots(h)
      if h.begins and h.ttl then
        live_on(h.key, h.ttl)
      end
    end
  end
  for _, l in pairs(lives) do
    if l.dirty then
      delete_gone(l)
      redis.call('PEXPIRE', l.key, LIVE_TTL_MS)
    end
  end
  for key, waited in pairs(waits) do
    clear_waits(key, waited)
  end
  for _, r in pairs(breakers) do
    if r.moved then
      announce(r)
    end
  end
end

local function words_of(fault)
  return type(fault) == 'table' and fault.err or tostring(fault)
end

-- A function, because a Lua chunk has at most 200 local variables.
local function execute(argument)
  local reading, packed_plans, numbers, operations
  reading, packed_plans, numbers, operations, late, opened = unpack(cmsgpack.unpack(argument))
  if not reading then
    local time = redis.call('TIME')
    reading = tonumber(time[1]) * 1000000 + tonumber(time[2])
  end
  local plans, strings, results = {}, strings_of(numbers), {}
  for index, packed in ipairs(packed_plans) do
    plans[index] = plan_of(packed)
    recount(plans[index], strings)
  end
  for index, operation in ipairs(operations) do
    local fine, result = pcall(KINDS[operation[1]], plans[operation[2]], operation, reading, strings)
    results[index] = fine and result or words_of(result)
  end
  for _, plan in ipairs(plans) do
    if plan.settled then
      pcall(show_settled, plan, reading) -- an operation on a broken record has reported the error
    end
  end
  local fine, fault = pcall(write)
  if not fine then
    for index in ipairs(results) do
      results[index] = words_of(fault)
    end
  end
  return cmsgpack.pack(results)
end

return execute(ARGV[1])
