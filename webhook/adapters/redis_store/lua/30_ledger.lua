-- Operations on one Pod and its service's counters: `ledger/operations.py` and `ledger/tag_state.py`, on Redis.
-- A plan has its keys: home, the hash with the tag's clock (the pool's, or the service's own); index, the service's own
-- hash, where "n:NAMESPACE" is the time until which that namespace counts; and the breaker. An operation adds the hash
-- with the service's own rings (or its namespace's, where each counts apart), the uid record, and the live Pods where
-- they are limited.

local BREAKER, QUOTA = 1, 2 -- the guard that denied; `would` is their sum

-- A uid record: {expires, charged_at, generation, probe, refunded, service, scope, fleet, cost, high_water, windows,
-- source, settled}. `source` is the Pod's creator, only if its breaker counts outcomes; `settled`: its outcome was
-- recorded. `windows` is the plan's list of them as packed then, for a refund under a newer plan. The record is
-- followed by the Pod's place, namespace/name, unpacked: many Pods of a call share one record apart from the place.
local EXPIRES, CHARGED_AT, GENERATION, PROBE, REFUNDED, SERVICE, SCOPE, FLEET, COST, HIGH, WINDOWS, SOURCE, SETTLED =
  1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13
local NOTHING = {} -- never written to
local pods, places = {}, {}
local costs = {} -- decoded, by their text: many Pods of a call have the same cost
local notes = {} -- of namespaces, by index

local function cost_of(text)
  local cost = costs[text] or cjson.decode(text)
  costs[text] = cost
  return cost
end

local function record_of(key, strings)
  if pods[key] == nil then
    local packed, p, behind = strings[key], {}, -1
    if packed then
      behind, p.record = cmsgpack.unpack_one(packed)
    end
    pods[key], places[key] = p, behind > 0 and string.sub(packed, behind + 1) or ''
  end
  return pods[key]
end

local function pod_of(key, strings, now)
  local p = record_of(key, strings).record
  return p and p[EXPIRES] > now and not p[REFUNDED] and p or nil
end

local function remember(key, p, now, place)
  pods[key], places[key] = {record = p, now = now}, place
end

local function new_record(plan, at, generation, scope, cost_text, source)
  return {
    at + plan.remember, at, generation, false, false, plan.service, scope, plan.fleet, cost_text, false, plan.packed_windows,
    source, false,
  }
end

local function shown(home, at)
  return at > 0 and at - home.offset or at
end

local SUM, RESOURCE, HARD, BUCKET, HASH, SECONDS = 1, 2, 3, 4, 5, 6 -- of a column: one limit with its counters

local function add_columns(b, h, windows)
  local columns = b.columns
  for _, window in ipairs(windows) do
    local w = window_of(h, window[1], b.now)
    for _, limit in ipairs(window[2]) do
      columns[#columns + 1] = {w[SUMS], limit[1], limit[2], w[CURRENT], h, window[1]}
      b.blank[#columns] = 0
    end
  end
end

-- Limits on live Pods have no column: they follow all others.
local function add_live(b, plan, live_key)
  b.live, b.known, b.standing = live_of(live_key), is_known(plan, b.now), plan.standing
  b.live.cluster, b.live.index, b.live.scope = plan.cluster, plan.live_key, string.sub(live_key, #plan.live_key + 2)
  for _ in ipairs(plan.standing) do
    b.blank[#b.blank + 1] = 0
  end
end

-- Bind a plan to its hashes, once per call: the time, and a column for each limit, in the plan's order.
local function bound_of(plan, own_key, reading, writes, live_key)
  local home, own = hash_of(plan.home), hash_of(own_key)
  if writes then
    observe(home, reading)
  end
  local b = plan.bound[own_key]
  if not b then
    b = {home = home, own = own, now = time_of(home, reading), columns = {}, blank = {}, records = {}}
    settle(home, b.now)
    settle(own, b.now)
    add_columns(b, own, plan.windows)
    b.own_columns = #b.columns
    if plan.pool then
      add_columns(b, home, plan.pool)
    end
    if plan.standing then
      add_live(b, plan, live_key)
    end
    plan.bound[own_key] = b
  end
  return b
end

-- Check `live_cost` against the limits on live Pods; extends `used` and `over`.
local function judge_live(b, live_cost, used, over)
  for index, limit in ipairs(b.standing) do
    local resource, hard, surge, number = limit[1], limit[2], limit[3], #b.columns + index
    local has, asked = b.live.sums[resource] or 0, live_cost[resource] or 0
    local room = may_surge(b.live, resource, hard, has, b.now) and surge or 0
    used[number] = has
    if asked > 0 and b.known and asked > hard + room - has then
      over = over == NOTHING and {} or over
      over[#over + 1] = {number, has, asked, asked > hard + surge and NEVER or 0, room}
    end
  end
  return used, over
end

-- Check `cost` against every limit, and `live_cost` against those on live Pods. Return what each limit holds, and
-- {number, used, asked, free_at, surge room} of each limit that is exceeded.
local function judge(b, cost, live_cost)
  local used, over, columns = {unpack(b.blank)}, NOTHING, b.columns -- preallocated: a table that grows costs more
  for number = 1, #columns do
    local column = columns[number]
    local resource = column[RESOURCE]
    local has, asked = column[SUM][resource] or 0, cost[resource] or 0
    used[number] = has
    if asked > 0 and asked > column[HARD] - has then -- no addition: a double might not hold the sum exactly
      local free = free_at(column[HASH], column[SECONDS], resource, column[HARD], asked)
      over = over == NOTHING and {} or over
      over[#over + 1] = {number, has, asked, shown(b.home, free), 0}
    end
  end
  if b.live then
    return judge_live(b, live_cost, used, over)
  end
  return used, over
end

-- Whether a limit of the service itself is exceeded, of its windows or on its live Pods.
local function is_of_its_own(b, over)
  for _, use in ipairs(over) do
    if use[1] <= b.own_columns or use[1] > #b.columns then
      return true
    end
  end
  return false
end

local function written(h, plan, now)
  h.dirty, h.ttl = true, max(h.ttl or 0, plan.ttl)
  h.born = h.born > 0 and h.born or now
end

local function note_scope(index, scope, counts_until)
  local noted = notes[index] or {}
  notes[index], noted[scope] = noted, max(noted[scope] or 0, counts_until)
end

-- Return until when a charge to a namespace counts there.
local function counts_until(b, cost, at)
  local latest = 0
  for _, column in ipairs(b.columns) do
    if column[HASH] == b.own and (cost[column[RESOURCE]] or 0) > 0 then
      local width = column[SECONDS] * BUCKET_US_PER_SECOND
      latest = max(latest, (floor(at / width) + LIVE) * width)
    end
  end
  return latest
end

-- Count `cost` as of a moment, now or before, in every window that limits any of it; updates `used`.
local function charge(plan, b, scope, cost, at, used)
  local own, home, columns, is_now = b.own, b.home, b.columns, at == b.now
  local any, of_own, is_first = false, false, false
  for number = 1, #columns do
    local column = columns[number]
    local resource = column[RESOURCE]
    local amount = cost[resource] or 0
    local bucket = amount > 0 and (is_now and column[BUCKET] or bucket_at(column[HASH], column[SECONDS], at))
    if bucket then
      local sums, held = column[SUM], bucket[resource]
      used[number] = used[number] + amount
      sums[resource] = (sums[resource] or 0) + amount
      bucket[resource] = (held or 0) + amount
      any, of_own, is_first = true, of_own or column[HASH] == own, is_first or not held
    end
  end
  if of_own then
    written(own, plan, b.now)
  end
  if any then
    written(home, plan, b.now)
    home.last = b.now
    home.begins = home.begins or own.begins or own.begun
  end
  if of_own and scope ~= '' and (is_first or not is_now) then -- else an earlier charge of the same bucket noted it
    note_scope(plan.index, scope, counts_until(b, cost, at))
  end
end

-- Add a Pod to the live ones, and mark it as not seen yet; updates `used`.
local function add_live_and_wait(plan, b, uid, cost, at, used)
  if b.live then
    put_live(plan, b.live, uid, cost, b.now)
    for index, limit in ipairs(b.standing) do
      used[#b.columns + index] = b.live.sums[limit[1]] or 0
    end
  end
  if at then
    wait_for(plan.waits_key, uid, at)
  end
end

-- Return what a Pod adds to the live amounts: its cost minus what it holds, or minus `unless_held` if it is not live.
local function more_live(b, uid, cost, unless_held)
  return b.live and difference(cost, held(b.live, uid) or unless_held) or NOTHING
end

-- Return (refused, would) after a guard's objection: a guard that is not enforced denies nothing but is reported.
local function objection(guard, enforced, would)
  if enforced then
    return guard, would
  end
  return 0, would + guard
end

local function seen(r, plan, home, now)
  local v = view(r, plan.breaker, now)
  v[3], v[4], v[8] = shown(home, v[3]), shown(home, v[4]), v[8] and shown(home, v[8])
  return v
end

local function moved(moves, home)
  for _, move in ipairs(moves) do
    move[3] = shown(home, move[3])
  end
  return moves
end

local function uid_of(plan, pod_key)
  return string.sub(pod_key, plan.uid_at)
end

local function resize(plan, b, pod_key, scope, place, cost, peek, old, strings)
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
  local live_cost = more_live(b, uid, cost, old)
  local used, over = judge(b, more, live_cost)
  local refused, would = 0, 0
  if #over > 0 then
    refused, would = objection(QUOTA, plan.quota_enforced, would)
  end
  local r = glance(plan.breaker_key, strings)
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
    add_live_and_wait(plan, b, uid, cost, false, used)
  end
  if plan.breaker then
    advance(r, plan.breaker, now, {})
  end
  local home, breaker = b.home, plan.breaker and seen(r, plan, b.home, now)
  return {shown(home, now), refused, would, writes and any, false, used, over, breaker, false, home.born}
end

-- Store the record of a Pod that is no probe. Pods of a call with the same cost share one record, packed once.
local function remember_shared(plan, b, pod_key, generation, scope, cost_text, source, place)
  local shared = b.records[cost_text]
  if not shared or shared.record[GENERATION] ~= generation or shared.record[SOURCE] ~= source then
    shared = {record = new_record(plan, b.now, generation, scope, cost_text, source), now = b.now}
    b.records[cost_text] = shared
  end
  pods[pod_key], places[pod_key] = shared, place
end

-- Check one Pod and, unless `peek`, charge it: all or nothing, each uid once.
local function acquire(plan, operation, reading, strings)
  local _, _, own_key, pod_key, live_key, scope, place, cost_text, source, peek, old = unpack(operation)
  local cost = cost_of(cost_text)
  own_key, pod_key = KEYS[own_key], KEYS[pod_key]
  local b = bound_of(plan, own_key, reading, not peek, KEYS[live_key])
  if old then
    return resize(plan, b, pod_key, scope, place, cost, peek, old, strings)
  end
  local home, now = b.home, b.now
  local known = pod_of(pod_key, strings, now)
  local r, moves = ((known or peek) and glance or breaker_of)(plan.breaker_key, strings), NOTHING
  if plan.breaker then
    moves = {}
    advance(r, plan.breaker, now, moves)
  end
  if known then
    local used = judge(b, NOTHING, NOTHING)
    return {shown(home, now), 0, 0, false, true, used, NOTHING, plan.breaker and seen(r, plan, home, now), false, home.born}
  end

  local refused, would = 0, 0
  if plan.breaker and not admits(r, plan.breaker, now, source) and not plan.breaker.degrades then
    refused, would = objection(BREAKER, plan.breaker_enforced, would)
  end
  local asked, uid = refused == 0 and cost or NOTHING, uid_of(plan, pod_key)
  local live_cost = more_live(b, uid, asked, NOTHING)
  local used, over = judge(b, asked, live_cost)
  if #over > 0 then
    refused, would = objection(QUOTA, plan.quota_enforced, would)
  end
  if not peek then
    if refused == 0 then
      charge(plan, b, scope, cost, now, used)
      local generation, maker = r.generation, plan.breaker and plan.breaker.has_outcomes and source or ''
      if plan.breaker and take_probe(r, plan.breaker, now, uid, source, moves) then
        local p = new_record(plan, now, generation, scope, cost_text, maker)
        p[PROBE] = true
        remember(pod_key, p, now, place)
      else
        remember_shared(plan, b, pod_key, generation, scope, cost_text, maker, place)
      end
      add_live_and_wait(plan, b, uid, cost, now, used)
    elseif refused == QUOTA and plan.breaker and is_of_its_own(b, over) then
      quota_event(r, plan.breaker, now, source, moves) -- if only the pool is exceeded, another member may be the cause
    end
    belongs(r, plan, home, now)
  end
  local breaker = plan.breaker and seen(r, plan, home, now)
  local reported = not peek and #moves > 0 and moved(moves, home)
  return {shown(home, now), refused, would, refused == 0 and not peek, false, used, over, breaker, reported, home.born}
end

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
    give_back_probe(r, uid)
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
