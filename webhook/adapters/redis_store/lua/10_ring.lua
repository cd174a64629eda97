-- One trailing window as an aligned ring of buckets in a hash: `core/ring.py`, on Redis.
-- Field "W" holds {number of the newest bucket, sums by resource}, field "W:S" what the bucket in slot S holds.
-- A slot is a bucket's number modulo 65, so whatever a new bucket would fall upon has left the window before.

local LIVE = 65
local BUCKET_US_PER_SECOND = 15625

local function width(seconds)
  return seconds * BUCKET_US_PER_SECOND
end

local function slot(ring, number)
  return string.format('%.0f:%.0f', ring.seconds, number % LIVE)
end

local function ring_of(key, seconds)
  local header = redis.call('HGET', key, string.format('%.0f', seconds))
  if not header then
    return {key = key, seconds = seconds, sums = {}}
  end
  local head, sums = unpack(cmsgpack.unpack(header))
  return {key = key, seconds = seconds, head = head, sums = sums}
end

-- Read the buckets from number `first` to `last`: their fields, and what they hold (false where nothing).
local function buckets(ring, first, last)
  local fields = {}
  for number = first, last do
    fields[#fields + 1] = slot(ring, number)
  end
  if #fields == 0 then
    return fields, {}
  end
  local held = redis.call('HMGET', ring.key, unpack(fields))
  for index = 1, #fields do
    held[index] = held[index] and cmsgpack.unpack(held[index])
  end
  return fields, held
end

local function oldest(ring, now)
  return math.floor(now / width(ring.seconds)) - (LIVE - 1)
end

-- What has left the window since it was last written.
local function gone(ring, now)
  return buckets(ring, ring.head - (LIVE - 1), math.min(ring.head, oldest(ring, now) - 1))
end

-- Return what counts at `now`, by resource; absent is nothing.
local function ring_used(ring, now)
  if not ring.head or oldest(ring, now) <= ring.head - (LIVE - 1) then
    return ring.sums
  end
  local sums = {}
  for resource, amount in pairs(ring.sums) do
    sums[resource] = amount
  end
  local _, held = gone(ring, now)
  for index = 1, #held do
    for resource, amount in pairs(held[index] or {}) do
      sums[resource] = sums[resource] - amount
    end
  end
  return sums
end

local function ring_write(ring, field, amounts)
  local header = cmsgpack.pack({ring.head, ring.sums})
  redis.call('HSET', ring.key, string.format('%.0f', ring.seconds), header, field, cmsgpack.pack(amounts))
end

-- Count amounts. True where a new bucket begins: then the hash must be told to live on.
local function ring_add(ring, now, amounts)
  local number = math.floor(now / width(ring.seconds))
  local begins = not ring.head or number > ring.head
  if ring.head and begins then
    ring.sums = ring_used(ring, now)
    local fields, held = gone(ring, now)
    for index = #fields, 1, -1 do
      if not held[index] then
        table.remove(fields, index)
      end
    end
    if #fields > 0 then
      redis.call('HDEL', ring.key, unpack(fields))
    end
  end
  ring.head = begins and number or ring.head
  local field = slot(ring, ring.head)
  local packed = redis.call('HGET', ring.key, field)
  local bucket = packed and cmsgpack.unpack(packed) or {}
  for resource, amount in pairs(amounts) do
    bucket[resource] = (bucket[resource] or 0) + amount
    ring.sums[resource] = (ring.sums[resource] or 0) + amount
  end
  ring_write(ring, field, bucket)
  return begins
end

-- Take back what was counted at a moment; false where its bucket has left, and with it the amounts.
local function ring_refund(ring, now, charged_at, amounts)
  local number = math.floor(charged_at / width(ring.seconds))
  if not ring.head or number > ring.head or number < math.max(oldest(ring, now), ring.head - (LIVE - 1)) then
    return false
  end
  local field = slot(ring, number)
  local packed = redis.call('HGET', ring.key, field)
  if not packed then
    return false
  end
  local bucket = cmsgpack.unpack(packed)
  for resource, amount in pairs(amounts) do
    bucket[resource] = bucket[resource] - amount
    ring.sums[resource] = ring.sums[resource] - amount
  end
  ring_write(ring, field, bucket)
  return true
end

-- From when on `asked` fits if nothing else comes: 0 where it fits now, -1 where it never can.
local function ring_free_at(ring, now, used, resource, hard, asked)
  if asked > hard then
    return -1
  end
  local excess = (used[resource] or 0) - (hard - asked)
  if excess <= 0 then
    return 0
  end
  local first = math.max(oldest(ring, now), ring.head - (LIVE - 1))
  local _, held = buckets(ring, first, ring.head)
  for index = 1, #held do
    excess = excess - (held[index] and held[index][resource] or 0)
    if excess <= 0 then
      return (first + index - 1 + LIVE) * width(ring.seconds)
    end
  end
  error('the buckets do not add up to the sums')
end

-- From when on nothing in the ring counts any more.
local function ring_idle_at(ring)
  return (ring.head + LIVE) * width(ring.seconds)
end
