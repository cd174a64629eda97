-- KEYS: those of all operations, each once. ARGV[1]: MessagePack values one after another: the header, each plan with its
-- details, and the operations; `records.py` and `script.py` name the values. They are unpacked step by step from the one
-- string: Redis 7 and later hash every byte of each string that a script creates.
-- `reading` of the header is false for this server's time; `size` is the number of values of the first operation. An
-- operation is the number of values of the next one, or 0; its name; the number of its plan; the numbers of its own keys;
-- its other values.
-- The answer is a list of the operations' results in order, or their error messages. Writes are sent at the end: a
-- Redis that rejects writes (full, a replica) has then accepted none of them.

-- Return a plan, and where its details begin in the argument.
local function plan_of(at, PLAN_FIELDS)
  return {
    windows = {cmsgpack.unpack(windows)}, pool = pool and {cmsgpack.unpack(pool)}, quota_enforced = quota_enforced,
    breaker_enforced = breaker_enforced, remember = remember_us, ttl = ttl_ms, service = service, fleet = fleet,
    packed_windows = packed_windows, standing = standing, has_rules = has_rules, has_outcomes = has_outcomes,
    is_forced = is_forced, is_guarded = is_guarded, has_quota = has_quota, errors_interval = errors_interval_us,
    latency_interval = latency_interval_us, home = KEYS[home], index = KEYS[ring], breaker_key = KEYS[breaker],
    waits_key = KEYS[waits], live_key = KEYS[live], uid_at = uid_at, is_counted = is_counted,
    guarantees = guarantees and {cmsgpack.unpack(guarantees)},
    settled = settled, details_at = at, details = false, bound = {}, breaker = false,
  }, at + details_bytes
end

-- Commands that Redis may reject go first: once one is accepted, all are. Without modules no breaker has changed, and
-- there are no live Pods.
local function write()
  local changed, live, call = next(modules) and breakers or NOTHING, next(modules) and lives or NOTHING, redis.call
  for _, r in pairs(changed) do
    if r.moved then
      module('breaker').keep_time(r)
    end
  end
  for _, h in pairs(hashes) do
    if h.dirty then
      for seconds, w in pairs(h.begins and h.windows or NOTHING) do
        local holds = next(w[WINDOW_CURRENT])
        for _, amount in pairs(w[WINDOW_SUMS]) do
          holds = holds or amount > 0
        end
        h.windows[seconds] = holds and w or nil
      end
      local returned = next(h.returned) and h.returned
      local head = RING_HEAD{
        last = h.last, offset = h.offset, behind = h.behind, born = h.born, windows = h.windows, returned = returned,
      }
      local values = {'h', cmsgpack.pack(head)}
      for field, amounts in pairs(h.sets) do
        if next(amounts) then
          values[#values + 1], values[#values + 2] = field, cmsgpack.pack(amounts)
        end
      end
      if h.resets_changed then
        values[#values + 1], values[#values + 2] = 'r', cmsgpack.pack(h.resets)
      end
      call_with('HSET', h.key, values)
    end
  end
  for key, p in pairs(pods) do
    if p.lasts_ms then
      call('SET', key, (p.packed or cmsgpack.pack(p.record)) .. places[key], 'PX', p.lasts_ms)
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
    local values, count = {false, false}, 0
    for uid, at in pairs(waited) do
      if at then
        values[count + 1], values[count + 2] = at, uid
        count = count + 2
      end
    end
    if count > 0 then
      call_with('ZADD', key, values)
    end
  end
  for index, noted in pairs(notes) do
    for scope, counts_until in pairs(noted) do
      local before = tonumber(redis.call('HGET', index, 'n:' .. scope) or 0)
      redis.call('HSET', index, 'n:' .. scope, max(before, counts_until))
    end
  end
  for _, h in pairs(hashes) do
    if h.dirty then
      local gone = {}
      for field in pairs(h.dels) do
        gone[#gone + 1] = field
      end
      call_with('HDEL', h.key, gone)
      -- Extend the key's TTL, never shorten it. It only collects garbage: the stored times decide what counts.
      if h.begins and h.ttl and redis.call('PTTL', h.key) < h.ttl then
        redis.call('PEXPIRE', h.key, string.format('%.0f', h.ttl))
      end
    end
  end
  for _, l in pairs(live) do
    if l.dirty then
      module('live').delete_gone(l)
      redis.call('PEXPIRE', l.key, LIVE_TTL_MS)
    end
  end
  for key, waited in pairs(waits) do
    local gone, newest = NOTHING, 0
    for uid, at in pairs(waited) do
      if at then
        newest = max(newest, at)
      else
        gone = gone == NOTHING and {} or gone
        gone[#gone + 1] = uid
      end
    end
    call_with('ZREM', key, gone)
    if newest > 0 then
      redis.call('PEXPIRE', key, WAITED_TTL_MS)
      if expiring[key] then
        redis.call('ZREMRANGEBYSCORE', key, '-inf', newest - WAITED_US - LONG_US)
      end
    end
  end
  for _, r in pairs(changed) do
    if r.moved then
      module('breaker').announce(r)
    end
  end
end

local position, size -- of the next operation, in the argument

local function carry_out(plans, reading, strings, at, next_size, name, number, ...)
  position, size = at, next_size
  local plan = plans[number]
  if name == 'acquire' then
    return acquire(plan, reading, strings, ...)
  elseif name == 'queue' then
    return module('queue').run(reading, ...)
  elseif name == 'slots' then
    return module('slots').run(reading, ...)
  elseif plan then
    module('breaker').rules_of(plan)
  end
  return module('operations')[name](plan, reading, strings, ...)
end

local function execute(argument)
  local plans, results, number, at, reading, plan_count = {}, {}, 0
  at, HEADER_FIELDS = cmsgpack.unpack_limit(argument, HEADER_LENGTH, 0)
  if not reading then
    local time = redis.call('TIME')
    reading = tonumber(time[1]) * 1000000 + tonumber(time[2])
  end
  local strings = {}
  for first = 1, #KEYS, 1000 do
    for index, value in ipairs(redis.call('MGET', unpack(KEYS, first, min(first + 999, #KEYS)))) do
      if value then -- false for hashes and sets, too
        strings[KEYS[first + index - 1]] = value
      end
    end
  end
  for index = 1, plan_count do
    local plan
    plan, at = plan_of(cmsgpack.unpack_limit(argument, PLAN_LENGTH, at))
    plans[index] = plan
    if plan.is_guarded then
      recount(plan, strings)
    end
  end
  position = at
  local call, values = pcall, cmsgpack.unpack_limit
  while size > 0 do
    local fine, result = call(carry_out, plans, reading, strings, values(argument, size, position))
    number = number + 1
    results[number] = fine and result or module('operations').words_of(result)
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
