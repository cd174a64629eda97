-- KEYS: those of all operations, each once. ARGV[1]: MessagePack values one after another, because a list of arguments
-- is made in one allocation, and an array in many: now, or false for this server's time; `late`; `opened`; the numbers
-- of the keys that hold strings, packed; the number of plans; PLAN_VALUES of each plan; the operations, packed. They are
-- at most 3,205 for the 320 operations of a call: Lua accepts 8,000.
-- A plan is its packed form; the numbers of its keys: home, index, breaker, Pods not seen yet, live Pods; the offset of
-- the uid in a record's key; whether `opened` counts it; and of a replica that owes nothing {its id, since when at
-- least, when the home hash was created as far as it knows}, or false. An operation is its kind, the number of its plan, the
-- numbers of its own keys, and its arguments.
-- The answer is a list of the operations' results in order, or their error messages. Writes are sent at the end: a
-- Redis that rejects writes (full, a replica) has then accepted none of them.

local function plan_of(packed, home, index, breaker_key, waits_key, live_key, uid_at, is_counted, settled)
  local service, windows, pool, quota_enforced, breaker_enforced, remember_us, ttl_ms, breaker_ttl_ms, fleet,
    packed_windows, standing_limits, cluster, tag, channel, rules, has_outcomes, is_forced, is_guarded, quota,
    errors_length, latency_length = cmsgpack.unpack(packed)
  return {
    service = service, windows = {cmsgpack.unpack(windows)}, pool = pool and {cmsgpack.unpack(pool)},
    quota_enforced = quota_enforced, breaker_enforced = breaker_enforced, remember = remember_us, ttl = ttl_ms,
    breaker_ttl = breaker_ttl_ms, fleet = fleet, packed_windows = packed_windows, standing = standing_limits,
    cluster = cluster, tag = tag, channel = channel, rules = rules, has_outcomes = has_outcomes, is_forced = is_forced,
    is_guarded = is_guarded, quota = quota, errors_length = errors_length,
    latency_length = latency_length, home = KEYS[home], index = KEYS[index], breaker_key = KEYS[breaker_key],
    waits_key = KEYS[waits_key], live_key = KEYS[live_key], uid_at = uid_at, is_counted = is_counted,
    settled = settled, bound = {}, breaker = false,
  }
end

-- Commands that Redis may reject go first: once one is accepted, all are. Without modules no breaker has changed, and
-- there are no live Pods.
local function write()
  local changed, live = next(modules) and breakers or NOTHING, next(modules) and lives or NOTHING
  for _, r in pairs(changed) do
    if r.moved then
      module('breaker').keep_time(r)
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
      p.lasts_ms = p.lasts_ms or math.ceil((p.record[EXPIRES] - p.now) / 1000) + 1000
      redis.call('SET', key, p.packed .. places[key], 'PX', p.lasts_ms)
    end
  end
  for key, r in pairs(changed) do
    if r.changed then
      module('refusals').write_breaker(key, r)
    end
  end
  for _, l in pairs(live) do
    if l.dirty then
      module('live').write(l)
    end
  end
  for key, waited in pairs(waits) do
    write_waits(key, waited)
  end
  for index, noted in pairs(notes) do
    for scope, counts_until in pairs(noted) do
      local before = tonumber(redis.call('HGET', index, 'n:' .. scope) or 0)
      redis.call('HSET', index, 'n:' .. scope, max(before, counts_until))
    end
  end
  for _, h in pairs(hashes) do
    if h.dirty then
      clean_hash(h)
    end
  end
  for _, l in pairs(live) do
    if l.dirty then
      module('live').delete_gone(l)
      redis.call('PEXPIRE', l.key, LIVE_TTL_MS)
    end
  end
  for key, waited in pairs(waits) do
    clear_waits(key, waited)
  end
  for _, r in pairs(changed) do
    if r.moved then
      module('breaker').announce(r)
    end
  end
end

local function carried_out(plans, reading, strings, kind, number, ...)
  local plan = plans[number]
  if kind == 'acquire' then
    return acquire(plan, reading, strings, ...)
  elseif plan then
    module('breaker').rules_of(plan)
  end
  return module('operations')[kind](plan, {kind, number, ...}, reading, strings)
end

local function execute(argument)
  local values = {cmsgpack.unpack(argument)}
  local reading, plans, results = values[1], {}, {}
  late, opened = values[2], values[3]
  if not reading then
    local time = redis.call('TIME')
    reading = tonumber(time[1]) * 1000000 + tonumber(time[2])
  end
  local keys, strings = {cmsgpack.unpack(values[4])}, {}
  for index, number in ipairs(keys) do
    keys[index] = KEYS[number]
  end
  if #keys > 0 then
    for index, value in ipairs(redis.call('MGET', unpack(keys))) do
      strings[keys[index]] = value
    end
  end
  local first = 6
  for index = 1, values[5] do
    local plan = plan_of(unpack(values, first, first + PLAN_VALUES - 1))
    plans[index], first = plan, first + PLAN_VALUES
    if plan.is_guarded then
      recount(plan, strings)
    end
  end
  for index = first, #values do
    local fine, result = pcall(carried_out, plans, reading, strings, cmsgpack.unpack(values[index]))
    results[index - first + 1] = fine and result or module('operations').words_of(result)
  end
  for _, plan in ipairs(plans) do
    local home = plan.settled and hashes[plan.home]
    if home and home.returned ~= NOTHING then
      pcall(module('operations').show_settled, plan, home, reading) -- an operation on a broken hash has reported it
    end
  end
  local fine, fault = pcall(write)
  if not fine then
    for index in ipairs(results) do
      results[index] = module('operations').words_of(fault)
    end
  end
  return cmsgpack.pack(results)
end

return execute(ARGV[1])
