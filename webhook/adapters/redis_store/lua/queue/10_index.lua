-- Index of waiting Pods: a sorted set of a service's uids, by the server's time of their registration.
-- Operations write at once. Each may be repeated, so an error of another operation's writes does no harm.

-- Register a Pod, unless `most` others are registered. A known Pod keeps its time.
local function register(key, now, REGISTER_FIELDS)
  if not redis.call('ZMSCORE', key, uid)[1] then
    if redis.call('ZCARD', key) >= most then
      return {false}
    end
    redis.call('ZADD', key, now, uid)
  end
  redis.call('PEXPIRE', key, ttl_ms)
  return {true}
end

-- Register Pods at given times: `members` is a packed list of times and uids.
local function restore(key, _, RESTORE_FIELDS)
  redis.call('ZADD', key, 'NX', cmsgpack.unpack(members))
  redis.call('PEXPIRE', key, ttl_ms)
  return {}
end

-- Return a page of uids and their times, one after another, and the cursor of the next page.
local function page(key, _, PAGE_FIELDS)
  local next_cursor, members = unpack(redis.call('ZSCAN', key, cursor, 'COUNT', count))
  for index = 2, #members, 2 do
    members[index] = tonumber(members[index])
  end
  redis.call('PEXPIRE', key, ttl_ms)
  return PAGE_ANSWER{members = members, cursor = next_cursor}
end

-- Return the time of each of some uids, false for a uid that is not registered.
local function times(key, _, TIMES_FIELDS)
  local found = redis.call('ZMSCORE', key, cmsgpack.unpack(uids))
  for index = 1, #found do
    found[index] = found[index] and tonumber(found[index])
  end
  return found
end

local function count(key)
  return {redis.call('ZCARD', key)}
end

local function forget(key, _, FORGET_FIELDS)
  redis.call('ZREM', key, cmsgpack.unpack(uids))
  return {}
end

local actions = {register = register, restore = restore, page = page, times = times, count = count, forget = forget}

-- Run an action: its name and values follow the number of the queue's key.
return {run = function(now, key, action, ...)
  return actions[action](KEYS[key], now, ...)
end}
