-- Admitted Pods that the watch has not shown yet: a sorted set of the tag, by the time of their charge.

-- Mark a Pod as not seen yet since `at`; false removes the mark.
local function wait_for(key, uid, at)
  local waited = waits[key] or {}
  waits[key], waited[uid] = waited, at
end

local function write_waits(key, waited)
  local values = {}
  for uid, at in pairs(waited) do
    if at then
      values[#values + 1], values[#values + 2] = at, uid
    end
  end
  if #values > 0 then
    redis.call('ZADD', key, unpack(values))
  end
end

-- Remove the marks of seen Pods, and expired ones.
local function clear_waits(key, waited)
  local gone, newest = {}, 0
  for uid, at in pairs(waited) do
    if at then
      newest = max(newest, at)
    else
      gone[#gone + 1] = uid
    end
  end
  if #gone > 0 then
    redis.call('ZREM', key, unpack(gone))
  end
  if newest > 0 then
    redis.call('PEXPIRE', key, WAITED_TTL_MS)
    if expiring[key] then
      redis.call('ZREMRANGEBYSCORE', key, '-inf', newest - WAITED_US - LONG_US)
    end
  end
end
