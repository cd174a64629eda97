-- Window rings of one account, in one hash: `ledger/window_ring.py` and `ledger/tag_clock.py`, on Redis.
-- Field "h" is the head, a RING_HEAD: the tag's clock (in the tag's home hash), the hash's creation time, and by window
-- length in seconds a WINDOW: the number of its newest bucket, that bucket's amounts, and the sums of all. `returned` has
-- the replicas that regained the store recently, by id: a RETURNED, when, and the others that owe nothing since.
-- Field "W:S" holds an earlier bucket of window W in slot S, its number modulo 65: a bucket has left its window before
-- another one needs its slot.
-- Hashes are read once per call and written at its end: many Pods of a service cost one read and one write.

local function hash_of(key)
  local h = hashes[key]
  if not h then
    local packed = redis.call('HGET', key, 'h')
    local head = packed and cmsgpack.unpack(packed) or NOTHING
    h = { -- almost every field is here: a table that grows costs more
      key = key, last = head[RING_HEAD_LAST] or 0, offset = head[RING_HEAD_OFFSET] or 0,
      behind = head[RING_HEAD_BEHIND] or false, born = head[RING_HEAD_BORN] or 0,
      windows = head[RING_HEAD_WINDOWS] or {}, returned = head[RING_HEAD_RETURNED] or NOTHING,
      slots = NOTHING, sets = NOTHING, dels = NOTHING, settled = false, begins = false, dirty = false, ttl = false,
    }
    hashes[key] = h
  end
  return h
end

local function field_of(seconds, number)
  return string.format('%d:%d', seconds, number % LIVE)
end

-- Read slots that are not loaded yet, in one command.
local function load(h, fields)
  local unknown = {}
  if h.slots == NOTHING then
    h.slots, h.sets, h.dels = {}, {}, {}
  end
  for _, field in ipairs(fields) do
    if h.slots[field] == nil then
      unknown[#unknown + 1] = field
    end
  end
  if #unknown > 0 then
    local held = redis.call('HMGET', h.key, unpack(unknown))
    for index, field in ipairs(unknown) do
      h.slots[field] = held[index] and cmsgpack.unpack(held[index])
    end
  end
end

-- Drop buckets that have left their windows, and start new ones. Written only if anything is charged.
local function settle(h, now)
  if h.settled then
    return h
  end
  h.settled = true
  local leaving, owners = NOTHING, NOTHING
  for seconds, w in pairs(h.windows) do
    local number, newest = floor(now / (seconds * BUCKET_US_PER_SECOND)), w[WINDOW_NEWEST]
    if number > newest then
      h.begins = true
      if leaving == NOTHING then
        leaving, owners = {}, {}
        load(h, leaving)
      end
      for gone = newest - LIVE + 1, min(newest - 1, number - LIVE) do
        local field = field_of(seconds, gone)
        leaving[#leaving + 1], owners[field] = field, w[WINDOW_SUMS]
      end
      if number - newest >= LIVE then
        w[WINDOW_SUMS] = {} -- every bucket has left
      else
        local field = field_of(seconds, newest)
        h.slots[field], h.sets[field], h.dels[field] = w[WINDOW_CURRENT], w[WINDOW_CURRENT], nil
      end
      w[WINDOW_NEWEST], w[WINDOW_CURRENT] = number, {}
    end
  end
  if #leaving > 0 then
    load(h, leaving)
    for _, field in ipairs(leaving) do
      local held = h.slots[field]
      if held then
        subtract(owners[field], held)
        h.slots[field], h.dels[field] = false, true
      end
    end
  end
  return h
end

-- Return the tag's time by its home hash: monotonic.
local function time_of(home, reading)
  return max(reading + home.offset, home.last)
end
