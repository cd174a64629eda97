-- Slots of an owner in a hash: `r`, how many there are; `f`, below which none is free; by slot when it was claimed and
-- the claim; `c` with a claim, its slot. An owner without `r` is unknown. The law: `core/shares/owner_slots.py`.
-- Operations write at once. Each may be repeated, so an error of another operation's writes does no harm.

local function take(key, slot, uid, now)
  redis.call('HSET', key, slot, string.format('%.0f ', now) .. uid, 'c' .. uid, slot)
end

-- Return when a slot was claimed, and the claim; nothing for a free one.
local function read(stored)
  local at, uid = string.match(stored or '', '^(%d+) (.*)$')
  return tonumber(at), uid
end

local function claim(key, now, CLAIM_FIELDS)
  local replicas, free, slot = unpack(redis.call('HMGET', key, 'r', 'f', 'c' .. uid))
  if not replicas or slot then
    return SLOT_CLAIM{slot = tonumber(slot or 0), replicas = tonumber(replicas or 0)}
  end
  free = tonumber(free)
  while redis.call('HGET', key, free) do
    free = free + 1
  end
  if not is_dry_run then
    take(key, free, uid, now)
    redis.call('HSET', key, 'f', free + 1)
    redis.call('PEXPIRE', key, ttl_ms)
  end
  return SLOT_CLAIM{slot = free, replicas = tonumber(replicas)}
end

-- `held`: the slots that Pods carry and their claims, one after another, or false.
local function learn(key, now, LEARN_FIELDS)
  if not is_new and not redis.call('HGET', key, 'r') then
    return {}
  end
  redis.call('HSET', key, 'r', replicas, 'f', 1)
  redis.call('PEXPIRE', key, ttl_ms)
  local carried = {}
  for index = 1, held and #held or 0, 2 do
    carried[held[index]] = true
  end
  local stored = held and redis.call('HGETALL', key) or NOTHING
  for index = 1, #stored, 2 do
    local slot, at, uid = tonumber(stored[index]), read(stored[index + 1])
    if slot and (carried[slot] or now - at >= age) then
      redis.call('HDEL', key, slot, 'c' .. uid)
    end
  end
  for index = 1, held and #held or 0, 2 do
    take(key, held[index], held[index + 1], now)
  end
  return {}
end

local function confirm(key, now, CONFIRM_FIELDS)
  if redis.call('HGET', key, 'r') then
    redis.call('PEXPIRE', key, ttl_ms)
    for index = 1, #held, 2 do
      if not redis.call('HGET', key, held[index]) then
        take(key, held[index], held[index + 1], now)
      end
    end
  end
  return {}
end

local function free(key, _, FREE_FIELDS)
  for index = 1, #held, 2 do
    local slot, claimed = held[index], held[index + 1]
    local _, uid = read(redis.call('HGET', key, slot))
    if uid == claimed then
      local replicas, lowest = unpack(redis.call('HMGET', key, 'r', 'f'))
      redis.call('HDEL', key, slot, 'c' .. uid)
      redis.call('HSET', key, 'r', math.max(0, replicas - 1), 'f', math.min(slot, lowest))
    end
  end
  return {}
end

local function forget_owner(key)
  redis.call('PEXPIRE', key, 0)
  return {}
end

local actions = {claim = claim, learn = learn, confirm = confirm, free = free, forget_owner = forget_owner}

-- Run an action: its name and values follow the number of the owner's key.
return {run = function(now, key, action, ...)
  return actions[action](KEYS[key], now, ...)
end}
