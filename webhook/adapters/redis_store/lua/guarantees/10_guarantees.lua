-- Guarantees in the limits of a pool: `ledger/guaranteed_windows.py`, on Redis.
-- Those of a limit are a flat list of GUARANTEE records: first the plan's own, whose counter is false without one, then
-- those of other members. A counter is the name under which the pool's buckets count a member's use.

-- Return what other members have left of their guarantees.
local function kept_for_others(kept, amounts)
  local left = 0
  for at = GUARANTEE_LENGTH + 1, #kept, GUARANTEE_LENGTH do
    left = left + max(0, kept[at + GUARANTEE_HARD_OFFSET] - (amounts[kept[at]] or 0))
  end
  return left
end

local function own_of(kept, amounts)
  return amounts[kept[GUARANTEE_COUNTER]] or 0
end

local function fits(resource, hard, asked, kept, amounts)
  local room = hard - (amounts[resource] or 0)
  if asked > kept[GUARANTEE_HARD] - own_of(kept, amounts) then
    room = room - kept_for_others(kept, amounts)
  end
  return asked <= room
end

-- Return when `asked` fits if nothing else is charged: 0 if it fits now, NEVER if it never can.
local function free_at(h, seconds, resource, hard, asked, kept)
  local w, left = h.windows[seconds], {}
  if not fits(resource, hard, asked, kept, NOTHING) then
    return NEVER
  end
  for name, sum in pairs(w and w[WINDOW_SUMS] or NOTHING) do
    left[name] = sum
  end
  if fits(resource, hard, asked, kept, left) then
    return 0
  end
  local fields, first = {}, w[WINDOW_NEWEST] - LIVE + 1
  for number = first, w[WINDOW_NEWEST] - 1 do
    fields[#fields + 1] = field_of(seconds, number)
  end
  load(h, fields)
  for index, field in ipairs(fields) do
    local held = h.slots[field]
    if held then
      subtract(left, held)
      if fits(resource, hard, asked, kept, left) then
        return (first + index - 1 + LIVE) * seconds * BUCKET_US_PER_SECOND
      end
    end
  end
  return (w[WINDOW_NEWEST] + LIVE) * seconds * BUCKET_US_PER_SECOND
end

-- Return an OVER of a limit with guarantees.
local function over_of(b, h, seconds, limits, index, number, kept, asked)
  local resource, hard = limits[index + LIMIT_RESOURCE_OFFSET], limits[index + LIMIT_HARD_OFFSET]
  local sums = h.windows[seconds][WINDOW_SUMS]
  local free = free_at(h, seconds, resource, hard, asked, kept)
  return OVER{
    number = number, used = sums[resource] or 0, asked = asked, free_at_us = shown(b.home, free), surge = 0,
    own_used = own_of(kept, sums), kept = kept_for_others(kept, sums),
  }
end

-- Return of each limit of the pool the plan's own use, and what others have left of their guarantees.
local function uses_of(h, limits, guarantees)
  local found = {}
  for number, kept in ipairs(guarantees) do
    local w = h.windows[limits[(number - 1) * LIMIT_LENGTH + 1 + LIMIT_SECONDS_OFFSET]]
    local sums = w and w[WINDOW_SUMS] or NOTHING
    found[#found + 1] = kept and own_of(kept, sums) or 0
    found[#found + 1] = kept and kept_for_others(kept, sums) or 0
  end
  return found
end

return {
  fits = fits, own_of = own_of, kept_for_others = kept_for_others, free_at = free_at, over = over_of, uses_of = uses_of,
}
