-- Observed Pods reconciled with charges: `ledger/observed_pods.py`, on Redis.

-- Charge what a Pod uses above its highest charge. A resource it was never charged for has been limited only since.
local function raise(plan, b, pod_key, scope, cost, p, now)
  local before, more, any = p[POD_HIGH] or cost_of(p[POD_COST]), {}, false
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
  p[POD_HIGH], p[POD_EXPIRES] = high, now + plan.remember
  remember(pod_key, p, now, places[pod_key])
  return true
end

-- Apply the watch's state of one Pod of the service.
local function observe(plan, reading, strings, OBSERVE_FIELDS)
  own_key, pod_key = KEYS[own_key], KEYS[pod_key]
  local b = bound_of(plan, own_key, reading, false, KEYS[live_key])
  local now, cost, uid = b.now, cost_of(cost_text), uid_of(plan, pod_key)
  local p, live = pod_of(pod_key, strings, now), b.live and module(b.live)
  local stood = live and live.is_held(b, uid)
  if not is_sure and not stood and not (p and p[POD_SERVICE] == plan.service) then
    return SEEN{charged = false, raised = false, changed = false, ignored = true}
  end
  local charged, raised = false, false
  if p then
    raised = raise(plan, b, pod_key, scope, cost, p, now)
  elseif created_at > 0 then
    local at = min(created_at + b.home.offset, now)
    if at + plan.remember > now then
      charge(plan, b, scope, cost, at, judge(b, NOTHING, NOTHING))
      local generation = breaker_of(plan.breaker_key, strings).generation
      pods[pod_key], places[pod_key] = new_pod(plan, at, now, generation, false, scope, cost_text, ''), place
      charged = true
    end
  end
  wait_for(plan.waits_key, uid, false)
  local changed = live and live.update(plan, b, uid, live_cost_text and cost_of(live_cost_text) or cost, is_live, now)
  return SEEN{charged = charged, raised = raised, changed = changed, ignored = false}
end

-- Return Pods of the tag that were charged `age` ago or earlier and not seen since, oldest first.
local function list_overdue(plan, reading, _, LIST_OVERDUE_FIELDS)
  local now = time_of(hash_of(plan.home), reading)
  local from, to = string.format('(%.0f', now - WAITED_US), string.format('%.0f', now - age)
  local found = redis.call('ZRANGEBYSCORE', plan.waits_key, from, to, 'WITHSCORES', 'LIMIT', 0, most)
  local waiting = {}
  for index = 1, #found, 2 do
    waiting[#waiting + 1] = WAITING{uid = found[index], age_us = now - tonumber(found[index + 1])}
  end
  return waiting
end

-- Return namespace/name of a Pod as charged, and its service; '' for an unknown Pod.
local function find_place(plan, reading, strings, FIND_PLACE_FIELDS)
  pod_key = KEYS[pod_key]
  local p = pod_of(pod_key, strings, time_of(hash_of(plan.home), reading))
  return PLACE_ANSWER{place = p and places[pod_key] or '', service = p and p[POD_SERVICE] or ''}
end

-- Stop waiting for a Pod, and remove it from the live Pods if their key is given.
local function stop_waiting(plan, _, _, STOP_WAITING_FIELDS)
  local uid = uid_of(plan, KEYS[pod_key])
  wait_for(plan.waits_key, uid, false)
  if live_key then
    module('live').remove(module('live').live_of(KEYS[live_key]), uid)
  end
  if pool_live_key then
    module('pools').remove(KEYS[pool_live_key], uid, service)
  end
  return {}
end

-- Remove a Pod from the live Pods of the pool, unless it counts for another service now.
local function drop_pool_pod(plan, _, _, DROP_POOL_POD_FIELDS)
  module('pools').remove(KEYS[pool_live_key], uid_of(plan, KEYS[pod_key]), service)
  return {}
end

-- Enforce limits on live Pods from now on: the list of the cluster's Pods is complete.
-- The keys are the live Pods of its namespaces.
local function mark_complete(plan, reading, _, ...)
  local at, details = string.format('%.0f', time_of(hash_of(plan.home), reading)), details_of(plan)
  redis.call('HSET', plan.live_key, 'c:' .. details.cluster, at, 'w:' .. details.cluster, at .. ' ' .. details.counts_apart)
  redis.call('PEXPIRE', plan.live_key, LIVE_TTL_MS)
  for _, live_key in ipairs({...}) do
    redis.call('PEXPIRE', KEYS[live_key], LIVE_TTL_MS)
  end
  return {}
end

-- Forget a page of the cluster's live Pods that count for the service as a whole: its namespaces count apart now. Other
-- clusters of a fleet may still have the former policy. Return the next cursor; '0' at the end.
local function forget_whole(plan, _, _, FORGET_WHOLE_FIELDS)
  local live = module('live')
  local l = live.live_of(plan.live_key)
  if l.count == 0 then
    return {'0'}
  end
  local next_cursor, entries = unpack(redis.call('HSCAN', plan.live_key, cursor, 'MATCH', 'u:*', 'COUNT', 500))
  for index = 1, #entries, 2 do
    local _, cluster = cmsgpack.unpack(entries[index + 1])
    if cluster == details_of(plan).cluster then
      live.remove(l, string.sub(entries[index], 3))
    end
  end
  return {next_cursor}
end

-- Enforce limits on the live Pods of the pool from now on: those of all its members are known.
local function mark_pool_complete(plan, reading, _, MARK_POOL_COMPLETE_FIELDS)
  local now = time_of(hash_of(plan.home), reading)
  redis.call('HSET', KEYS[pool_live_key], 'c:' .. details_of(plan).cluster, string.format('%.0f', now))
  redis.call('PEXPIRE', KEYS[pool_live_key], LIVE_TTL_MS)
  return {}
end

-- Return the namespaces that have had live Pods.
local function list_live_scopes(plan)
  local held, found = redis.call('HGETALL', plan.live_key), {}
  for index = 1, #held, 2 do
    if string.sub(held[index], 1, 2) == 'l:' then
      found[#found + 1] = string.sub(held[index], 3)
    end
  end
  return found
end

-- Return the number of live Pods in each of these hashes. Their keys are followed by their namespaces: one whose hash
-- has expired is forgotten, until it is written again.
local function count_live(plan, _, _, ...)
  local asked, counts, gone = {...}, {}, {}
  local size = #asked / 2
  for index = 1, size do
    local l, namespace = module('live').live_of(KEYS[asked[index]]), asked[size + index]
    counts[index] = l.count
    if l.is_new and namespace ~= '' then
      gone[#gone + 1] = 'l:' .. namespace
    end
  end
  call_with('HDEL', plan.live_key, gone)
  return counts
end

-- Return a page of the cluster's live Pods that have been seen, or are no longer waited for, and the cursor. `show`
-- returns an entry by its uid, amounts and service. `found` is of the pages up to this one, false before the first: the
-- last page corrects what is wrong, because releases up to 0.2 did not count exactly beyond EXACT_AMOUNT_MAX, and left a
-- number and sums that were not those of the Pods when `per` changed.
local function page_of(plan, reading, key, cursor, found, show)
  local now, live = time_of(hash_of(plan.home), reading), module('live')
  local l = live.live_of(key)
  local next_cursor, entries = unpack(redis.call('HSCAN', key, cursor, 'MATCH', 'u:*', 'COUNT', 500))
  found = found or live.begin_scan(l, #entries == 0, now)
  local uids, shown = {}, {}
  for index = 1, #entries, 2 do
    local uid, amounts, cluster, service = string.sub(entries[index], 3), cmsgpack.unpack(entries[index + 1])
    live.scan(found, amounts)
    if cluster == details_of(plan).cluster then
      uids[#uids + 1], shown[#uids + 1] = uid, show(uid, amounts, service)
    end
  end
  local settled = {}
  if #uids > 0 then
    for index, at in ipairs(redis.call('ZMSCORE', plan.waits_key, unpack(uids))) do
      if not at or tonumber(at) <= now - WAITED_US then
        settled[#settled + 1] = shown[index]
      end
    end
  end
  if next_cursor == '0' then
    live.correct(l, found)
  end
  return LIVE_PAGE_ANSWER{members = settled, cursor = next_cursor, found = found}
end

local function list_live(plan, reading, _, LIST_LIVE_FIELDS)
  return page_of(plan, reading, KEYS[live_key], cursor, found, function(uid, amounts)
    return LIVE_POD{uid = uid, amounts = amounts}
  end)
end

local function list_pool_live(plan, reading, _, LIST_POOL_LIVE_FIELDS)
  return page_of(plan, reading, KEYS[pool_live_key], cursor, found, function(uid, amounts, service)
    return POOL_POD{uid = uid, service = service, amounts = amounts}
  end)
end

-- Subtract a bucket's amounts from the sums; true if there were any.
local function forget(sums, amounts)
  local any = false
  for _, amount in pairs(amounts) do
    any = any or amount > 0
  end
  subtract(sums, amounts)
  return any
end

-- Reset a window up to a bucket; true if it held anything.
local function forget_window(h, seconds, last)
  local w, any = h.windows[seconds], false
  if not w then
    return false
  end
  local fields = {}
  for number = w[WINDOW_NEWEST] - LIVE + 1, min(w[WINDOW_NEWEST] - 1, last) do
    fields[#fields + 1] = field_of(seconds, number)
  end
  load(h, fields)
  for _, field in ipairs(fields) do
    any = h.slots[field] and forget(w[WINDOW_SUMS], h.slots[field]) or any
    h.slots[field], h.sets[field], h.dels[field] = false, nil, true
  end
  if w[WINDOW_NEWEST] <= last then
    any = forget(w[WINDOW_SUMS], w[WINDOW_CURRENT]) or any
    for resource in pairs(w[WINDOW_CURRENT]) do
      w[WINDOW_CURRENT][resource] = nil
    end
  end
  return any
end

-- Reset the service's own windows up to a moment, or one of them, once; true if they held anything.
local function reset_windows(plan, reading, _, RESET_WINDOWS_FIELDS)
  local home, h = hash_of(plan.home), hash_of(KEYS[own_key])
  local now, any = time_of(home, reading), false
  settle(home, now)
  settle(h, now)
  local resets, at = resets_of(h), min(asked + home.offset, now)
  for index = 1, #plan.windows, LIMIT_LENGTH do -- of each limit: the second one of a window finds its reset done
    local seconds = plan.windows[index + LIMIT_SECONDS_OFFSET]
    local before = resets[seconds]
    if (not only_seconds or only_seconds == seconds) and (not before or before[RESET_ASKED] < asked) then
      local width = seconds * BUCKET_US_PER_SECOND
      local last = floor(at / width)
      resets[seconds] = RESET{asked = asked, upto = (last + 1) * width - 1}
      h.resets_changed, h.begins = true, true
      written(h, plan, now)
      written(home, plan, now) -- keep the tag's time monotonic
      home.last, home.begins = now, true
      any = forget_window(h, seconds, last) or any
    end
  end
  return {any}
end

return {
  words_of = words_of, observe_clock = observe_clock, find_charge = find_charge, find_charged_us = find_charged_us,
  refund = refund, withdraw = withdraw, resize = resize, book = book, acquire_group = acquire_group, record_outcomes = record_outcomes,
  record_start = record_start, apply_override = apply_override, propose = propose, suppress_quota_events = suppress_quota_events,
  snapshot = snapshot, tick = tick, compare = compare, list_counting_scopes = list_counting_scopes, probe = probe,
  observe = observe, list_overdue = list_overdue, count_settled = count_settled, find_place = find_place,
  stop_waiting = stop_waiting, mark_complete = mark_complete, forget_whole = forget_whole,
  list_live_scopes = list_live_scopes,
  count_live = count_live, list_live = list_live, list_pool_live = list_pool_live, drop_pool_pod = drop_pool_pod,
  mark_pool_complete = mark_pool_complete, reset_windows = reset_windows, show_settled = show_settled,
}
