-- Single buckets of windows: `ledger/window_ring.py`, on Redis.

-- Return the bucket of a moment; nil if it has left the window, or for a refund if it does not exist.
local function bucket_at(h, seconds, at, is_refund)
  local w = h.windows[seconds]
  local number = floor(at / (seconds * BUCKET_US_PER_SECOND))
  if number == w[WINDOW_NEWEST] then
    return w[WINDOW_CURRENT]
  elseif number > w[WINDOW_NEWEST] or number <= w[WINDOW_NEWEST] - LIVE then
    return nil
  end
  local field = field_of(seconds, number)
  load(h, {field})
  local bucket = h.slots[field] or not is_refund and {} or nil
  if bucket then
    h.slots[field], h.sets[field], h.dels[field] = bucket, bucket, nil
  end
  return bucket
end

-- Return when `asked` fits if nothing else is charged: 0 if it fits now, NEVER if it never can.
local function free_at(h, seconds, resource, hard, asked)
  if asked > hard then
    return NEVER
  end
  local w = h.windows[seconds]
  if (w and w[WINDOW_SUMS][resource] or 0) <= hard - asked then
    return 0
  end
  h.fields = h.fields or {}
  local first, fields = w[WINDOW_NEWEST] - LIVE + 1, h.fields[seconds]
  if not fields then
    fields = {}
    for number = first, w[WINDOW_NEWEST] - 1 do
      fields[#fields + 1] = field_of(seconds, number)
    end
    load(h, fields)
    h.fields[seconds] = fields
  end
  local room, index = hard - asked - (w[WINDOW_CURRENT][resource] or 0), LIVE
  while room >= 0 and index > 1 do
    index = index - 1
    local held = h.slots[fields[index]]
    room = room - (held and held[resource] or 0)
  end
  return (first + index - 1 + LIVE) * seconds * BUCKET_US_PER_SECOND
end
