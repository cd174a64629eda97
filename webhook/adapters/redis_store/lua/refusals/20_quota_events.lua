-- Quota denials counted by a breaker: `core/breaker/{outcome_counting,triggers}.py`, on Redis; and its stored record.

-- Return (refused, would) after a guard's objection: a guard that is not enforced denies nothing but is reported.
local function objection(guard, enforced, would)
  if enforced then
    return guard, would
  end
  return 0, would + guard
end

local function is_excused(r, source, now)
  for _, excuse in ipairs(r.excused) do
    local excused = excuse[EXCUSE_SOURCE]
    if (excused == source or excused == EVERY_SOURCE) and now < excuse[EXCUSE_UNTIL_US] then
      return true
    end
  end
  return false
end

-- Whether a limit of the service itself is exceeded, of its windows or on its live Pods.
local function is_of_its_own(b, over)
  for _, use in ipairs(over) do
    local number = use[OVER_NUMBER]
    local is_of_pool = b.pool_standing and number > b.limits + #b.standing
    if number <= b.own_limits or number > b.limits and not is_of_pool then
      return true
    end
  end
  return false
end

-- Records with many events are written in a longer form, in which the events need not be decoded. It has one more field
-- at its end: where the fields after the events begin, and the time of the newest event. Older versions read it, too: they
-- ignore that field. Version 0.1.0 counts the elements of the list, so that each event needs its own.

-- Return the fields of such a record, and its events {text, from, to, more, count, newest}: the part of a text that has
-- them, and those that this call adds.
local function long_record(packed)
  local others = tonumber(string.sub(packed, -24, -17))
  local f = {cmsgpack.unpack_limit(packed, BREAKER_BEFORE_EVENTS_LENGTH, 3)}
  local tail = {cmsgpack.unpack_limit(packed, BREAKER_AFTER_EVENTS_LENGTH, others)}
  local from = table.remove(f, 1) -- where the events begin
  table.remove(tail, 1)
  f[BREAKER_RECORD_EVENTS] = false
  for index, value in ipairs(tail) do
    f[BREAKER_RECORD_EVENTS + index] = value
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
    if event[EVENT_AT] < before then
      return false
    end
    before, parts[index] = event[EVENT_AT], cmsgpack.pack(event)
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
    if event[EVENT_AT] > now - within then
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
  long.more, long.count, long.newest = long.more .. cmsgpack.pack(EVENT{at = now, source = source}), left + 1, now
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
  local QUOTA_RULE_FIELDS = unpack(details_of(plan).quota)
  if r.long then
    local is_full = count_long(r, now, source, trip_count, within_us, by_controller)
    if is_full ~= nil then
      return is_full and reason, is_full and events_of(r)
    end
  end
  local events, is_counted = {}, false
  for _, event in ipairs(events_of(r)) do
    if event[EVENT_AT] > now - within_us then
      events[#events + 1] = event
      is_counted = is_counted or event[EVENT_SOURCE] == source
    end
  end
  if not by_controller or not is_counted then
    events[#events + 1] = EVENT{at = now, source = source}
    if #events >= trip_count then
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
    events_of(r) -- decoded
    return cmsgpack.pack({BREAKER_RECORD_OF_R})
  end
  local first, others = cmsgpack.pack(BREAKER_BEFORE_EVENTS_OF_R), cmsgpack.pack(BREAKER_AFTER_EVENTS_OF_R)
  local events = string.sub(long.text, long.from + 1, long.to)
  local head = string.char(220, math.floor(long.count / 256), long.count % 256)
  local index = string.format('\184%08d%016.0f', 3 + #first + 3 + #events + #long.more, long.newest)
  return string.char(LONG_RECORD, 0, LONG_RECORD_LENGTH) .. first .. head .. events .. long.more .. others .. index
end

local function write_breaker(key, r)
  redis.call('SET', key, packed_breaker(r), 'PX', string.format('%.0f', lasts_ms(r)))
end

return {
  bucket_at = bucket_at, free_at = free_at, objection = objection, quota_event = quota_event,
  lasts_ms = lasts_ms, write_breaker = write_breaker, long_record = long_record, events_of = events_of,
}
