-- Slots of an owner in a hash: `r`, how many there are; `f`, below which none is free; by slot when it was claimed and
-- the claim; `c` with a claim, its slot. An owner without `r` is unknown, and may have slots all the same. The law:
-- `core/shares/owner_slots.py`.
-- Operations write at once. Each may be repeated, so an error of another operation's writes does no harm.

-- Add what is written for a slot that a claim takes.
local function add_taken(values, slot, uid, now)
  local count = #values
  values[count + 1], values[count + 2] = slot, string.format('%.0f ', now) .. uid
  values[count + 3], values[count + 4] = 'c' .. uid, slot
end

-- Return what is stored for the slots of a list of slots and claims, one after another.
local function read_held(key, held)
  local slots = {}
  for index = 1, #held, 2 do
    slots[#slots + 1] = held[index]
  end
  return redis.call('HMGET', key, unpack(slots))
end

-- Return when a slot was claimed, and the claim; nothing for a free one.
local function read(stored)
  local at, uid = string.match(stored or '', '^(%d+) (.*)$')
  return tonumber(at), uid
end

local known = {} -- by key, owners of this call: how many slots they have, and below which none is free

-- Claims of one call that follow each other read no more than they have to. Other actions forget what is known.
local function claim(key, now, CLAIM_FIELDS)
  local call, mark, owner = redis.call, 'c' .. uid, known[key]
  local slot, taken
  if owner then
    slot, taken = unpack(call('HMGET', key, mark, owner.free))
  else
    local replicas, free, claimed = unpack(call('HMGET', key, 'r', 'f', mark))
    if not replicas then
      return SLOT_CLAIM{slot = 0, replicas = 0}
    end
    owner, slot = {replicas = tonumber(replicas), free = tonumber(free)}, claimed
    known[key] = owner
    taken = not slot and call('HGET', key, owner.free)
  end
  if slot then
    return SLOT_CLAIM{slot = tonumber(slot), replicas = owner.replicas}
  end
  while taken do
    owner.free = owner.free + 1
    taken = call('HGET', key, owner.free)
  end
  slot = owner.free
  if not is_dry_run then
    local values = {'f', slot + 1}
    add_taken(values, slot, uid, now)
    call('HSET', key, unpack(values))
    owner.free = slot + 1
    if not owner.lasts then
      call('PEXPIRE', key, ttl_ms)
      owner.lasts = true
    end
  end
  return SLOT_CLAIM{slot = slot, replicas = owner.replicas}
end

-- `held`: the slots that Pods carry and their claims, one after another, or false.
local function learn(key, now, LEARN_FIELDS)
  if not is_new and not redis.call('HGET', key, 'r') then
    return {}
  end
  local carried, lowest = {}, 1
  for index = 1, held and #held or 0, 2 do
    carried[held[index]] = true
  end
  while carried[lowest] do
    lowest = lowest + 1
  end
  redis.call('HSET', key, 'r', replicas, 'f', lowest)
  redis.call('PEXPIRE', key, ttl_ms)
  local stored, gone, taken = held and redis.call('HGETALL', key) or NOTHING, {}, {}
  for index = 1, #stored, 2 do
    local slot, at, uid = tonumber(stored[index]), read(stored[index + 1])
    if slot and (carried[slot] or now - at >= age) then
      gone[#gone + 1], gone[#gone + 2] = slot, 'c' .. uid
    end
  end
  for index = 1, held and #held or 0, 2 do
    add_taken(taken, held[index], held[index + 1], now)
  end
  call_with('HDEL', key, gone)
  call_with('HSET', key, taken)
  return {}
end

local function confirm(key, now, CONFIRM_FIELDS)
  local stored, taken, given = read_held(key, held), {}, {}
  for index = 1, #held, 2 do
    local slot = held[index]
    if not stored[(index + 1) / 2] and not given[slot] then
      add_taken(taken, slot, held[index + 1], now)
      given[slot] = true
    end
  end
  call_with('HSET', key, taken)
  redis.call('PEXPIRE', key, ttl_ms)
  return {}
end

local function free(key, _, FREE_FIELDS)
  local replicas, lowest = unpack(redis.call('HMGET', key, 'r', 'f'))
  local stored, gone, freed = read_held(key, held), {}, {}
  for index = 1, #held, 2 do
    local slot, _, uid = held[index], read(stored[(index + 1) / 2])
    if uid == held[index + 1] and not freed[slot] then
      gone[#gone + 1], gone[#gone + 2], freed[slot] = slot, 'c' .. uid, true
      replicas, lowest = replicas and max(0, replicas - 1), min(slot, lowest or slot)
    end
  end
  if #gone > 0 then
    call_with('HDEL', key, gone)
    if replicas then
      redis.call('HSET', key, 'r', replicas, 'f', lowest)
    end
  end
  return {}
end

local function doubt(key)
  redis.call('HDEL', key, 'r')
  return {}
end

local function forget_owner(key)
  redis.call('PEXPIRE', key, 0)
  return {}
end

local actions = {claim = claim, learn = learn, confirm = confirm, free = free, doubt = doubt, forget_owner = forget_owner}

-- Run an action: its name and values follow the number of the owner's key.
return {run = function(now, key, action, ...)
  key = KEYS[key]
  if action ~= 'claim' then
    known[key] = nil
  end
  return actions[action](key, now, ...)
end}
