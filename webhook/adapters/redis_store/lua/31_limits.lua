-- Limits of a plan, bound to their counters, and whether a Pod exceeds them: `ledger/tag_state.py`, on Redis.
-- A plan has its keys: home, the hash with the tag's clock (the pool's, or the service's own); index, the service's own
-- hash, where "n:NAMESPACE" is the time until which that namespace counts; and the breaker. An operation adds the hash
-- with the service's own rings (or its namespace's, where each counts apart), the uid record, and the live Pods where
-- they are limited.

-- Limits are one flat list of LIMIT records, those of a window one after another; first the service's own, then the
-- pool's, and those on live Pods last. They have numbers in this order.

-- Bind a plan to its hashes, once per call, and to the time.
local function bound_of(plan, own_key, reading, writes, live_key)
  local home, own = hash_of(plan.home), hash_of(own_key)
  if writes and (home.behind or home.last - home.offset > reading) then
    module('operations').observe_clock(home, reading)
  end
  local b = plan.bound[own_key]
  if not b then
    local now, pool = time_of(home, reading), plan.pool
    local own_limits = #plan.windows / LIMIT_LENGTH
    b = {
      home = home, own = own, now = now, windows = plan.windows, pool = pool, own_limits = own_limits,
      limits = own_limits + (pool and #pool / LIMIT_LENGTH or 0), records = {}, live = false,
      guarantees = plan.guarantees,
    }
    -- Once a second of the tag's clock, not in each call.
    expiring[plan.waits_key] = expiring[plan.waits_key] or floor(home.last / 1000000) < floor(now / 1000000)
    settle(home, now)
    settle(own, now)
    if plan.standing then
      module('live').bind(b, plan, live_key)
    end
    plan.bound[own_key] = b
  end
  return b
end

-- Check `cost` against every limit, and `live_cost` against those on live Pods, before any `charge`. Return what each
-- limit holds, and an OVER for each limit that is exceeded.
local function judge(b, cost, live_cost)
  local h, limits, number, over, guarantees = b.own, b.windows, 0, NOTHING, false
  -- Preallocated, every entry is replaced: a table that grows costs more, and so does a table for each limit.
  local used = {unpack(limits, 1, b.own_limits)}
  while limits do
    local last, sums = false, false
    for index = 1, #limits, LIMIT_LENGTH do
      local seconds, resource = limits[index + LIMIT_SECONDS_OFFSET], limits[index + LIMIT_RESOURCE_OFFSET]
      local hard = limits[index + LIMIT_HARD_OFFSET]
      if seconds ~= last then
        local w = h.windows[seconds]
        if not w then -- an empty one is not written
          w = WINDOW{newest = floor(b.now / (seconds * BUCKET_US_PER_SECOND)), current = {}, sums = {}}
          h.windows[seconds], h.begins = w, true
        end
        last, sums = seconds, w[WINDOW_SUMS]
      end
      number = number + 1
      local has, asked = sums[resource] or 0, cost[resource] or 0
      used[number] = has
      local kept = guarantees and guarantees[number - b.own_limits]
      -- Beyond its own guarantee, a member leaves what others have left of theirs.
      if kept and asked > kept[GUARANTEE_HARD] - (sums[kept[GUARANTEE_COUNTER]] or 0) then
        for at = GUARANTEE_LENGTH + 1, #kept, GUARANTEE_LENGTH do
          hard = hard - max(0, kept[at + GUARANTEE_HARD_OFFSET] - (sums[kept[at]] or 0))
        end
      end
      if asked > 0 and asked > hard - has then -- no addition: a double might not hold the sum exactly
        over = over == NOTHING and {} or over
        if kept then
          over[#over + 1] = module('guarantees').over(b, h, seconds, limits, index, number, kept, asked)
        else
          local free = module('refusals').free_at(h, seconds, resource, hard, asked)
          over[#over + 1] = OVER{
            number = number, used = has, asked = asked, free_at_us = shown(b.home, free), surge = 0, own_used = 0, kept = 0,
          }
        end
      end
    end
    guarantees, h, limits = b.guarantees, b.home, h ~= b.home and b.pool
  end
  if b.live then
    return module(b.live).judge(b, live_cost, used, over)
  end
  return used, over
end
