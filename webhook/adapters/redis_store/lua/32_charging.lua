-- Charges of a Pod to its windows and to the live Pods: `ledger/charge.py` and `ledger/tag_state.py`, on Redis.

local notes = {} -- of namespaces, by index

local function written(h, plan, now)
  h.dirty, h.ttl = true, max(h.ttl or 0, plan.ttl)
  h.born = h.born > 0 and h.born or now
end

-- Note until when a charge to a namespace counts there.
local function note_scope(b, index, scope, cost, at)
  local latest = 0
  for _, column in ipairs(b.columns) do
    if column[HASH] == b.own and (cost[column[RESOURCE]] or 0) > 0 then
      local width = column[SECONDS] * BUCKET_US_PER_SECOND
      latest = max(latest, (floor(at / width) + LIVE) * width)
    end
  end
  local noted = notes[index] or {}
  notes[index], noted[scope] = noted, max(noted[scope] or 0, latest)
end

-- Count `cost` as of a moment, now or before, in every window that limits any of it; updates `used`.
local function charge(plan, b, scope, cost, at, used)
  local own, home, columns, is_now = b.own, b.home, b.columns, at == b.now
  local any, of_own, is_first = false, false, false
  for number = 1, #columns do
    local column = columns[number]
    local resource = column[RESOURCE]
    local amount = cost[resource] or 0
    local bucket = amount > 0
      and (is_now and column[BUCKET] or module('refusals').bucket_at(column[HASH], column[SECONDS], at))
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
    home.begins = home.begins or own.begins
  end
  if of_own and scope ~= '' and (is_first or not is_now) then -- else an earlier charge of the same bucket noted it
    note_scope(b, plan.index, scope, cost, at)
  end
end
