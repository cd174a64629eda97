-- Operations on the charge of one Pod: `record`, `refund` and `book` of `ledger/operations.py`, on Redis.

-- Return where a Pod was charged: {service, scope, whether in the fleet's rings}; empty for an unknown Pod.
local function record(plan, operation, reading, strings)
  local p = pod_of(KEYS[operation[3]], strings, time_of(hash_of(plan.home), reading))
  return p and {p[SERVICE], p[SCOPE], p[FLEET]} or {}
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
  local l = live_of(live_key)
  remove_live(l, uid)
  if p[PROBE] then
    local r = breaker_of(breaker_key, strings)
    if not r.plan then -- otherwise keep its own plan, which its notification needs
      belongs(r, plan, home, now)
    end
    give_back_probe(r, uid, now)
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
        local bucket = amount > 0 and bucket_at(h, seconds, p[CHARGED_AT], true)
        if bucket and (bucket[resource] or 0) >= amount then -- lost data cannot be refunded
          bucket[resource], w[SUMS][resource] = bucket[resource] - amount, w[SUMS][resource] - amount
          h.dirty, home.last, home.dirty, given_back = true, now, true, true
        end
      end
    end
  end
  return {given_back}
end

-- Charge a Pod that was admitted without the store, at its own time and past every limit; false for a known uid.
local function book(plan, operation, reading, strings)
  local _, _, own_key, pod_key, live_key, scope, place, cost_text, at = unpack(operation)
  own_key, pod_key = KEYS[own_key], KEYS[pod_key]
  local b = bound_of(plan, own_key, reading, false, KEYS[live_key])
  local now = b.now
  at = min(at + b.home.offset, now)
  local p = record_of(pod_key, strings).record
  if (p and p[EXPIRES] > now) or at + plan.remember <= now then
    return {false}
  end
  local cost, used = cost_of(cost_text), judge(b, NOTHING, NOTHING)
  charge(plan, b, scope, cost, at, used)
  local generation = breaker_of(plan.breaker_key, strings).generation
  remember(pod_key, new_record(plan, at, generation, scope, cost_text, ''), now, place)
  add_live_and_wait(plan, b, uid_of(plan, pod_key), cost, at, used)
  return {true}
end
