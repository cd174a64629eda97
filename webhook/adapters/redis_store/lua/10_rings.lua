-- Window rings of one account, in one hash: `ledger/window_ring.py` and `ledger/tag_clock.py`, on Redis.
-- Field "h" is the head, {last, offset, behind_since, born, windows, returned}: the tag's clock (in the tag's home
-- hash), the hash's creation time, and by window length in seconds {number of the newest bucket, its amounts, sums}.
-- `returned` has the replicas that regained the store recently, by id: {when, the others that owe nothing since}.
-- Field "W:S" holds an earlier bucket of window W in slot S, its number modulo 65: a bucket has left its window before
-- another one needs its slot.
-- Hashes are read once per call and written at its end: many Pods of a service cost one read and one write.

local LIVE = 65
local BUCKET_US_PER_SECOND = 15625
local BEHIND_US, PATIENCE_US = 2000000, 10000000
local NEVER = -1
local HEAD, CURRENT, SUMS = 1, 2, 3 -- of a window

local floor, max, min = math.floor, math.max, math.min
local hashes = {}

local function hash_of(key)
  local h = hashes[key]
  if not h then
    local packed = redis.call('HGET', key, 'h')
    h = {
      key = key, last = 0, offset = 0, behind = false, born = 0, windows = {},
      slots = {}, fields = {}, sets = {}, dels = {}, returned = {},
    }
    if packed then
      h.last, h.offset, h.behind, h.born, h.windows, h.returned = unpack(cmsgpack.unpack(packed))
      h.returned = h.returned or {}
    end
    hashes[key] = h
  end
  return h
end

local function field_of(seconds, number)
  return string.format('%.0f:%.0f', seconds, number % LIVE)
end

-- Read slots that are not loaded yet, in one command.
local function load(h, fields)
  local unknown = {}
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

local function put(h, field, amounts)
  h.slots[field], h.sets[field], h.dels[field] = amounts, amounts, nil
end

-- Drop buckets that have left their windows, and start new ones. Written only if anything is charged.
local function settle(h, now)
  if h.settled then
    return h
  end
  h.settled = true
  local leaving, owners = {}, {}
  for seconds, w in pairs(h.windows) do
    local number, head = floor(now / (seconds * BUCKET_US_PER_SECOND)), w[HEAD]
    if number > head then
      h.begins = true
      for gone = head - LIVE + 1, min(head - 1, number - LIVE) do
        local field = field_of(seconds, gone)
        leaving[#leaving + 1], owners[field] = field, w
      end
      if number - head >= LIVE then
        w[SUMS] = {} -- every bucket has left
      else
        put(h, field_of(seconds, head), w[CURRENT])
      end
      w[HEAD], w[CURRENT] = number, {}
    end
  end
  if #leaving > 0 then
    load(h, leaving)
    for _, field in ipairs(leaving) do
      local held, sums = h.slots[field], owners[field][SUMS]
      if held then
        for resource, sum in pairs(sums) do
          sums[resource] = sum - (held[resource] or 0)
        end
        h.slots[field], h.dels[field] = false, true
      end
    end
  end
  return h
end

-- Return a window, created if necessary; an empty one is not written.
local function window_of(h, seconds, now)
  local w = h.windows[seconds]
  if not w then
    w = {floor(now / (seconds * BUCKET_US_PER_SECOND)), {}, {}}
    h.windows[seconds], h.begun = w, true
  end
  return w
end

-- Return the bucket of a moment; nil if it has left the window, or for a refund if it does not exist.
local function bucket_at(h, seconds, at, is_refund)
  local w = h.windows[seconds]
  local number = floor(at / (seconds * BUCKET_US_PER_SECOND))
  if number == w[HEAD] then
    return w[CURRENT]
  elseif number > w[HEAD] or number <= w[HEAD] - LIVE then
    return nil
  end
  local field = field_of(seconds, number)
  load(h, {field})
  local bucket = h.slots[field] or not is_refund and {} or nil
  if bucket then
    put(h, field, bucket)
  end
  return bucket
end

-- Return when `asked` fits if nothing else is charged: 0 if it fits now, NEVER if it never can.
local function free_at(h, seconds, resource, hard, asked)
  if asked > hard then
    return NEVER
  end
  local w = h.windows[seconds]
  local excess = (w and w[SUMS][resource] or 0) - (hard - asked)
  if excess <= 0 then
    return 0
  end
  local first, slots, fields = w[HEAD] - LIVE + 1, h.slots, h.fields[seconds]
  if not fields then
    fields = {}
    for number = first, w[HEAD] - 1 do
      fields[#fields + 1] = field_of(seconds, number)
    end
    load(h, fields)
    h.fields[seconds] = fields
  end
  for index = 1, LIVE - 1 do
    local held = slots[fields[index]]
    if held then
      excess = excess - (held[resource] or 0)
      if excess <= 0 then
        return (first + index - 1 + LIVE) * seconds * BUCKET_US_PER_SECOND
      end
    end
  end
  return (w[HEAD] + LIVE) * seconds * BUCKET_US_PER_SECOND
end

-- Return the newest reset of each window, by its seconds, {requested at, effective up to}: field "r".
local function resets_of(h)
  if not h.resets then
    local packed = redis.call('HGET', h.key, 'r')
    h.resets = packed and cmsgpack.unpack(packed) or {}
  end
  return h.resets
end

-- Return the tag's time by its home hash: monotonic.
local function time_of(home, reading)
  return max(reading + home.offset, home.last)
end

-- Detect that the server's clock is behind the tag's, and rebase it if that persists.
local function observe(home, reading)
  local behind = home.last - (reading + home.offset)
  if behind <= BEHIND_US then
    if home.behind then
      home.behind, home.last, home.dirty = false, time_of(home, reading), true
    end
  elseif not home.behind or reading < home.behind then
    home.behind, home.dirty = reading, true
  elseif reading - home.behind >= PATIENCE_US then
    home.offset, home.behind, home.dirty = home.offset + behind, false, true
  end
end

-- Extend a key's TTL, never shorten it. It only collects garbage: the stored times decide what counts.
local function live_on(key, ttl_ms)
  if redis.call('PTTL', key) < ttl_ms then
    redis.call('PEXPIRE', key, string.format('%.0f', ttl_ms))
  end
end

local function write_hash(h)
  h.begins = h.begins or h.begun
  for seconds, w in pairs(h.begins and h.windows or {}) do
    local holds = next(w[CURRENT])
    for _, amount in pairs(w[SUMS]) do
      holds = holds or amount > 0
    end
    h.windows[seconds] = holds and w or nil
  end
  local values = {'h', cmsgpack.pack({h.last, h.offset, h.behind, h.born, h.windows, next(h.returned) and h.returned})}
  for field, amounts in pairs(h.sets) do
    if next(amounts) then
      values[#values + 1], values[#values + 2] = field, cmsgpack.pack(amounts)
    end
  end
  if h.resets_changed then
    values[#values + 1], values[#values + 2] = 'r', cmsgpack.pack(h.resets)
  end
  redis.call('HSET', h.key, unpack(values))
end

local function delete_slots(h)
  local gone = {}
  for field in pairs(h.dels) do
    gone[#gone + 1] = field
  end
  if #gone > 0 then
    redis.call('HDEL', h.key, unpack(gone))
  end
end
