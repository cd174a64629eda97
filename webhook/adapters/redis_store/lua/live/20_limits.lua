-- Limits on live Pods: `ledger/tag_state.py`, on Redis.

local function bind(b, plan, live_key)
  b.live, b.known, b.standing = live_of(live_key), is_known(plan, b.now), plan.standing
  b.live.cluster, b.live.index, b.live.scope = details_of(plan).cluster, plan.live_key, string.sub(live_key, #plan.live_key + 2)
end

-- Check `live_cost` against the limits on live Pods; extends `used` and `over`.
local function judge_live(b, live_cost, used, over)
  for index, limit in ipairs(b.standing) do
    local resource, hard, surge = limit[STANDING_RESOURCE], limit[STANDING_HARD], limit[STANDING_SURGE]
    local number = b.limits + index
    local has, asked = b.live.sums[resource] or 0, live_cost[resource] or 0
    local room = may_surge(b.live, resource, hard, has, b.now) and surge or 0
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
  put_live(plan, b.live, uid, cost, b.now)
  for index, limit in ipairs(b.standing) do
    used[b.limits + index] = b.live.sums[limit[STANDING_RESOURCE]] or 0
  end
end

-- Return what a Pod adds to the live amounts: its cost minus what it holds, or minus `unless_held` if it is not live.
local function more_live(b, uid, cost, unless_held)
  return difference(cost, held(b.live, uid) or unless_held)
end

return {
  bind = bind, judge = judge_live, add = add_live, more = more_live, live_of = live_of, held = held, put = put_live,
  remove = remove_live, equal = equal, is_known = is_known, may_surge = may_surge, write = write_live,
  delete_gone = delete_gone,
}
