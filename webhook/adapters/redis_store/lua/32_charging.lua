-- Charges of a Pod to its windows and to the live Pods: `ledger/charge.py` and `ledger/tag_state.py`, on Redis.

local notes = {} -- of namespaces, by index

local function written(h, plan, now)
  h.dirty, h.ttl = true, max(h.ttl or 0, plan.ttl)
  h.born = h.born > 0 and h.born or now
end

local function note_scope(index, scope, counts_until)
  local noted = notes[index] or {}
  notes[index], noted[scope] = noted, max(noted[scope] or 0, counts_until)
end

-- Return until when a charge to a namespace counts there.
local function counts_until(b, cost, at)
  local latest = 0
  for _, column in ipairs(b.columns) do
    if column[HASH] == b.own and (cost[column[RESOURCE]] or 0) > 0 then
      local width = column[SECONDS] * BUCKET_US_PER_SECOND
      latest = max(latest, (floor(at / width) + LIVE) * width)
    end
  end
  return latest
end

-- Count `cost` as of a moment, now or before, in every window that limits any of it; updates `used`.
local function charge(plan, b, scope, cost, at, used)
  local own, home, columns, is_now = b.own, b.home, b.columns, at == b.now
  local any, of_own, is_first = false, false, false
  for number = 1, #columns do
    local column = columns[number]
    local resource = column[RESOURCE]
    local amount = cost[resource] or 0
    local bucket = amount > 0 and (is_now and column[BUCKET] or bucket_at(column[HASH], column[SECONDS], at))
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
    home.begins = home.begins or own.begins or own.begun
  end
  if of_own and scope ~= '' and (is_first or not is_now) then -- else an earlier charge of the same bucket noted it
    note_scope(plan.index, scope, counts_until(b, cost, at))
  end
end

-- Add a Pod to the live ones, and mark it as not seen yet; updates `used`.
local function add_live_and_wait(plan, b, uid, cost, at, used)
  if b.live then
    put_live(plan, b.live, uid, cost, b.now)
    for index, limit in ipairs(b.standing) do
      used[#b.columns + index] = b.live.sums[limit[1]] or 0
    end
  end
  if at then
    wait_for(plan.waits_key, uid, at)
  end
end

-- Return what a Pod adds to the live amounts: its cost minus what it holds, or minus `unless_held` if it is not live.
local function more_live(b, uid, cost, unless_held)
  return b.live and difference(cost, held(b.live, uid) or unless_held) or NOTHING
end
