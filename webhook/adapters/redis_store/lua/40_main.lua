-- KEYS: of all operations, each once. ARGV[1]: {now or false for this server's own time, plans, operations};
-- an operation is {plan, numbers of its keys, request}, and a request begins with its kind. The answer is a list as long,
-- of each operation's result, or of the words of its error.

local KINDS = {acquire = acquire, refund = refund, outcome = outcome, look = look, tick = tick, scopes = scopes}

local function plan_of(packed)
  local windows, quota_enforced, breaker, breaker_enforced, remember_us, ttl_ms, breaker_ttl_ms = unpack(packed)
  local plan = {
    windows = windows, quota_enforced = quota_enforced, breaker = false, breaker_enforced = breaker_enforced,
    remember = remember_us, ttl = string.format('%.0f', ttl_ms), breaker_ttl = breaker_ttl_ms,
  }
  if breaker then
    local b = {}
    b.has_outcomes, b.error_rate, b.latency, b.quota, b.open_for, b.probes, b.probe_timeout = unpack(breaker)
    plan.breaker = b
  end
  return plan
end

local now, packed_plans, operations = unpack(cmsgpack.unpack(ARGV[1]))
if not now then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * 1000000 + tonumber(time[2])
end
local plans = {}
for index, packed in ipairs(packed_plans) do
  plans[index] = plan_of(packed)
end
local results = {}
for index, operation in ipairs(operations) do
  local plan, keys, request = unpack(operation)
  for position, number in ipairs(keys) do
    keys[position] = KEYS[number]
  end
  local fine, result = pcall(KINDS[request[1]], plans[plan], keys, request, now)
  results[index] = fine and result or (type(result) == 'table' and result.err or tostring(result))
end
return cmsgpack.pack(results)
