-- Limits on the live Pods of a pool, beside those of a service: `ledger/pool_live_set.py`, on Redis.
-- The live Pods of a pool are one hash, as those of a service are (`live/10_live.lua`), and its "c:CLUSTER" is of the Pods
-- of all members. After its cluster, an entry has the service that the Pod counts for. Its amounts are also under the
-- counters of guarantees, as in a bucket of the pool's windows.
-- This is module `live` for plans with such a limit: what a Pod adds to the pool's is under the number of the limit.

local live, guarantees = module('live'), module('guarantees')

local function pool_of(key)
  local l = live.live_of(key)
  l.services = l.services or {}
  return l
end

-- Return the amounts of a live Pod, false for any other, and its service.
local function held(l, uid)
  if l.pods[uid] == nil then
    local packed = redis.call('HGET', l.key, 'u:' .. uid)
    if packed then
      local amounts, _, service = cmsgpack.unpack(packed)
      l.pods[uid], l.services[uid] = amounts, service
    else
      l.pods[uid] = false
    end
  end
  return l.pods[uid], l.services[uid]
end

local function is_known(plan, now)
  local details = details_of(plan)
  local at = redis.call('HGET', details.pool_live, 'c:' .. details.cluster)
  return at and now - tonumber(at) < KNOWN_US
end

local function bind(b, plan, live_key)
  local details = details_of(plan)
  b.live, b.live_set, b.service, b.standing = 'pools', false, plan.service, plan.standing
  if #plan.standing > 0 then
    live.bind_own(b, plan, live_key)
  end
  b.pooled, b.pool_known, b.pool_standing = pool_of(details.pool_live), is_known(plan, b.now), details.pool_standing
  b.pooled.cluster = details.cluster
end

-- Return what others have left of their guarantees from a Pod that asks for so much; nothing within the own guarantee.
local function kept_from(kept, sums, asked)
  if asked <= kept[GUARANTEE_HARD] - guarantees.own_of(kept, sums) then
    return 0
  end
  return guarantees.kept_for_others(kept, sums)
end

-- Check what a Pod adds against the limits on live Pods; extends `used` and `over`.
local function judge_pool(b, live_cost, used, over)
  used, over = live.judge(b, live_cost, used, over)
  local sums, first = b.pooled.sums, b.limits + #b.standing
  for index, limit in ipairs(b.pool_standing) do
    local resource, hard, kept = limit[POOL_STANDING_RESOURCE], limit[POOL_STANDING_HARD], limit[POOL_STANDING_KEPT]
    local has, asked = sums[resource] or 0, live_cost[index] or 0
    used[first + index] = has
    if asked > 0 and b.pool_known and asked > hard - kept_from(kept, sums, asked) - has then
      over = over == NOTHING and {} or over
      local free_at = guarantees.fits(resource, hard, asked, kept, NOTHING) and 0 or NEVER
      over[#over + 1] = OVER{
        number = first + index, used = has, asked = asked, free_at_us = free_at, surge = 0,
        own_used = guarantees.own_of(kept, sums), kept = guarantees.kept_for_others(kept, sums),
      }
    end
  end
  return used, over
end

-- Return what counts of a cost in the limits of the pool.
local function amounts_of(b, cost)
  local amounts = {}
  for _, limit in ipairs(b.pool_standing) do
    local resource, counter = limit[POOL_STANDING_RESOURCE], limit[POOL_STANDING_KEPT][GUARANTEE_COUNTER]
    local amount = cost[resource] or 0
    if amount > 0 then
      amounts[resource] = amount
      if counter then
        amounts[counter] = amount
      end
    end
  end
  return amounts
end

local function put_into_pool(b, uid, cost)
  local l, amounts = b.pooled, amounts_of(b, cost)
  local before, service = held(l, uid)
  if not (before and service == b.service and live.equal(amounts, before)) then
    live.add_amounts(l, uid, amounts, live.difference(amounts, before or {}))
    l.services[uid] = b.service
  end
end

-- Remove a live Pod of a service from those of a pool.
local function remove_from_pool(key, uid, service)
  local l = pool_of(key)
  local before, owner = held(l, uid)
  if before and owner == service then
    live.add_amounts(l, uid, false, live.difference({}, before))
  end
end

local function add_to_pool(b, uid, cost, used)
  put_into_pool(b, uid, cost)
  for index, limit in ipairs(b.pool_standing) do
    used[b.limits + #b.standing + index] = b.pooled.sums[limit[POOL_STANDING_RESOURCE]] or 0
  end
end

-- Add a Pod to the live ones; updates `used`.
local function add(plan, b, uid, cost, used)
  if b.live_set then
    live.add(plan, b, uid, cost, used)
  end
  add_to_pool(b, uid, cost, used)
end

-- Add or update a live Pod that keeps what it holds, or `unless_held` if it is not live; updates `used`.
local function raise(plan, b, uid, cost, unless_held, used)
  if b.live_set then
    live.raise(plan, b, uid, cost, unless_held, used)
  end
  add_to_pool(b, uid, live.larger(cost, held(b.pooled, uid) or unless_held), used)
end

local function more(b, uid, cost, unless_held)
  local found = b.live_set and live.more(b, uid, cost, unless_held) or {}
  local before = held(b.pooled, uid) or unless_held
  for index, limit in ipairs(b.pool_standing) do
    local resource = limit[POOL_STANDING_RESOURCE]
    found[index] = (cost[resource] or 0) - (before[resource] or 0)
  end
  return found
end

-- Return the amounts of a live Pod that counts for the service.
local function held_for(b, uid)
  local amounts, service = held(b.pooled, uid)
  return service == b.service and amounts
end

local function is_held(b, uid)
  return b.live_set and live.is_held(b, uid) or held_for(b, uid)
end

-- Apply the watch's state of a Pod; true if that changed anything.
local function update(plan, b, uid, cost, is_live, now)
  local changed = b.live_set and live.update(plan, b, uid, cost, is_live, now)
  local before = held_for(b, uid)
  if is_live then
    put_into_pool(b, uid, cost)
  else
    remove_from_pool(b.pooled.key, uid, b.service)
  end
  return changed or not live.equal(held_for(b, uid), before)
end

-- Append the figures of each limit, and of each the plan's own use and what others have left of their guarantees.
local function show(plan, figures, uses)
  local details = details_of(plan)
  local sums = pool_of(details.pool_live).sums
  for _, limit in ipairs(details.pool_standing) do
    local kept = limit[POOL_STANDING_KEPT]
    figures[#figures + 1], figures[#figures + 2] = FIGURES_VALUES{used = sums[limit[POOL_STANDING_RESOURCE]] or 0, more = 0}
    uses[#uses + 1], uses[#uses + 2] = guarantees.own_of(kept, sums), guarantees.kept_for_others(kept, sums)
  end
end

return {
  bind = bind, judge = judge_pool, add = add, raise = raise, more = more, is_held = is_held, update = update, is_known = is_known,
  show = show, remove = remove_from_pool,
}
