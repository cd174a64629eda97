-- How a service stands, what its breaker hears, and what the time alone brings about.

local function outcome(plan, operation, reading, strings)
  local home, moves = hash_of(plan.home), {}
  local now = time_of(home, reading)
  local r = breaker_of(plan.breaker_key, strings)
  advance(r, plan.breaker, now, moves)
  heard(r, plan.breaker, now, operation[3], moves)
  r.ttl = plan.breaker_ttl
  return {moved(moves, home), seen(r, home, now), shown(home, now)}
end

local function stand(h, home, windows)
  local figures = {}
  for _, window in ipairs(windows) do
    local w = h.windows[window[1]]
    for _, limit in ipairs(window[2]) do
      local used = w and w[SUMS][limit[1]] or 0
      local free = used + 1 > limit[2] and shown(home, free_at(h, window[1], limit[1], limit[2], 1)) or 0
      figures[#figures + 1], figures[#figures + 2] = used, free
    end
  end
  return figures
end

-- Say how the service stands; writes nothing. One unit is asked of each limit, to say when any is free.
local function look(plan, operation, reading, strings)
  local home = hash_of(plan.home)
  local now = time_of(home, reading)
  settle(home, now)
  local uses, step = {}, plan.standing and 2 or 1
  for index = 3, #operation, step do
    local figures = stand(settle(hash_of(KEYS[operation[index]]), now), home, plan.windows)
    for _, limit in ipairs(plan.standing or {}) do
      local l = live_of(KEYS[operation[index + 1]])
      local has = l.sums[limit[1]] or 0
      figures[#figures + 1] = has
      figures[#figures + 1] = may_surge(l, limit[1], limit[2], has, now) and limit[3] or 0
    end
    uses[#uses + 1] = figures
  end
  local breaker = false
  if plan.breaker then
    local r = glance(plan.breaker_key, strings)
    advance(r, plan.breaker, now, {})
    breaker = seen(r, home, now)
  end
  local known = plan.standing and is_known(plan, now) or false
  return {shown(home, now), uses, plan.pool and stand(home, home, plan.pool) or {}, breaker, known}
end

-- Do what the time alone brings about under the policy of today.
local function tick(plan, _, reading, strings)
  local home, moves = hash_of(plan.home), {}
  local now = time_of(home, reading)
  local r = breaker_of(plan.breaker_key, strings)
  r.ttl = plan.breaker_ttl
  if not plan.breaker then
    restart(r)
    return {moves, false, shown(home, now)}
  end
  advance(r, plan.breaker, now, moves)
  return {moved(moves, home), seen(r, home, now), shown(home, now)}
end

-- Return the namespaces in which anything counts, and forget those in which nothing has for long.
local function scopes(plan, _, reading)
  local now = time_of(hash_of(plan.home), reading)
  local found = redis.call('HGETALL', plan.index)
  local counting, done = {}, {}
  for index = 1, #found, 2 do
    local field = found[index]
    if string.sub(field, 1, 2) == 'n:' then
      local left_us = now - tonumber(found[index + 1])
      if left_us < 0 then
        counting[#counting + 1] = field
      elseif left_us >= LONG_US then
        done[#done + 1] = field
      end
    end
  end
  if #done > 0 then
    redis.call('HDEL', plan.index, unpack(done))
  end
  for index, field in ipairs(counting) do
    counting[index] = string.sub(field, 3)
  end
  return {counting}
end

-- Find out whether writes are taken.
local function probe(_, operation)
  redis.call('SET', KEYS[operation[3]], '', 'PX', '1000')
  return {}
end
