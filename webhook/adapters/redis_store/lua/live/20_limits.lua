-- Limits on live Pods: `ledger/tag_state.py`, on Redis.

-- Bind a plan to the live Pods of its service. `b.live` is the module that judges them.
local function bind_own(b, plan, live_key)
  local l = live_of(live_key)
  b.live, b.live_set, b.known, b.standing = b.live or 'live', l, is_known(plan, b.now), plan.standing
  l.cluster, l.index, l.scope = details_of(plan).cluster, plan.live_key, string.sub(live_key, #plan.live_key + 2)
end

local function bind(b, plan, live_key)
  local bind_to = details_of(plan).pool_standing and module('pools').bind or bind_own
  bind_to(b, plan, live_key)
end

-- Check `live_cost` against the limits on live Pods; extends `used` and `over`.
local function judge_live(b, live_cost, used, over)
  for index, limit in ipairs(b.standing) do
    local resource, hard, surge = limit[STANDING_RESOURCE], limit[STANDING_HARD], limit[STANDING_SURGE]
    local number = b.limits + index
    local has, asked = b.live_set.sums[resource] or 0, live_cost[resource] or 0
    local room = may_surge(b.live_set, resource, hard, has, b.now) and surge or 0
    used[number] = has
    if asked > 0 and b.known and asked > hard + room - has then
      over = over == NOTHING and {} or over
      local free_at = asked > hard + surge and NEVER or 0
      over[#over + 1] = OVER{number = number, used = has, asked = asked, free_at_us = free_at, surge = room, own_used = 0, kept = 0}
    end
  end
  return used, over
end

-- Add a Pod to the live ones; updates `used`.
local function add_live(plan, b, uid, cost, used)
  put_live(plan, b.live_set, uid, cost, b.now)
  for index, limit in ipairs(b.standing) do
    used[b.limits + index] = b.live_set.sums[limit[STANDING_RESOURCE]] or 0
  end
end

-- Return a cost with no amount below what is held.
local function larger(cost, held_amounts)
  local amounts = {}
  for resource, amount in pairs(cost) do
    amounts[resource] = max(amount, held_amounts[resource] or 0)
  end
  return amounts
end

-- Add or update a live Pod that keeps what it holds, or `unless_held` if it is not live; updates `used`.
local function raise_live(plan, b, uid, cost, unless_held, used)
  add_live(plan, b, uid, larger(cost, held(b.live_set, uid) or unless_held), used)
end

-- Return what a Pod adds to the live amounts: its cost minus what it holds, or minus `unless_held` if it is not live.
local function more_live(b, uid, cost, unless_held)
  return difference(cost, held(b.live_set, uid) or unless_held)
end

local function is_held(b, uid)
  return held(b.live_set, uid)
end

-- Apply the watch's state of a Pod; true if that changed anything.
local function update(plan, b, uid, cost, is_live, now)
  local l = b.live_set
  local before = held(l, uid)
  if is_live then
    put_live(plan, l, uid, cost, now)
  else
    remove_live(l, uid)
  end
  return not equal(held(l, uid), before)
end

return {
  bind = bind, bind_own = bind_own, judge = judge_live, add = add_live, raise = raise_live, larger = larger,
  more = more_live, live_of = live_of, is_held = is_held, update = update, remove = remove_live, equal = equal,
  difference = difference, add_amounts = add_amounts, is_known = is_known, may_surge = may_surge,
  begin_scan = begin_scan, scan = scan, correct = correct, write = write_live, delete_gone = delete_gone,
}
