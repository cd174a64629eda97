-- Observed Pods reconciled with charges: `ledger/observed_pods.py`, on Redis.

-- Charge what a Pod uses above its highest charge. A resource it was never charged for has been limited only since.
local function raise(plan, b, pod_key, scope, cost, p, now)
  local before, more, any = p[HIGH] or cost_of(p[COST]), {}, false
  for resource, amount in pairs(before) do
    if resource ~= 'pods' and (cost[resource] or 0) > amount then
      more[resource], any = cost[resource] - amount, true
    end
  end
  if not any then
    return false
  end
  charge(plan, b, scope, more, now, judge(b, NOTHING, NOTHING))
  p = {unpack(p)}
  local high = {}
  for resource, amount in pairs(before) do
    high[resource] = more[resource] and cost[resource] or amount
  end
  p[HIGH], p[EXPIRES] = high, now + plan.remember
  remember(pod_key, p, now, places[pod_key])
  return true
end

-- Apply the watch's state of one Pod of the service.
local function observe_pod(plan, operation, reading, strings)
  local _, _, own_key, pod_key, live_key, scope, place, cost_text, created, is_live, is_sure = unpack(operation)
  own_key, pod_key = KEYS[own_key], KEYS[pod_key]
  local b = bound_of(plan, own_key, reading, false, KEYS[live_key])
  local now, cost, uid = b.now, cost_of(cost_text), uid_of(plan, pod_key)
  local p, stood = pod_of(pod_key, strings, now), b.live and module('live').held(b.live, uid)
  if not is_sure and not stood and not (p and p[SERVICE] == plan.service) then
    return {false, false, false, true}
  end
  local charged, raised = false, false
  if p then
    raised = raise(plan, b, pod_key, scope, cost, p, now)
  elseif created > 0 then
    local at = min(created + b.home.offset, now)
    if at + plan.remember > now then
      charge(plan, b, scope, cost, at, judge(b, NOTHING, NOTHING))
      local generation = breaker_of(plan.breaker_key, strings).generation
      pods[pod_key], places[pod_key] = new_pod(plan, at, now, generation, false, scope, cost_text, ''), place
      charged = true
    end
  end
  wait_for(plan.waits_key, uid, false)
  local changed = false
  if b.live then
    local live = module('live')
    if is_live then
      live.put(plan, b.live, uid, cost, now)
    else
      live.remove(b.live, uid)
    end
    changed = not live.equal(live.held(b.live, uid), stood)
  end
  return {charged, raised, changed, false}
end

-- Return Pods of the tag charged at least so long ago and not seen since: {uid, age}, oldest first.
local function overdue(plan, operation, reading)
  local now = time_of(hash_of(plan.home), reading)
  local from, to = string.format('(%.0f', now - WAITED_US), string.format('%.0f', now - operation[3])
  local found = redis.call('ZRANGEBYSCORE', plan.waits_key, from, to, 'WITHSCORES', 'LIMIT', 0, operation[4])
  local waiting = {}
  for index = 1, #found, 2 do
    waiting[#waiting + 1] = {found[index], now - tonumber(found[index + 1])}
  end
  return waiting
end

-- Return namespace/name of a Pod as charged, and its service; '' for an unknown Pod.
local function place(plan, operation, reading, strings)
  local key = KEYS[operation[3]]
  local p = pod_of(key, strings, time_of(hash_of(plan.home), reading))
  return p and {places[key], p[SERVICE]} or {'', ''}
end

-- Stop waiting for a Pod, and remove it from the live Pods if their key is given.
local function stop_waiting(plan, operation)
  local uid = uid_of(plan, KEYS[operation[3]])
  wait_for(plan.waits_key, uid, false)
  if operation[4] > 0 then
    module('live').remove(module('live').live_of(KEYS[operation[4]]), uid)
  end
  return {}
end

-- Enforce limits on live Pods from now on: the list of the cluster's Pods is complete.
local function mark_complete(plan, operation, reading)
  local now = time_of(hash_of(plan.home), reading)
  redis.call('HSET', plan.live_key, 'c:' .. details_of(plan).cluster, string.format('%.0f', now))
  redis.call('PEXPIRE', plan.live_key, LIVE_TTL_MS)
  for index = 3, #operation do
    redis.call('PEXPIRE', KEYS[operation[index]], LIVE_TTL_MS)
  end
  return {}
end

-- Return the namespaces that have had live Pods.
local function lived(plan)
  local held, found = redis.call('HGETALL', plan.live_key), {}
  for index = 1, #held, 2 do
    if string.sub(held[index], 1, 2) == 'l:' then
      found[#found + 1] = string.sub(held[index], 3)
    end
  end
  return found
end

-- Return the number of live Pods in each of these hashes.
local function standing(_, operation)
  local counts = {}
  for index = 3, #operation do
    counts[#counts + 1] = module('live').live_of(KEYS[operation[index]]).count
  end
  return counts
end

-- Return a page of the cluster's live Pods that have been seen, or are no longer waited for, and the cursor.
local function page(plan, operation, reading)
  local key, cursor, now = KEYS[operation[3]], operation[4], time_of(hash_of(plan.home), reading)
  local found = redis.call('HSCAN', key, cursor, 'MATCH', 'u:*', 'COUNT', 500)
  local uids = {}
  for index = 1, #found[2], 2 do
    local _, cluster = cmsgpack.unpack(found[2][index + 1])
    if cluster == details_of(plan).cluster then
      uids[#uids + 1] = string.sub(found[2][index], 3)
    end
  end
  local settled = {}
  if #uids > 0 then
    for index, at in ipairs(redis.call('ZMSCORE', plan.waits_key, unpack(uids))) do
      if not at or tonumber(at) <= now - WAITED_US then
        settled[#settled + 1] = uids[index]
      end
    end
  end
  return {settled, found[1]}
end

-- Subtract a bucket's amounts from the sums; true if there were any.
local function forget(sums, amounts)
  local any = false
  for resource, amount in pairs(amounts) do
    -- An empty window is not written and is recreated later; fully refunded buckets may outlive it.
    sums[resource], any = (sums[resource] or 0) - amount, any or amount > 0
  end
  return any
end

-- Reset a window up to a bucket; true if it held anything.
local function forget_window(h, seconds, last)
  local w, any = h.windows[seconds], false
  if not w then
    return false
  end
  local fields = {}
  for number = w[HEAD] - LIVE + 1, min(w[HEAD] - 1, last) do
    fields[#fields + 1] = field_of(seconds, number)
  end
  load(h, fields)
  for _, field in ipairs(fields) do
    any = h.slots[field] and forget(w[SUMS], h.slots[field]) or any
    h.slots[field], h.sets[field], h.dels[field] = false, nil, true
  end
  if w[HEAD] <= last then
    any = forget(w[SUMS], w[CURRENT]) or any
    for resource in pairs(w[CURRENT]) do
      w[CURRENT][resource] = nil
    end
  end
  return any
end

-- Reset the service's own windows up to a moment, or one of them, once; true if they held anything.
local function reset(plan, operation, reading)
  local _, _, own_key, asked, only = unpack(operation)
  local home, h = hash_of(plan.home), hash_of(KEYS[own_key])
  local now, any = time_of(home, reading), false
  settle(home, now)
  settle(h, now)
  local resets, at = resets_of(h), min(asked + home.offset, now)
  for index = 1, #plan.windows, 3 do -- of each limit: the second one of a window finds its reset done
    local seconds = plan.windows[index]
    if (not only or only == seconds) and (not resets[seconds] or resets[seconds][1] < asked) then
      local width = seconds * BUCKET_US_PER_SECOND
      local last = floor(at / width)
      resets[seconds], h.resets_changed, h.begins = {asked, (last + 1) * width - 1}, true, true
      written(h, plan, now)
      written(home, plan, now) -- keep the tag's time monotonic
      home.last, home.begins = now, true
      any = forget_window(h, seconds, last) or any
    end
  end
  return {any}
end

return {
  words_of = words_of, observe_clock = observe_clock, record = record, knows = knows, refund = refund,
  withdraw = withdraw, resize = resize, book = book, record_outcomes = record_outcomes,
  started = started, apply_override = apply_override, propose = propose,
  suppress_quota_events = suppress_quota_events, snapshot = snapshot, tick = tick, changed = changed, scopes = scopes,
  probe = probe, observe = observe_pod, overdue = overdue, others_settled = others_settled, place = place,
  stop_waiting = stop_waiting, mark_complete = mark_complete, lived = lived, standing = standing, page = page,
  reset = reset, show_settled = show_settled,
}
