-- Charges of a Pod to its windows and to the live Pods: `ledger/charge.py` and `ledger/tag_state.py`, on Redis.

local function written(h, plan, now)
  h.dirty, h.ttl = true, max(h.ttl or 0, plan.ttl)
  h.born = h.born > 0 and h.born or now
end

-- Note until when a charge to a namespace counts there.
local function note_scope(b, index_key, scope, cost, at)
  local latest, limits = 0, b.windows
  for index = 1, #limits, LIMIT_LENGTH do
    if (cost[limits[index + LIMIT_RESOURCE_OFFSET]] or 0) > 0 then
      local width = limits[index + LIMIT_SECONDS_OFFSET] * BUCKET_US_PER_SECOND
      latest = max(latest, (floor(at / width) + LIVE) * width)
    end
  end
  local noted = notes[index_key] or {}
  notes[index_key], noted[scope] = noted, max(noted[scope] or 0, latest)
end

-- Count `cost` as of a moment, now or before, in every window that limits any of it; updates `used`.
local function charge(plan, b, scope, cost, at, used)
  local own, home, is_now = b.own, b.home, at == b.now
  local any, of_own, is_first = false, false, false
  local h, limits, number, guarantees = own, b.windows, 0, false
  while limits do
    local last, sums, current = false, false, false
    for index = 1, #limits, LIMIT_LENGTH do
      local seconds, resource = limits[index + LIMIT_SECONDS_OFFSET], limits[index + LIMIT_RESOURCE_OFFSET]
      if seconds ~= last then
        local w = h.windows[seconds]
        last, sums, current = seconds, w[WINDOW_SUMS], w[WINDOW_CURRENT]
      end
      number = number + 1
      local amount = cost[resource] or 0
      local bucket = amount > 0 and (is_now and current or module('refusals').bucket_at(h, seconds, at))
      if bucket then
        any, of_own, is_first = true, of_own or h == own, is_first or not bucket[resource]
        add(sums, resource, amount)
        add(bucket, resource, amount)
        used[number] = sums[resource]
        local kept = guarantees and guarantees[number - b.own_limits]
        local counter = kept and kept[GUARANTEE_COUNTER]
        if counter then
          add(sums, counter, amount)
          add(bucket, counter, amount)
        end
      end
    end
    guarantees, h, limits = b.guarantees, home, h ~= home and b.pool
  end
  if of_own then
    written(own, plan, b.now)
  end
  if any then
    written(home, plan, b.now)
    home.last = b.now
    home.begins = home.begins or own.begins
  end
  if of_own and scope ~= '' and (is_first or not is_now) then -- else an earlier charge of the same bucket noted it
    note_scope(b, plan.index, scope, cost, at)
  end
end
