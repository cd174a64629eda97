-- Limits of a plan, bound to their counters, and whether a Pod exceeds them: `ledger/tag_state.py`, on Redis.
-- A plan has its keys: home, the hash with the tag's clock (the pool's, or the service's own); index, the service's own
-- hash, where "n:NAMESPACE" is the time until which that namespace counts; and the breaker. An operation adds the hash
-- with the service's own rings (or its namespace's, where each counts apart), the uid record, and the live Pods where
-- they are limited.

-- Add a column for each limit; `limits` is {seconds, resource, hard, ...}, the limits of a window one after another.
local function add_columns(b, h, limits)
  local columns, number, last, w = b.columns, #b.columns, false, false
  for index = 1, #limits, 3 do
    local seconds = limits[index]
    if seconds ~= last then
      last, w = seconds, h.windows[seconds]
      if not w then -- an empty one is not written
        w = {floor(b.now / (seconds * BUCKET_US_PER_SECOND)), {}, {}}
        h.windows[seconds], h.begins = w, true
      end
    end
    number = number + 1
    columns[number] = {w[SUMS], limits[index + 1], limits[index + 2], w[CURRENT], h, seconds}
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
    b = {
      home = home, own = own, now = time_of(home, reading), columns = {}, own_columns = 0, records = {}, live = false,
    }
    settle(home, b.now)
    settle(own, b.now)
    add_columns(b, own, plan.windows)
    b.own_columns = #b.columns
    if plan.pool then
      add_columns(b, home, plan.pool)
    end
    if plan.standing then
      module('live').bind(b, plan, live_key)
    end
    plan.bound[own_key] = b
  end
  return b
end

-- Check `cost` against every limit, and `live_cost` against those on live Pods. Return what each limit holds, and
-- {number, used, asked, free_at, surge room} of each limit that is exceeded.
local function judge(b, cost, live_cost)
  local columns = b.columns
  local used, over = {unpack(columns)}, NOTHING -- preallocated, every entry is replaced: a table that grows costs more
  for number = 1, #columns do
    local column = columns[number]
    local resource = column[RESOURCE]
    local has, asked = column[SUM][resource] or 0, cost[resource] or 0
    used[number] = has
    if asked > 0 and asked > column[HARD] - has then -- no addition: a double might not hold the sum exactly
      local free = module('refusals').free_at(column[HASH], column[SECONDS], resource, column[HARD], asked)
      over = over == NOTHING and {} or over
      over[#over + 1] = {number, has, asked, shown(b.home, free), 0}
    end
  end
  if b.live then
    return module('live').judge(b, live_cost, used, over)
  end
  return used, over
end
