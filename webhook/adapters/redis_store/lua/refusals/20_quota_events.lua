-- Quota denials counted by a breaker: `core/breaker/{outcome_counting,triggers}.py`, on Redis; and its stored record.

-- Return (refused, would) after a guard's objection: a guard that is not enforced denies nothing but is reported.
local function objection(guard, enforced, would)
  if enforced then
    return guard, would
  end
  return 0, would + guard
end

local function is_excused(r, source, now)
  for _, one in ipairs(r.excused) do
    if (one[1] == source or one[1] == EVERY_SOURCE) and now < one[2] then
      return true
    end
  end
  return false
end

-- Whether a limit of the service itself is exceeded, of its windows or on its live Pods.
local function is_of_its_own(b, over)
  for _, use in ipairs(over) do
    if use[1] <= b.own_limits or use[1] > b.limits then
      return true
    end
  end
  return false
end

-- Records with many events are written in a longer form, in which the events need not be decoded: {the first nine fields,
-- the events, the other nine fields, where these begin and the time of the newest event}. Older versions read it, too:
-- they ignore the last field. Version 0.1.0 counts the elements of the list, so that each event needs its own.

-- Return the fields of such a record, and its events {text, from, to, more, count, newest}: the part of a text that has
-- them, and those that this call adds.
local function long_record(packed)
  local others = tonumber(string.sub(packed, -24, -17))
  local f, tail = {cmsgpack.unpack_limit(packed, 9, 3)}, {cmsgpack.unpack_limit(packed, 9, others)}
  local from = table.remove(f, 1)
  f[10] = false
  for index = 2, 10 do
    f[index + 9] = tail[index]
  end
  local high, low = string.byte(packed, from + 2, from + 3)
  local newest = tonumber(string.sub(packed, -16))
  return f, {text = packed, from = from + 3, to = others, more = '', count = high * 256 + low, newest = newest}
end

-- Return all events of a breaker, decoded.
local function events_of(r)
  local long = r.long
  if long then
    local text = string.sub(long.text, long.from + 1, long.to) .. long.more
    r.events, r.long = {cmsgpack.unpack(text)}, false
  end
  return r.events
end

-- Return the long form of events; false if they are few, or not in the order of their times.
local function long_of(events)
  local parts, before = {}, 4294967296 -- greater times have 8 bytes
  for index, event in ipairs(events) do
    if event[1] < before then
      return false
    end
    before, parts[index] = event[1], cmsgpack.pack(event)
  end
  local text = table.concat(parts)
  return #parts >= LONG_EVENTS and {text = text, from = 0, to = #text, more = '', count = #parts, newest = before}
end

-- Whether any of the events from a position on has this source. Before it are the head of an array and a time: no
-- source contains these bytes, because they are not UTF-8.
local function has_source(text, from, source)
  local wanted = cmsgpack.pack(source)
  local at = string.find(text, wanted, from + 1, true)
  while at do
    local array, integer, zero = string.byte(text, at - 10, at - 8)
    if array == 146 and integer == 207 and zero == 0 then
      return true
    end
    at = string.find(text, wanted, at + 1, true)
  end
  return false
end

-- Count an event; true if there are as many as the plan allows, nil if the events had to be decoded to count it.
local function count_long(r, now, source, count, within, by_controller)
  local long = r.long
  local from, left = long.from, long.count
  while from < long.to do
    local behind, event = cmsgpack.unpack_limit(long.text, 1, from)
    if event[1] > now - within then
      break
    end
    from, left = behind, left - 1
  end
  if from == long.to or now < long.newest then
    events_of(r)
    return nil
  end
  r.changed = r.changed or left < long.count
  long.from, long.count = from, left
  if by_controller and (has_source(long.text, from, source) or has_source(long.more, 0, source)) then
    return false
  end
  long.more, long.count, long.newest = long.more .. cmsgpack.pack({now, source}), left + 1, now
  r.changed = true
  return left + 1 >= count
end

-- Record that quota denied a Pod of `source`; return the reason and the events if the breaker must trip. Only CLOSED
-- counts them: a probe denied by quota proves nothing.
local function quota_event(r, plan, b, over, source)
  local now = b.now
  -- If only the pool is exceeded, another member may be the cause.
  if r.state ~= 'CLOSED' or not is_of_its_own(b, over) or is_excused(r, source, now) then
    return false
  end
  local count, within, by_controller, reason = unpack(details_of(plan).quota)
  if r.long then
    local is_full = count_long(r, now, source, count, within, by_controller)
    if is_full ~= nil then
      return is_full and reason, is_full and events_of(r)
    end
  end
  local events, is_counted = {}, false
  for _, event in ipairs(events_of(r)) do
    if event[1] > now - within then
      events[#events + 1] = event
      is_counted = is_counted or event[2] == source
    end
  end
  if not by_controller or not is_counted then
    events[#events + 1] = {now, source}
    if #events >= count then
      return reason, events
    end
  elseif #events == #r.events then
    return false -- not written again: a record of many events is long
  end
  r.events, r.changed = events, true
  return false
end

local function lasts_ms(r)
  return math.max(details_of(r.plan).breaker_ttl, (r.open_until - r.now) / 1000 + DAY_MS)
end

local function packed_breaker(r)
  local long = r.long or #r.events >= LONG_EVENTS and long_of(r.events)
  if not long or long.count < LONG_EVENTS or long.newest >= 1e16 then -- a time that has more than 16 digits
    return cmsgpack.pack({
      r.state, r.generation, r.since, r.open_until, r.reason, r.successes, r.leases, r.errors, r.latency, events_of(r),
      r.failed, r.early, r.tripped_at, r.tripped_by, r.reset_at, r.excused, r.asked, r.passed, r.alone,
    })
  end
  local first = cmsgpack.pack(
    r.state, r.generation, r.since, r.open_until, r.reason, r.successes, r.leases, r.errors, r.latency
  )
  local others = cmsgpack.pack(
    r.failed, r.early, r.tripped_at, r.tripped_by, r.reset_at, r.excused, r.asked, r.passed, r.alone
  )
  local events = string.sub(long.text, long.from + 1, long.to)
  local head = string.char(220, math.floor(long.count / 256), long.count % 256)
  local index = string.format('\184%08d%016.0f', 3 + #first + 3 + #events + #long.more, long.newest)
  return string.char(LONG_RECORD, 0, LONG_FIELDS) .. first .. head .. events .. long.more .. others .. index
end

local function write_breaker(key, r)
  redis.call('SET', key, packed_breaker(r), 'PX', string.format('%.0f', lasts_ms(r)))
end

return {
  bucket_at = bucket_at, free_at = free_at, objection = objection, quota_event = quota_event,
  lasts_ms = lasts_ms, write_breaker = write_breaker, long_record = long_record, events_of = events_of,
}
