-- Limits of a plan, bound to their counters, and whether a Pod exceeds them: `ledger/tag_state.py`, on Redis.
-- A plan has its keys: home, the hash with the tag's clock (the pool's, or the service's own); index, the service's own
-- hash, where "n:NAMESPACE" is the time until which that namespace counts; and the breaker. An operation adds the hash
-- with the service's own rings (or its namespace's, where each counts apart), the uid record, and the live Pods where
-- they are limited.

local NOTHING = {} -- never written to
local SUM, RESOURCE, HARD, BUCKET, HASH, SECONDS = 1, 2, 3, 4, 5, 6 -- of a column: one limit with its counters

local function shown(home, at)
  return at > 0 and at - home.offset or at
end

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
