-- Live Pods: `ledger/live_set.py` and `ledger/live_pods.py`, on Redis.
-- The live Pods of a service, of one of its namespaces, or of a pool are one hash: field "h" is a LIVE_HEAD (`over`: since
-- when; `changes`: since the first list, it grows with each change of a Pod), "u:UID" a Pod's amounts followed by its cluster.
-- In the service's own hash, "c:CLUSTER" is when the list of that cluster's Pods was last known to be complete, "w:CLUSTER"
-- the same with what counted apart then, and "l:NAMESPACE" marks that a hash of that namespace exists.

local function live_of(key)
  local l = lives[key]
  if not l then
    local packed = redis.call('HGET', key, 'h')
    l = {key = key, sums = {}, over = {}, count = 0, pods = {}, changed = {}, is_new = not packed, scope = ''}
    if packed then
      local head = cmsgpack.unpack(packed)
      l.sums, l.over, l.count = head[LIVE_HEAD_SUMS], head[LIVE_HEAD_OVER], head[LIVE_HEAD_COUNT]
      l.changes = head[LIVE_HEAD_CHANGES]
    end
    lives[key] = l
  end
  return l
end

-- Return the amounts of a live Pod, false for any other.
local function held(l, uid)
  if l.pods[uid] == nil then
    local packed = redis.call('HGET', l.key, 'u:' .. uid)
    l.pods[uid] = packed and cmsgpack.unpack(packed)
  end
  return l.pods[uid]
end

local function is_known(plan, now)
  if plan.known == nil then
    local cluster, apart = details_of(plan).cluster, details_of(plan).counts_apart
    local at, marked = unpack(redis.call('HMGET', plan.live_key, 'c:' .. cluster, 'w:' .. cluster))
    -- A controller of release 0.2 and before does not say what counts apart.
    local is_other = at and marked and marked ~= at .. ' ' .. apart and string.sub(marked, 1, #at + 1) == at .. ' '
    plan.known = at and not is_other and now - tonumber(at) < KNOWN_US
  end
  return plan.known
end

local function may_surge(l, resource, hard, has, now)
  return has <= hard or now - (l.over[resource] or now) < SURGE_US
end

-- Return `new` minus `old`, by resource; negative where `old` has more.
local function difference(new, old)
  local more = {}
  for resource, amount in pairs(new) do
    more[resource] = amount - (old[resource] or 0)
  end
  for resource, amount in pairs(old) do
    more[resource] = more[resource] or -amount
  end
  return more
end

local function equal(a, b)
  if not a or not b then
    return not a and not b
  end
  for _, amount in pairs(difference(a, b)) do
    if amount ~= 0 then
      return false
    end
  end
  return true
end

local function add_amounts(l, uid, amounts, more)
  for resource, amount in pairs(more) do
    add(l.sums, resource, amount)
  end
  l.count = l.count + (amounts and 1 or 0) - (l.pods[uid] and 1 or 0)
  l.changes = l.changes and l.changes + 1
  l.pods[uid], l.changed[uid], l.dirty = amounts, true, true
end

-- Add or update a live Pod, with the limited part of its cost.
local function put_live(plan, l, uid, cost, now)
  local amounts, before = {}, held(l, uid)
  for _, limit in ipairs(plan.standing) do
    local resource = limit[STANDING_RESOURCE]
    local amount = cost[resource] or 0
    amounts[resource] = amount > 0 and amount or nil
  end
  if before and equal(amounts, before) then
    return
  end
  local had = {}
  for _, limit in ipairs(plan.standing) do
    had[limit[STANDING_RESOURCE]] = l.sums[limit[STANDING_RESOURCE]] or 0
  end
  add_amounts(l, uid, amounts, difference(amounts, before or {}))
  for _, limit in ipairs(plan.standing) do
    local resource, hard = limit[STANDING_RESOURCE], limit[STANDING_HARD]
    if (l.sums[resource] or 0) <= hard then
      l.over[resource] = nil
    elseif had[resource] <= hard then
      l.over[resource] = now
    else -- of unknown duration if the limit was lowered
      l.over[resource] = l.over[resource] or now
    end
  end
end

local function remove_live(l, uid)
  local before = held(l, uid)
  if before then
    add_amounts(l, uid, false, difference({}, before))
  end
end

-- Return what a list of the Pods begins with, a LIVE_SCAN. What this call has changed is not stored yet, nor listed. Servers
-- of releases up to 0.2 drop `changes`: it begins with the time, so that no number comes again.
local function begin_scan(l, is_empty, now)
  if not (l.changes or l.is_new and is_empty) then
    l.changes, l.dirty = now, true
  end
  local is_stored = l.changes and not next(l.changed)
  return LIVE_SCAN{sums = {}, count = 0, changes = is_stored and l.changes or NEVER}
end

local function scan(found, amounts)
  found[LIVE_SCAN_COUNT] = found[LIVE_SCAN_COUNT] + 1
  for resource, amount in pairs(amounts) do
    add(found[LIVE_SCAN_SUMS], resource, amount)
  end
end

-- Correct the sums and the number after a list of all Pods, unless any came, changed or ended meanwhile.
local function correct(l, found)
  local sums, count = found[LIVE_SCAN_SUMS], found[LIVE_SCAN_COUNT]
  local is_same = found[LIVE_SCAN_CHANGES] == l.changes and not next(l.changed)
  if is_same and not (count == l.count and equal(l.sums, sums)) then
    l.sums, l.count, l.dirty = sums, count, true
  end
end

local function write_live(l)
  local values = {'h', cmsgpack.pack(LIVE_HEAD{sums = l.sums, over = l.over, count = l.count, changes = l.changes})}
  for uid in pairs(l.changed) do
    if l.pods[uid] then
      values[#values + 1] = 'u:' .. uid
      local services = l.services -- of a pool's live Pods
      values[#values + 1] = cmsgpack.pack(l.pods[uid]) .. cmsgpack.pack(l.cluster) .. (services and cmsgpack.pack(services[uid]) or '')
    end
  end
  call_with('HSET', l.key, values)
  if l.is_new and l.scope ~= '' then
    redis.call('HSET', l.index, 'l:' .. l.scope, '')
  end
end

local function delete_gone(l)
  local gone = {}
  for uid in pairs(l.changed) do
    if not l.pods[uid] then
      gone[#gone + 1] = 'u:' .. uid
    end
  end
  call_with('HDEL', l.key, gone)
end
